//! Start of a process, the same in a warden and without one.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::{
    fs::{Access, access},
    io::Errno,
    process::Pid,
};

use super::{
    Program,
    error::{SpawnError, SpawnStep},
    mark::LINK,
    pipes::ChildPipes,
};

/// Search path for a program whose environment has no `PATH`, as in the C library.
const PATH: &str = "/bin:/usr/bin";

/// Starts `program` as the leader of its own group. Blocks until it runs.
pub(super) fn spawn(
    program: &Program,
    mark: &str,
    child_pipes: ChildPipes,
) -> Result<Pid, SpawnError> {
    if let Some(cwd) = &program.cwd {
        let folder = fs::metadata(cwd).map_err(|error| SpawnError::io(SpawnStep::Cwd, &error))?;
        if !folder.is_dir() {
            return Err(SpawnError::new(SpawnStep::Cwd, Errno::NOTDIR));
        }
        access(cwd, Access::EXEC_OK).map_err(|error| SpawnError::new(SpawnStep::Cwd, error))?;
    }
    let path = find(program).map_err(|error| SpawnError::new(SpawnStep::Program, error))?;
    let ChildPipes([stdin, stdout, stderr]) = child_pipes;
    let mut command = Command::new(path);
    command
        .arg0(&program.command)
        .args(&program.args)
        .env_clear()
        .envs(program.env.iter().map(|(name, value)| (name, value)))
        .env(LINK, mark)
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::from(stdout))
        .stderr(Stdio::from(stderr))
        .process_group(0);
    if let Some(cwd) = &program.cwd {
        command.current_dir(cwd);
    }
    let child = command.spawn().map_err(|error| SpawnError::io(SpawnStep::Program, &error))?;
    Ok(Pid::from_child(&child))
}

/// Returns the file to execute. The C library is not used for this search: where it can start a process fast it
/// would take our own `PATH`, and it could not say what was wrong.
fn find(program: &Program) -> Result<PathBuf, Errno> {
    if program.command.is_empty() {
        return Err(Errno::NOENT);
    }
    if program.command.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(&program.command));
    }
    let path = program.env.iter().rev().find(|(name, _)| name == "PATH");
    let path = path.map_or_else(|| OsString::from(PATH), |(_, path)| path.clone());
    let mut error = Errno::NOENT;
    for folder in std::env::split_paths(&path) {
        let file = in_folder(&folder, &program.command, program.cwd.as_deref());
        match runnable(&file) {
            Ok(()) => return Ok(file),
            // A file that may not be executed is a better error than the missing ones.
            Err(Errno::ACCESS) => error = Errno::ACCESS,
            Err(_) => {}
        }
    }
    Err(error)
}

/// Returns the path of `command` in a folder of the `PATH`. A relative folder counts from the program's working
/// directory.
fn in_folder(folder: &Path, command: &OsStr, cwd: Option<&Path>) -> PathBuf {
    match cwd {
        Some(cwd) if folder.is_relative() => cwd.join(folder).join(command),
        _ if folder.as_os_str().is_empty() => Path::new(".").join(command),
        _ => folder.join(command),
    }
}

fn runnable(file: &Path) -> Result<(), Errno> {
    let found = fs::metadata(file).map_err(|_| Errno::NOENT)?;
    if !found.is_file() {
        return Err(Errno::ACCESS);
    }
    access(file, Access::EXEC_OK)
}
