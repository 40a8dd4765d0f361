//! Start of children.

use std::{fs, os::unix::fs::PermissionsExt};

use stayput_process::{
    ExitStatus, Grace, Processes, Program, StartError, StderrTail, WardenCommand,
};
use tokio::{io::AsyncReadExt, runtime::Handle};

use crate::kit::{answer, pid, poll_times, stat, until};

/// Starts the program and returns its output.
async fn said(processes: &Processes, program: &Program) -> String {
    let mut child = processes.start(program).await.unwrap();
    answer(child.take_pipes().unwrap(), "").await
}

both_ways! {
    async fn child_echoes_its_input(kit) {
        let mut child = kit.start("exec cat").await;
        let pipes = child.take_pipes().unwrap();
        assert!(child.take_pipes().is_none());
        let long = "x".repeat(60_000);
        assert_eq!(answer(pipes, &long).await, long);
        assert_eq!(child.wait().await, ExitStatus::Code(0));
        assert_eq!(child.exited(), Some(ExitStatus::Code(0)));
    }

    async fn arguments_are_passed_unchanged(kit) {
        let mut program = kit.sh("printf '<%s>' \"$@\"");
        let extra = ["name", "a b", "", "$HOME 'x' \"y\" *", "-n"];
        program.args.extend(extra.map(Into::into));
        let said = said(&kit.processes, &program).await;
        assert_eq!(said, "<a b><><$HOME 'x' \"y\" *><-n>");
    }

    /// Nothing is inherited; only the mark is added.
    async fn child_gets_only_the_given_environment(kit) {
        let mut program = kit.sh("");
        program.command = "env".into();
        program.args.clear();
        program.env.push(("EMPTY".into(), "".into()));
        let said = said(&kit.processes, &program).await;
        let mut names: Vec<_> = said.lines().map(|line| line.split('=').next().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["EMPTY", "KIT", "PATH", "STAYPUT_LINK"]);
    }

    async fn child_runs_in_the_given_folder(kit) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let program = Program { cwd: Some(path.clone()), ..kit.sh("pwd") };
        assert_eq!(said(&kit.processes, &program).await.trim(), path.to_str().unwrap());
    }

    async fn command_is_found_by_the_path_of_the_child(kit) {
        let folder = tempfile::tempdir().unwrap();
        let tool = folder.path().join("tool");
        fs::copy("/bin/echo", &tool).unwrap();
        let program = Program {
            command: "tool".into(),
            args: vec!["found".into()],
            env: vec![("PATH".into(), format!("/nowhere:{}", folder.path().display()).into())],
            cwd: None,
        };
        assert_eq!(said(&kit.processes, &program).await, "found\n");
        let elsewhere = Program { env: Vec::new(), ..program.clone() };
        let error = kit.processes.start(&elsewhere).await.unwrap_err();
        assert!(matches!(error, StartError::NotFound { .. }), "{error:?}");
        // Without a PATH the usual folders are searched.
        let program = Program { command: "echo".into(), ..elsewhere };
        assert_eq!(said(&kit.processes, &program).await, "found\n");
    }

    async fn each_child_leads_its_group(kit) {
        let child = kit.start("sleep TOKEN").await;
        assert_eq!(stat(pid(&child), 2).unwrap(), child.pid().to_string());
        assert_eq!(kit.processes.live(), 1);
        child.end(Grace::NONE).await;
        assert_eq!(kit.processes.live(), 0);
    }

    /// R029: the error says what to repair.
    async fn failed_start_reports_the_reason(kit) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plain");
        fs::write(&file, "text").unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        let path = folder.path().to_str().unwrap();
        let start = async |program: Program| kit.processes.start(&program).await.unwrap_err();

        let missing = start(Program { command: "no-such-tool".into(), ..kit.sh("") }).await;
        assert!(matches!(missing, StartError::NotFound { .. }), "{missing:?}");
        assert!(missing.to_string().contains("`no-such-tool`"), "{missing}");
        let missing = start(Program { command: "/no/such/tool".into(), ..kit.sh("") }).await;
        assert!(matches!(missing, StartError::NotFound { .. }), "{missing:?}");

        for command in ["plain", file.to_str().unwrap(), path] {
            let env = vec![("PATH".into(), path.into())];
            let denied = start(Program { command: command.into(), env, ..kit.sh("") }).await;
            assert!(matches!(denied, StartError::Denied { .. }), "{command}: {denied:?}");
        }
        for cwd in ["/no/such/folder", file.to_str().unwrap()] {
            let bad = start(Program { cwd: Some(cwd.into()), ..kit.sh("") }).await;
            assert!(matches!(bad, StartError::Cwd { .. }), "{bad:?}");
            assert!(bad.to_string().contains(cwd), "{bad}");
        }
        let secret = "hunter2".repeat(30_000);
        let long = Program { env: vec![("KEY".into(), secret.into())], ..kit.sh("") };
        let long = start(Program { command: "/bin/sh".into(), ..long }).await;
        assert!(matches!(long, StartError::TooBig { .. }), "{long:?}");
        assert!(!format!("{long:?}").contains("hunter2"));
        assert_eq!(kit.processes.live(), 0);
    }

    async fn environment_of_a_megabyte_is_passed(kit) {
        let mut program = kit.sh("printf '%s' ${#V0} ${#V9}");
        for number in 0..10 {
            program.env.push((format!("V{number}").into(), "x".repeat(100_000).into()));
        }
        assert_eq!(said(&kit.processes, &program).await, "100000100000");
    }

    /// Concurrent starts that are larger than a socket buffer: each child gets its own.
    async fn concurrent_large_starts_do_not_mix(kit) {
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..12_usize {
            let size = if number % 3 == 0 { 1 } else { 100_000 };
            let mut program = kit.sh("printf '%s' \"$NUMBER\" ${#V0} ${#V4}");
            program.env.push(("NUMBER".into(), format!("{number}:").into()));
            for part in 0..5 {
                program.env.push((format!("V{part}").into(), "x".repeat(size).into()));
            }
            let processes = kit.processes.clone();
            tasks.spawn(async move { (number, size, said(&processes, &program).await) });
        }
        for (number, size, said) in tasks.join_all().await {
            assert_eq!(said, format!("{number}:{size}{size}"));
        }
    }

    async fn fifty_concurrent_starts_make_fifty_children(kit) {
        let program = kit.sh("exec sleep TOKEN");
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let (processes, program) = (kit.processes.clone(), program.clone());
            tasks.spawn(async move { processes.start(&program).await.unwrap() });
        }
        let children = tasks.join_all().await;
        assert_eq!(kit.processes.live(), 50);
        kit.count(50).await;
        let mut pids: Vec<_> = children.iter().map(|child| child.pid()).collect();
        pids.sort_unstable();
        pids.dedup();
        assert_eq!(pids.len(), 50);
    }

    /// Invariant 6: a start that is dropped at any await leaves nothing behind.
    async fn cancelled_start_leaves_nothing(kit) {
        let program = kit.sh("trap '' TERM; sleep TOKEN");
        for times in 0..6 {
            let started = poll_times(times, kit.processes.start(&program)).await;
            drop(started);
        }
        kit.processes.close().await;
        kit.count(0).await;
        assert_eq!(kit.processes.live(), 0);
    }

    async fn nothing_starts_after_the_close(kit) {
        let child = kit.start("sleep TOKEN").await;
        kit.processes.close().await;
        assert!(child.exited().is_some());
        let error = kit.processes.start(&kit.sh("")).await.unwrap_err();
        assert!(matches!(error, StartError::Closed), "{error:?}");
        kit.processes.close().await;
    }

    /// R029: the end of stderr is available after the exit.
    async fn stderr_tail_is_kept(kit) {
        let mut child = kit.start("echo 'no key' >&2; exit 3").await;
        let mut pipes = child.take_pipes().unwrap();
        let tail = StderrTail::new();
        let mut bytes = [0; 100];
        while let Ok(length @ 1..) = pipes.stderr.read(&mut bytes).await {
            tail.push(&bytes[..length]);
        }
        assert_eq!(tail.text(), "no key\n");
        assert_eq!(child.wait().await.to_string(), "exited with code 3");
    }

    async fn memory_includes_all_descendants(kit) {
        let (child, _pipes) =
            kit.ready("setsid sleep TOKEN & (setsid sleep TOKEN &); echo ready; exec cat").await;
        kit.count(3).await;
        let of = |pid: i32| {
            let sums = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            let line = sums.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap_or("0");
            line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
        };
        // Some processes may still be between fork and exec.
        until("the sum", || {
            let all: u64 = kit.alive().into_iter().map(of).sum();
            let memory = child.memory().unwrap();
            memory > of(pid(&child)) && memory.abs_diff(all) < all / 8
        })
        .await;
        child.end(Grace::NONE).await;
        assert_eq!(child.memory(), None);
    }
}

#[tokio::test]
async fn warden_that_cannot_run_is_reported() {
    for (program, wanted) in [("/no/such/warden", "could not be started"), ("false", "status: 1")] {
        let command = WardenCommand::new(program, Vec::<String>::new());
        let processes = Processes::wardened(command, Handle::current());
        let program = Program { command: "true".into(), ..Program::default() };
        for _ in 0..2 {
            let error = processes.start(&program).await.unwrap_err();
            assert!(matches!(error, StartError::WardenGone { .. }), "{error:?}");
            assert!(error.to_string().contains(wanted), "{error}");
        }
        processes.close().await;
    }
}
