//! HTTP+SSE link, the transport of 2024-11-05: messages are posted, and everything the server sends comes on
//! one stream. When the stream ends, the session is gone and cannot be resumed.

use std::{fmt, future::pending, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method};
use stayput_http::{Body, Target};
use stayput_sync::Mutex;
use stayput_wire::{
    header,
    sse::{Decoder, ENDPOINT},
};
use tokio::{
    sync::Notify,
    task::{AbortHandle, unconstrained},
    time::sleep_until,
};

use crate::{
    CallError, Delivery, Loss, LossReason,
    link::{
        Core, LinkTransport, MessageSource, PendingCall,
        transport::{
            posting::PostingPermit,
            streamable::{
                LinkRoute, PATH_HINT, RequestParts, of_http, session_unknown_grace, unauthorized,
            },
        },
    },
    loss::session_unknown,
};

/// Sending side of HTTP+SSE.
pub(crate) struct Sse {
    wire: LinkRoute,
    /// URL that messages are posted to, named by the server on the stream.
    endpoint: Target,
    /// Task that reads the stream.
    listen_task: Mutex<Option<AbortHandle>>,
    rearm: Notify,
}

/// Stream of a session that was just opened.
pub(crate) struct Stream {
    body: Body,
    events: Decoder,
}

/// Opens the stream and waits for the `endpoint` event, which names the URL for messages.
pub(crate) async fn connect(wire: LinkRoute) -> Result<(Sse, Stream), CallError> {
    let accept = (http::header::ACCEPT, HeaderValue::from_static(header::EVENT_STREAM));
    let ask = RequestParts {
        method: Method::GET,
        target: &wire.target,
        headers: vec![accept],
        body: Bytes::new(),
        // The stream is the session: it stays open while there are no calls.
        idle: Some(Duration::MAX),
        watched: Duration::MAX,
    };
    let response = wire.send(&ask).await?;
    if !response.status.is_success() {
        let status = response.status.as_u16();
        if matches!(status, 401 | 403) {
            return Err(unauthorized(response.status, &response.headers));
        }
        let what = format!(
            "the server answered with HTTP status {status} instead of a stream; {PATH_HINT}"
        );
        return Err(CallError::failed(what, Delivery::Refused));
    }
    let (mut body, mut events) = (response.body, Decoder::new(wire.limit));
    loop {
        let Some(chunk) = body.chunk().await.map_err(|error| of_http(&error))? else {
            let what = "the server's stream ended before it said where messages go";
            return Err(CallError::failed(what, Delivery::Refused));
        };
        let mut rest = &chunk[..];
        while let Some(event) = events.next_event(&mut rest) {
            let Ok(event) = event else { continue };
            if event.name() == ENDPOINT {
                let endpoint = endpoint(&wire.target, event.data())?;
                let sse =
                    Sse { wire, endpoint, listen_task: Mutex::default(), rearm: Notify::new() };
                return Ok((sse, Stream { body, events }));
            }
        }
    }
}

/// Resolves the URL for messages. They go only to the origin that was configured, whatever the stream says.
fn endpoint(base: &Target, said: &[u8]) -> Result<Target, CallError> {
    let said = String::from_utf8_lossy(said);
    let endpoint = base.join(said.trim());
    let endpoint = endpoint.map_err(|error| CallError::failed(error, Delivery::Refused))?;
    if endpoint.origin() != base.origin() {
        let what = "the server wants messages to go to another server; configure that one instead";
        return Err(CallError::failed(what, Delivery::Refused));
    }
    Ok(endpoint)
}

impl Sse {
    /// Reads the stream in its own task until it ends.
    pub(crate) fn start(core: &Arc<Core>, stream: Stream) {
        let LinkTransport::Sse(sse) = &core.transport else { return };
        let task = core.runtime().spawn(read_stream(core.clone(), stream));
        *sse.listen_task.lock() = Some(task.abort_handle());
    }

    pub(crate) fn request(&self, core: &Arc<Core>, pending_call: &Arc<PendingCall>, text: Bytes) {
        let (task, number) = (core.clone(), pending_call.number);
        let posting = core.runtime().spawn(async move {
            let LinkTransport::Sse(sse) = &task.transport else { return };
            if let Err(error) = sse.post(&task, text).await {
                task.fail(number, error);
            }
        });
        core.driven(pending_call, posting.abort_handle());
    }

