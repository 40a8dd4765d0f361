//! A client at the standard input and output of `stayput stdio`.

use std::process::Stdio;

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::{
    support::LONG,
    transcript::{Kind, Transcript},
};

/// A running `stayput stdio`; killed when dropped.
pub(crate) struct Process {
    transcript: Transcript,
    block: usize,
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    pub(crate) fn start(transcript: &Transcript, mut command: Command) -> Self {
        let block = transcript.begin("standard input and output");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { transcript: transcript.clone(), block, child, input, output }
    }

    pub(crate) async fn write(&mut self, text: &str) {
        self.transcript.add(self.block, ">", Kind::Sent, text);
        let line = format!("{text}\n");
        self.input.as_mut().unwrap().write_all(line.as_bytes()).await.unwrap();
    }

    pub(crate) async fn read(&mut self) -> String {
        let line = timeout(LONG, self.output.next_line()).await.expect("a line in time");
        let line = line.unwrap().expect("the process runs");
        self.transcript.add(self.block, "<", Kind::Received, &line);
        line
    }

    /// Ends its input; records what it still writes and how it ends.
    pub(crate) async fn close(&mut self) {
        drop(self.input.take());
        self.transcript.plain(self.block, ">", "(end of input)");
        // A call in flight gets 30 s for its answer, before it is cancelled.
        while let Some(line) = timeout(2 * LONG, self.output.next_line()).await.unwrap().unwrap() {
            self.transcript.add(self.block, "<", Kind::Received, &line);
        }
        let status = timeout(LONG, self.child.wait()).await.expect("it ends in time").unwrap();
        self.transcript.plain(self.block, "<", &format!("({status})"));
    }
}
