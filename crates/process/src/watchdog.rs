//! Shell that ends our children if this process dies.

use std::{
    io::{self, PipeWriter, pipe},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use super::mark::{LINK, Marks};

/// Script of the watchdog. It waits for the end of its input, which comes when this process is gone, then ends
/// all processes with one of our marks. It stops only after three searches in a row without a result: a child
/// that is just being started has no environment of its own yet. POSIX does not require `sleep` to take
/// fractions of a second, so where it does not, the script sleeps a whole second.
///
/// Its own environment has no mark, so it never finds itself.
const SCRIPT: &str = r#"
trap '' INT HUP QUIT TERM PIPE
while read -r _; do :; done
cd /proc || exit 1
nap() { sleep "$1" 2>/dev/null || sleep 1; }
send() {
    found=$(grep -l -a -s -F -e "$mark" [0-9]*/environ)
    for file in $found; do
        kill -s "$1" "${file%/environ}" 2>/dev/null
    done
}
mark=$1
send TERM
nap 0.3
round=0 calm=0
while [ "$round" -lt 60 ] && [ "$calm" -lt 3 ]; do
    send KILL
    if [ -n "$found" ]; then calm=0; else calm=$((calm + 1)); fi
    round=$((round + 1))
    nap 0.05
done
"#;

/// Watchdog of all local children of one [`Processes`](super::Processes).
#[derive(Debug)]
pub(super) struct Watchdog {
    shell: Child,
    /// Write end of the shell's input. Nothing is ever written; its closing is the message.
    _lifeline: PipeWriter,
}

impl Watchdog {
    pub(super) fn start(marks: &Marks) -> io::Result<Self> {
        // In its own session, signals of the terminal do not reach it. `setsid` forks if it leads a group, so
        // it must not lead one.
        let mut command = Command::new("setsid");
        command.arg("/bin/sh");
        match Self::run(command, marks) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut command = Command::new("/bin/sh");
                command.process_group(0);
                Self::run(command, marks)
            }
            started => started,
        }
    }

    fn run(mut command: Command, marks: &Marks) -> io::Result<Self> {
        let (their_end, lifeline) = pipe()?;
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        let shell = command
            .args(["-c", SCRIPT, "stayput-watchdog"])
            .arg(format!("{LINK}={}.", marks.prefix()))
            .env_clear()
            .env("PATH", path)
            .current_dir("/")
            .stdin(Stdio::from(their_end))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { shell, _lifeline: lifeline })
    }

    /// Returns whether the shell still runs.
    pub(super) fn lives(&mut self) -> bool {
        matches!(self.shell.try_wait(), Ok(None))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // Killed before it sees the end of its input: no child is left for it to search.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