    pub(crate) fn message(&self, core: &Arc<Core>, text: Bytes) {
        if core.over.is_raised() {
            return;
        }
        let Some(permit) = PostingPermit::acquire(core) else { return };
        core.runtime().clone().spawn(async move {
            let core = permit.core();
            let LinkTransport::Sse(sse) = &core.transport else { return };
            let _ = sse.post(core, text).await;
        });
    }

    /// Posts a message and waits until the server has it.
    pub(crate) async fn post(&self, core: &Arc<Core>, text: Bytes) -> Result<(), CallError> {
        let json = (http::header::CONTENT_TYPE, HeaderValue::from_static(header::JSON));
        let ask = RequestParts {
            method: Method::POST,
            target: &self.endpoint,
            headers: vec![json],
            body: text.slice(..text.len().saturating_sub(1)),
            idle: None,
            watched: Duration::MAX,
        };
        let response = self.wire.send(&ask).await?;
        let (status, headers) = (response.status, response.headers);
        let body = response.body.collect(session_unknown::MAX_ERROR_BODY).await.unwrap_or_default();
        if status.is_success() {
            return Ok(());
        }
        match session_unknown::of_status(status.as_u16(), &body, true) {
            session_unknown::ErrorMeaning::SessionGone => {
                let loss = core.end_unknown_session(&format!("HTTP status {}", status.as_u16()));
                Err(CallError::Lost { loss, delivery: Delivery::Refused })
            }
            session_unknown::ErrorMeaning::Unauthorized => Err(unauthorized(status, &headers)),
            _ => {
                let what = format!("the server answered with HTTP status {}", status.as_u16());
                let delivery =
                    if status.is_client_error() { Delivery::Refused } else { Delivery::Unknown };
                Err(CallError::failed(what, delivery))
            }
        }
    }

    pub(crate) fn rearm(&self) {
        self.rearm.notify_one();
    }

    pub(crate) fn begin_close(&self, core: &Arc<Core>, reason: LossReason) {
        let open = core.close(Loss::new(reason, ""), &|_| false);
        // If the server has dropped the session, the reader waits for the responses to the other calls and ends
        // by itself.
        if open {
            if let Some(listen_task) = self.listen_task.lock().take() {
                listen_task.abort();
            }
            core.release_permit();
        }
    }
}

/// Reads the stream. The link ends with it.
async fn read_stream(core: Arc<Core>, mut stream: Stream) {
    let LinkTransport::Sse(sse) = &core.transport else { return };
    let on_session_unknown = session_unknown_grace(&core);
    tokio::pin!(on_session_unknown);
    loop {
        let armed = core.pending.lock().armed();
        let timer = async {
            match armed {
                Some(armed) => sleep_until(armed).await,
                None => pending().await,
            }
        };
        tokio::select! {
            chunk = stream.body.chunk() => match chunk {
                Ok(Some(chunk)) => receive_bytes(&core, &mut stream.events, &chunk),
                Ok(None) | Err(_) => break,
            },
            // A server that never stops sending uses up the task's budget, which must not stop the timer.
            () = unconstrained(timer) => core.expire(),
            () = sse.rearm.notified() => {}
            () = &mut on_session_unknown => break,
        }
    }
    core.close(Loss::new(LossReason::Disconnected, ""), &|_| false);
    // If the server has dropped the session, some calls may not have failed yet.
    if let Some(error) = core.lost(Delivery::Unknown) {
        core.fail_all(&error);
    }
    core.release_permit();
}

fn receive_bytes(core: &Arc<Core>, events: &mut Decoder, chunk: &[u8]) {
    let mut rest = chunk;
    while let Some(event) = events.next_event(&mut rest) {
        match event {
            Ok(event) => {
                core.receive(event.data(), MessageSource::Link);
            }
            Err(error) => core.fail_all(&CallError::TooLarge { limit: error.limit() }),
        }
    }
}

impl fmt::Debug for Sse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sse")
    }
}
