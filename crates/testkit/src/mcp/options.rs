//! Command line of the test server.

use std::path::PathBuf;

use stayput_wire::Version;

/// Usage text of `stayput-testserver`.
pub const USAGE: &str = "\
stayput-testserver stdio [OPTIONS]   speak over standard input and output
stayput-testserver http  [OPTIONS]   Streamable HTTP; prints its URL when it listens
stayput-testserver sse   [OPTIONS]   HTTP+SSE of 2024-11-05; prints its URL when it listens
stayput-testserver relay --port N    standard input and output are those of a TCP connection to a test

  --era legacy|modern|dual   what it speaks (dual)
  --revision DATE            the newest legacy revision it speaks (2025-11-25)
  --lock-era                 dual: the first request decides the era for good
  --page N                   lists come in pages of N
  --tool NAME                one more tool, which says its name; may be repeated
  --wordy BYTES              every tool is described at such length
  --mark TEXT                means nothing; tests find the process by it
  --log FILE                 append every message that comes in, a line each
  --starts FILE              append the process id once
  --quirk ask-anyway         legacy: ask the client also what it did not declare
  --startup-ms N             wait before anything else
  --memory-mb N              hold so much memory
  --daemonize                start a process that leaves the group and the session, and sleeps

http and sse:
  --port N                   listen there (any free port)
  --json | --sse             answer always so (SSE for tools/call, JSON for the rest)
  --stateless                legacy without sessions: every request starts from nothing
  --retry-ms N               what `retry` says (100)
  --script JSON              what goes wrong, see POST /script
  --quirk NAME               close-stream, no-event-ids, no-get, no-delete, many-gets
  --exit-with-stdin          end when standard input ends

stdio:
  --silent                   never answer
  --invalid-lines            lines that are no JSON, before and between messages
  --long-line BYTES          one line of that size before the first answer
  --exit-at-once CODE        end at once
  --ignore-eof               do not end when standard input ends
  --ignore-term              do not end at TERM
  --stderr-flood             much on standard error, at the start and with every message
";

/// Mode of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// One client over stdio.
    #[default]
    Stdio,
    /// Streamable HTTP.
    Http,
    /// HTTP+SSE of 2024-11-05.
    Sse,
    /// No server: the test at the other end of a TCP connection is the server.
    Relay,
}

/// Supported eras.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Eras {
    /// Only `initialize` and sessions.
    Legacy,
    /// Neither `initialize` nor sessions.
    Modern,
    /// The era of the client.
    #[default]
    Dual,
}

/// Form of answers over HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Answers {
    /// Tool calls as a stream, everything else as JSON.
    #[default]
    Mixed,
    /// JSON only; other messages go to the GET stream, or are dropped.
    Json,
    /// Always a stream.
    Sse,
}

/// Unusual behaviour that clients have to handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quirk {
    /// Closes the stream of a call after its first event: the client has to resume by GET.
    CloseStream,
    /// Events have no ids, so no stream can be resumed.
    NoEventIds,
    /// Answers GET with 405.
    NoGet,
    /// Answers DELETE with 405.
    NoDelete,
    /// A second GET stream replaces the first; without this it is refused with 409.
    ManyGets,
    /// Sends requests for which the client declared no capability.
    AskAnyway,
}

/// Faults of a stdio server.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    pub(super) silent: bool,
    pub(super) invalid_lines: bool,
    pub(super) long_line: usize,
    pub(super) exit_at_once: Option<i32>,
    pub(super) ignore_eof: bool,
    pub(super) ignore_term: bool,
    pub(super) stderr_flood: bool,
}

/// Parsed command line.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(super) mode: Mode,
    pub(super) eras: Eras,
    pub(super) revision: Option<Version>,
    pub(super) lock_era: bool,
    pub(super) page: Option<usize>,
    pub(super) tools: Vec<String>,
    pub(super) wordy: usize,
    pub(super) log: Option<PathBuf>,
    pub(super) starts: Option<PathBuf>,
    pub(super) startup_ms: u64,
    pub(super) memory_mb: usize,
    pub(super) daemonize: bool,
    pub(super) port: u16,
    pub(super) answers: Answers,
    pub(super) stateless: bool,
    pub(super) retry_ms: Option<u64>,
    pub(super) script: Option<String>,
    pub(super) quirks: Vec<Quirk>,
    pub(super) exit_with_stdin: bool,
    pub(super) faults: Faults,
}

