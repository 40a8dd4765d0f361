//! Frames that a Stayput process and its warden exchange.
//!
//! A frame is its length in four bytes, then a letter, then fields in a fixed order. Numbers are little endian;
//! a byte string is preceded by its length. Both ends are the same program.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

use super::{
    ExitStatus, Program,
    error::{SpawnError, SpawnStep},
};

/// Largest frame in bytes. No larger one is built: the system starts no program with that much environment.
pub(super) const FRAME_LIMIT: usize = 32 * 1024 * 1024;

/// Request to the warden.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Starts this program. The three pipe ends of the child come with the first byte.
    Start { number: u64, mark: String, program: Program },
    /// Sends a signal to the group of that child.
    Signal { number: u64, signal: i32 },
    /// Kills the group, reaps the leader, kills the leftovers.
    Reap { number: u64 },
}

/// Answer of the warden.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Started { number: u64, pid: i32 },
    Failed { number: u64, refused: SpawnError },
    Exited { number: u64, exited: ExitStatus },
    ReapResult { number: u64, leftovers: u64 },
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut frame = Writer::new();
        match self {
            Self::Start { number, mark, program } => {
                frame.byte(b's').number(*number).bytes(mark.as_bytes()).program(program);
            }
            Self::Signal { number, signal } => {
                frame.byte(b'k').number(*number).small(*signal);
            }
            Self::Reap { number } => {
                frame.byte(b'r').number(*number);
            }
        }
        frame.end()
    }

    pub(super) fn decode(frame: &[u8]) -> Option<Self> {
        let mut frame = Reader(frame);
        Some(match frame.byte()? {
            b's' => Self::Start {
                number: frame.number()?,
                mark: String::from_utf8(frame.bytes()?.to_vec()).ok()?,
                program: frame.program()?,
            },
            b'k' => Self::Signal { number: frame.number()?, signal: frame.small()? },
            b'r' => Self::Reap { number: frame.number()? },
            _ => return None,
        })
    }
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut frame = Writer::new();
        match *self {
            Self::Started { number, pid } => frame.byte(b'S').number(number).small(pid),
            Self::Failed { number, refused } => {
                let step = match refused.at {
                    SpawnStep::Pipes => b'p',
                    SpawnStep::Cwd => b'c',
                    SpawnStep::Program => b'x',
                };
                frame.byte(b'F').number(number).byte(step).small(refused.errno)
            }
            Self::Exited { number, exited } => {
                let (kind, value) = match exited {
                    ExitStatus::Code(code) => (b'c', code),
                    ExitStatus::Signal(signal) => (b's', signal),
                    ExitStatus::Unknown => (b'u', 0),
                };
                frame.byte(b'E').number(number).byte(kind).small(value)
            }
            Self::ReapResult { number, leftovers } => {
                frame.byte(b'R').number(number).number(leftovers)
            }
        };
        frame.end()
    }

    pub(super) fn decode(frame: &[u8]) -> Option<Self> {
        let mut frame = Reader(frame);
        let (letter, number) = (frame.byte()?, frame.number()?);
        Some(match letter {
            b'S' => Self::Started { number, pid: frame.small()? },
            b'F' => {
                let at = match frame.byte()? {
                    b'p' => SpawnStep::Pipes,
                    b'c' => SpawnStep::Cwd,
                    _ => SpawnStep::Program,
                };
                Self::Failed { number, refused: SpawnError { at, errno: frame.small()? } }
            }
            b'E' => {
                let (kind, value) = (frame.byte()?, frame.small()?);
                let exited = match kind {
                    b'c' => ExitStatus::Code(value),
                    b's' => ExitStatus::Signal(value),
                    _ => ExitStatus::Unknown,
                };
                Self::Exited { number, exited }
            }
            b'R' => Self::ReapResult { number, leftovers: frame.number()? },
            _ => return None,
        })
    }
}

/// Splits the bytes of a socket into frames.
#[derive(Debug, Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete frame.
    ///
    /// # Errors
    /// If the bytes are not a frame. The bytes after it cannot be decoded either.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, NotAFrame> {
        let Some(length) = self.bytes.first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| NotAFrame)?;
        if length > FRAME_LIMIT {
            return Err(NotAFrame);
        }
        if self.bytes.len() < 4 + length {
            return Ok(None);
        }
        let rest = self.bytes.split_off(4 + length);
        let mut frame = std::mem::replace(&mut self.bytes, rest);
        frame.drain(..4);
        Ok(Some(frame))
    }
}

