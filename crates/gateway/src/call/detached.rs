//! Call of a legacy client that goes on in its own task, whether or not its client reads the answer.

use std::sync::Arc;

use stayput_upstream::Incoming;
use tracing::Instrument as _;

use super::follow::RunningCall;
use crate::connections::{
    connection::Connection,
    deliver::{SourceLink, deliver, new_stream},
    event_stream::EventStream,
};

/// Continues a call in its own task, which writes to a stream of the connection. `keep` stores the stream for a resume.
pub(super) fn detach(
    running: RunningCall,
    connection: Arc<Connection>,
    first: Option<Incoming>,
    keep: bool,
) -> Arc<EventStream> {
    let server = running.client_call.owner.server.shared_name();
    let line = connection.only_stream().cloned();
    let stream = line.unwrap_or_else(|| new_stream(&connection, Some(server), keep));
    let task = DetachedCall { running, connection, stream: stream.clone() };
    tokio::runtime::Handle::current().spawn(task.run(first).in_current_span());
    stream
}

struct DetachedCall {
    running: RunningCall,
    connection: Arc<Connection>,
    stream: Arc<EventStream>,
}

impl DetachedCall {
    async fn run(mut self, first: Option<Incoming>) {
        let mut next = first;
        let mut questions = Vec::new();
        loop {
            let incoming = match next.take() {
                Some(first) => Some(first),
                None => self.running.call.next().await,
            };
            let end = match incoming {
                Some(Incoming::Answer(end)) => end,
                Some(incoming) => {
                    self.stream.room().await;
                    let over = SourceLink::link(&self.running.client_call.link);
                    let ids = &self.running.client_call.owner.app.question_ids;
                    questions.extend(deliver(&self.connection, ids, over, &self.stream, incoming));
                    continue;
                }
                None => break,
            };
            if self.running.retry(&end).await {
                continue;
            }
            if let Some(done) = self.running.client_call.ended(end) {
                self.stream.room().await;
                self.stream.push_then(done.text, done.then);
            }
            break;
        }
        // The only stream of a connection stays open after a call.
        if self.connection.only_stream().is_none() {
            self.stream.end();
            self.connection.streams.tidy();
            self.running.client_call.owner.app.stream_cache.put(&self.stream);
        }
        // Removes the server requests of this call. The server no longer waits for answers to them.
        for number in questions {
            drop(self.connection.take_server_request(number));
        }
    }
}
