//! Stream of the messages that an HTTP server sends outside any call.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use http::StatusCode;
use stayput_wire::header;
use tokio::time::sleep;

use super::{Streamable, drive, events::Events};
use crate::{
    link::{Core, MessageSource},
    loss::session_unknown::{self, ErrorMeaning},
    util::backoff::Backoff,
};

/// Reads the stream until the last listener is gone, which aborts this task, or the server offers no stream.
pub(super) async fn listen(core: Weak<Core>) {
    let Some(core) = core.upgrade() else { return };
    let Some(http) = drive::streamable(&core) else { return };
    let mut events = Events::new(http.wire.limit);
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
    while !core.over.is_raised() {
        match read_stream(http, &core, &mut events).await {
            StreamEnd::Something => backoff.reset(),
            StreamEnd::Nothing => {}
            StreamEnd::Never => return,
        }
        sleep(events.retry().unwrap_or_default().max(backoff.next())).await;
    }
}

/// Result of one connection to the stream.
enum StreamEnd {
    /// Events came before the stream ended.
    Something,
    /// No event came.
    Nothing,
    /// The server sends nothing outside of calls.
    Never,
}

/// Returns whether another attempt can succeed. A server that still counts the previous stream answers 409.
fn is_retryable(status: StatusCode) -> bool {
    match status {
        StatusCode::CONFLICT | StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::NOT_IMPLEMENTED => false,
        other => other.is_server_error(),
    }
}

async fn read_stream(http: &Streamable, core: &Arc<Core>, events: &mut Events) -> StreamEnd {
    events.begin();
    let opened = http.open_stream(core, events.resume_from()).await;
    let Ok(response) = opened else { return StreamEnd::Nothing };
    let status = response.status;
    if !status.is_success() {
        let body = response.body.collect(session_unknown::MAX_ERROR_BODY).await.unwrap_or_default();
        let gone = session_unknown::of_status(status.as_u16(), &body, http.session().is_some());
        if gone == ErrorMeaning::SessionGone {
            core.end_unknown_session(&http.describe_error(status, &body));
        }
        return if is_retryable(status) { StreamEnd::Nothing } else { StreamEnd::Never };
    }
    if !drive::is(&response.headers, header::EVENT_STREAM) {
        return StreamEnd::Never;
    }
    let (mut body, mut outcome) = (response.body, StreamEnd::Nothing);
    while let Ok(Some(chunk)) = body.chunk().await {
        let mut rest = &chunk[..];
        while let Some(event) = events.next_event(&mut rest) {
            outcome = StreamEnd::Something;
            if let Ok(event) = event
                && !event.data().is_empty()
            {
                core.receive(event.data(), MessageSource::Link);
            }
        }
    }
    outcome
}