/// Error of [`Frames::next`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotAFrame;

struct Writer(Vec<u8>);

impl Writer {
    fn new() -> Self {
        Self(vec![0; 4])
    }

    fn byte(&mut self, byte: u8) -> &mut Self {
        self.0.push(byte);
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn small(&mut self, number: i32) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(bytes.len().try_into().unwrap_or(u64::MAX));
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(&mut self, text: &OsStr) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    fn program(&mut self, program: &Program) -> &mut Self {
        self.text(&program.command);
        self.number(program.args.len().try_into().unwrap_or(u64::MAX));
        for arg in &program.args {
            self.text(arg);
        }
        self.number(program.env.len().try_into().unwrap_or(u64::MAX));
        for (name, value) in &program.env {
            self.text(name).text(value);
        }
        match &program.cwd {
            Some(cwd) => self.byte(1).text(cwd.as_os_str()),
            None => self.byte(0),
        }
    }

    /// Writes the length into the frame. A frame over the limit is never sent, so a length that does not fit
    /// does not matter.
    fn end(&mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len() - 4).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&length.to_le_bytes());
        std::mem::take(&mut self.0)
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        self.0.split_off_first().copied()
    }

    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn small(&mut self) -> Option<i32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i32::from_le_bytes(*number))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.0.split_off(..length)
    }

    fn text(&mut self) -> Option<OsString> {
        Some(OsString::from_vec(self.bytes()?.to_vec()))
    }

    fn program(&mut self) -> Option<Program> {
        let command = self.text()?;
        let args = (0..self.number()?).map(|_| self.text()).collect::<Option<_>>()?;
        let env = (0..self.number()?).map(|_| Some((self.text()?, self.text()?)));
        let env = env.collect::<Option<_>>()?;
        let cwd = if self.byte()? == 0 { None } else { Some(PathBuf::from(self.text()?)) };
        Some(Program { command, args, env, cwd })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(frame: &[u8]) -> Vec<u8> {
        let mut frames = Frames::default();
        for byte in &frame[..frame.len() - 1] {
            frames.push(&[*byte]);
            assert_eq!(frames.next(), Ok(None));
        }
        frames.push(&frame[frame.len() - 1..]);
        let whole = frames.next().unwrap().unwrap();
        assert_eq!(frames.next(), Ok(None));
        whole
    }

    #[test]
    fn answers_survive_encoding_and_decoding() {
        let refused = SpawnError { at: SpawnStep::Cwd, errno: 2 };
        for answer in [
            Answer::Started { number: 1, pid: 77 },
            Answer::Failed { number: 2, refused },
            Answer::Exited { number: 3, exited: ExitStatus::Code(-1) },
            Answer::Exited { number: 3, exited: ExitStatus::Signal(9) },
            Answer::Exited { number: 3, exited: ExitStatus::Unknown },
            Answer::ReapResult { number: u64::MAX, leftovers: 4 },
        ] {
            assert_eq!(Answer::decode(&one(&answer.encode())), Some(answer));
        }
    }

    #[test]
    fn requests_survive_encoding_and_decoding() {
        let program = Program {
            command: OsString::from_vec(b"a\xff".to_vec()),
            args: vec!["".into(), "b c".into()],
            env: vec![("N".into(), "".into()), ("M".into(), "\n".into())],
            cwd: Some("/tmp".into()),
        };
        let bare = Program { command: "x".into(), ..Program::default() };
        for request in [
            Request::Start { number: 1, mark: "m".into(), program },
            Request::Start { number: 1, mark: String::new(), program: bare },
            Request::Signal { number: 2, signal: 15 },
            Request::Reap { number: 3 },
        ] {
            assert_eq!(Request::decode(&one(&request.encode())), Some(request));
        }
    }

    #[test]
    fn frame_over_the_limit_is_refused() {
        let mut frames = Frames::default();
        frames.push(&u32::MAX.to_le_bytes());
        assert_eq!(frames.next(), Err(NotAFrame));
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_without_panic(bytes: Vec<u8>) {
            let _ = Request::decode(&bytes);
            let _ = Answer::decode(&bytes);
        }
    }
}
