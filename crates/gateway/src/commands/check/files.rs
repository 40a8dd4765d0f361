//! Finds files that the processes of two sessions both write to.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Environment variable that marks all processes of one link.
const MARK: &[u8] = b"STAYPUT_LINK=";

/// Returns the files that are open for writing in processes of both links, given by the pids of their servers. Empty if
/// the system has no `/proc`.
pub(super) fn written_by_both(first: u32, second: u32) -> Vec<PathBuf> {
    let (first, second) = (written(first), written(second));
    first.intersection(&second).cloned().collect()
}

/// Returns the files that a process and all other processes of its link have open for writing.
fn written(pid: u32) -> BTreeSet<PathBuf> {
    let own = PathBuf::from(format!("/proc/{pid}"));
    let Some(mark) = mark(&own) else { return opened(&own) };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files = opened(&own);
    for process in all.filter(|process| self::mark(process).is_some_and(|it| it == mark)) {
        files.extend(opened(&process));
    }
    files
}

/// Returns the link that a process belongs to.
fn mark(process: &Path) -> Option<Vec<u8>> {
    let environment = fs::read(process.join("environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    variables.find_map(|it| it.strip_prefix(MARK)).map(<[u8]>::to_vec)
}

/// Returns the files that one process has open for writing.
fn opened(process: &Path) -> BTreeSet<PathBuf> {
    let numbers = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let writes = numbers.filter(|number| {
        let info = process.join("fdinfo").join(number.file_name());
        fs::read_to_string(info).is_ok_and(|info| is_written(&info))
    });
    let files = writes.filter_map(|number| fs::read_link(number.path()).ok());
    files.filter(|file| is_kept(file)).collect()
}

/// Whether a file is open for writing: the last two bits of its flags, which are octal.
fn is_written(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & 0o3 != 0)
}

/// Whether the file stays after its process has ended. Pipes, devices and deleted files do not.
fn is_kept(file: &Path) -> bool {
    let elsewhere = ["/dev", "/proc", "/sys"].iter().any(|folder| file.starts_with(folder));
    !elsewhere && file.is_absolute() && file.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_open_for_writing_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let (file, read) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&read, "x").unwrap();
        let _open = (fs::File::create(&file).unwrap(), fs::File::open(&read).unwrap());
        let me = std::process::id();
        let both = written_by_both(me, me);
        assert!(both.contains(&file) && !both.contains(&read), "{both:?}");
        assert!(written_by_both(me, u32::MAX).is_empty());
    }
}