impl Options {
    /// Parses the arguments after the name of the program.
    ///
    /// # Errors
    /// A message about an argument that is not in [`USAGE`].
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut arguments = arguments.into_iter();
        let mode = match arguments.next().as_deref() {
            Some("stdio") => Mode::Stdio,
            Some("http") => Mode::Http,
            Some("sse") => Mode::Sse,
            Some("relay") => Mode::Relay,
            other => {
                return Err(format!("the first word is stdio, http, sse or relay, not {other:?}"));
            }
        };
        let mut options = Self { mode, ..Self::default() };
        while let Some(name) = arguments.next() {
            if !options.set_switch(&name) && !options.set_fault(&name) {
                let value = arguments.next().ok_or(format!("{name} is unknown or has no value"))?;
                options.set_value(&name, value)?;
            }
        }
        Ok(options)
    }

    fn set_switch(&mut self, name: &str) -> bool {
        match name {
            "--lock-era" => self.lock_era = true,
            "--daemonize" => self.daemonize = true,
            "--json" => self.answers = Answers::Json,
            "--sse" => self.answers = Answers::Sse,
            "--stateless" => self.stateless = true,
            "--exit-with-stdin" => self.exit_with_stdin = true,
            _ => return false,
        }
        true
    }

    fn set_fault(&mut self, name: &str) -> bool {
        match name {
            "--silent" => self.faults.silent = true,
            "--invalid-lines" => self.faults.invalid_lines = true,
            "--ignore-eof" => self.faults.ignore_eof = true,
            "--ignore-term" => self.faults.ignore_term = true,
            "--stderr-flood" => self.faults.stderr_flood = true,
            _ => return false,
        }
        true
    }

    fn set_value(&mut self, name: &str, value: String) -> Result<(), String> {
        let wrong = || format!("{name} does not take `{value}`");
        match name {
            "--era" => self.eras = eras(&value).ok_or_else(wrong)?,
            "--revision" => self.revision = Some(Version::from(value.as_str())),
            "--quirk" => self.quirks.push(quirk(&value).ok_or_else(wrong)?),
            "--tool" => self.tools.push(value),
            "--wordy" => self.wordy = value.parse().map_err(|_| wrong())?,
            "--page" => self.page = Some(value.parse().map_err(|_| wrong())?),
            "--port" => self.port = value.parse().map_err(|_| wrong())?,
            "--startup-ms" => self.startup_ms = value.parse().map_err(|_| wrong())?,
            "--memory-mb" => self.memory_mb = value.parse().map_err(|_| wrong())?,
            "--retry-ms" => self.retry_ms = Some(value.parse().map_err(|_| wrong())?),
            "--long-line" => self.faults.long_line = value.parse().map_err(|_| wrong())?,
            "--exit-at-once" => {
                self.faults.exit_at_once = Some(value.parse().map_err(|_| wrong())?);
            }
            "--log" => self.log = Some(value.into()),
            "--starts" => self.starts = Some(value.into()),
            "--script" => self.script = Some(value),
            "--mark" => {}
            _ => return Err(format!("{name} is unknown")),
        }
        Ok(())
    }

    pub(super) fn has(&self, quirk: Quirk) -> bool {
        self.quirks.contains(&quirk)
    }

    /// Returns the supported legacy revisions, the oldest first.
    pub(super) fn legacy_versions(&self) -> impl Iterator<Item = Version> {
        let newest = self.revision.clone().unwrap_or(Version::LATEST_LEGACY);
        Version::KNOWN.into_iter().filter(move |version| *version <= newest)
    }
}

fn eras(name: &str) -> Option<Eras> {
    match name {
        "legacy" => Some(Eras::Legacy),
        "modern" => Some(Eras::Modern),
        "dual" => Some(Eras::Dual),
        _ => None,
    }
}

fn quirk(name: &str) -> Option<Quirk> {
    match name {
        "close-stream" => Some(Quirk::CloseStream),
        "no-event-ids" => Some(Quirk::NoEventIds),
        "no-get" => Some(Quirk::NoGet),
        "no-delete" => Some(Quirk::NoDelete),
        "many-gets" => Some(Quirk::ManyGets),
        "ask-anyway" => Some(Quirk::AskAnyway),
        _ => None,
    }
}
