//! The shell that ends our children if we die.

use std::{
    io::{self, PipeWriter, pipe},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use super::mark::{LINK, Marks};

/// Waits for the end of its input, which comes when we are gone, then ends all that carries a mark of
/// ours. It looks a second time before it believes that nothing is there: a child that is just being
/// started has no environment of its own yet. Fractions of a second are no matter for POSIX, so where
/// they are not known, a whole one has to do.
///
/// Its own environment is empty, so it never finds itself.
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

/// One of them watches over all local children of one [`Processes`](super::Processes).
#[derive(Debug)]
pub(super) struct Watchdog {
    shell: Child,
    /// Nobody writes to it. That nobody has it any more is the message.
    _lifeline: PipeWriter,
}

impl Watchdog {
    pub(super) fn start(marks: &Marks) -> io::Result<Self> {
        // In a session of its own it is out of reach for the terminal. The program forks if it leads a
        // group, so it must not.
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

    /// Whether it still watches.
    pub(super) fn lives(&mut self) -> bool {
        matches!(self.shell.try_wait(), Ok(None))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // Killed before it sees the end of its input: there is nothing left for it to look for.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
