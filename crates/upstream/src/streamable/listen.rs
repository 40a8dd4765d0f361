//! The stream of what an HTTP server says outside any call.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method};
use stayput_wire::{header, sse::Decoder};
use tokio::time::sleep;

use super::{Ask, LAST_EVENT_ID, Streamable, drive, told};
use crate::{
    backoff::Backoff,
    link::{Core, Via},
    verdict::{self, Verdict},
};

/// Listens until nobody wants to hear any more, which aborts it, or the server has nothing to say.
pub(super) async fn listen(core: Weak<Core>) {
    let Some(core) = core.upgrade() else { return };
    let Some(http) = drive::streamable(&core) else { return };
    let mut events = Decoder::new(http.wire.limit);
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
    while !core.over.is_raised() {
        match hear(http, &core, &mut events).await {
            Heard::Something => backoff.reset(),
            Heard::Nothing => {}
            Heard::Never => return,
        }
        sleep(events.retry().unwrap_or_default().max(backoff.next())).await;
    }
}

/// What became of one attempt to listen.
enum Heard {
    /// Events came before the stream ended.
    Something,
    /// None came.
    Nothing,
    /// The server does not speak outside of calls.
    Never,
}

async fn hear(http: &Streamable, core: &Arc<Core>, events: &mut Decoder) -> Heard {
    let mut headers = http.headers(core, None);
    headers.push((http::header::ACCEPT, HeaderValue::from_static(header::EVENT_STREAM)));
    let last = events.last_id().and_then(|last| HeaderValue::from_str(last).ok());
    headers.extend(last.map(|last| (LAST_EVENT_ID, last)));
    let target = &http.wire.target;
    let ask = Ask { method: Method::GET, target, headers, body: Bytes::new() };
    let Ok(response) = http.wire.send(&ask).await else { return Heard::Nothing };
    let status = response.status;
    if !status.is_success() {
        let body = response.body.collect(verdict::LOOKED_AT).await.unwrap_or_default();
        let gone = verdict::of_status(status.as_u16(), &body, http.session().is_some());
        if gone == Verdict::SessionGone {
            core.condemn(&told(status, &body));
        }
        return if status.is_server_error() { Heard::Nothing } else { Heard::Never };
    }
    if !drive::is(&response.headers, header::EVENT_STREAM) {
        return Heard::Never;
    }
    let (mut body, mut heard) = (response.body, Heard::Nothing);
    while let Ok(Some(chunk)) = body.chunk().await {
        let mut rest = &chunk[..];
        while let Some(event) = events.next_event(&mut rest) {
            heard = Heard::Something;
            if let Ok(event) = event
                && !event.data().is_empty()
            {
                core.receive(event.data(), Via::Link);
            }
        }
    }
    heard
}
