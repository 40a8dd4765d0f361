//! Demo server over the standard input and output.

use stayput_wire::LineSplitter;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{
    MESSAGE_LIMIT,
    answer::{Peer, too_long},
    error::DemoError,
};

/// Answers line by line until the input ends or the output is closed.
pub(super) async fn serve(
    mut input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> Result<(), DemoError> {
    let mut lines = LineSplitter::new(MESSAGE_LIMIT);
    let mut peer = Peer::default();
    let mut buffer = vec![0; 16 << 10];
    loop {
        let mut answers = Vec::new();
        let length = input.read(&mut buffer).await.map_err(DemoError::Input)?;
        let mut chunk = &buffer[..length];
        while let Some(line) = lines.next_line(&mut chunk) {
            let answer = match line {
                Ok(line) => peer.answer(&line),
                Err(error) => Some(too_long(&error.to_string())),
            };
            push(&mut answers, answer);
        }
        if length == 0
            && let Some(last) = lines.finish()
        {
            push(&mut answers, peer.answer(&last));
        }
        if output.write_all(&answers).await.is_err() || output.flush().await.is_err() {
            return Ok(());
        }
        if length == 0 {
            return Ok(());
        }
    }
}

fn push(answers: &mut Vec<u8>, answer: Option<String>) {
    if let Some(answer) = answer {
        answers.extend_from_slice(answer.as_bytes());
        answers.push(b'\n');
    }
}
