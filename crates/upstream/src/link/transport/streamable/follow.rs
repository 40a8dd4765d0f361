//! Response to a call as an event stream, resumed after interruptions.

use std::{sync::Arc, time::Duration};

use http::HeaderValue;
use stayput_http::{Body, Response};
use stayput_wire::Era;
use tokio::time::{sleep, timeout};

use super::{Streamable, drive, events::Events, of_http};
use crate::{
    CallError, Delivery,
    link::{Core, MessageSource, PendingCall},
};

/// Number of attempts to resume a stream without any new event.
const RESUME_ATTEMPTS: u32 = 6;

/// Pause before a stream is resumed, if the server names none.
const RESUME_DELAY: Duration = Duration::from_millis(500);

/// Shortest and longest pause that a server may name: a longer one is never wanted, and a shorter one is a busy
/// loop.
const RETRY_DELAYS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(20)..=Duration::from_secs(60);

/// Time that the end of a stream is waited for after the answer, so that the connection can be used again.
const STREAM_END_TIMEOUT: Duration = Duration::from_secs(1);

/// Follows the stream until the answer is there. A legacy server may cut the stream at any time; if its events
/// had ids, the stream is resumed after the last one.
pub(super) async fn follow(
    http: &Streamable,
    core: &Arc<Core>,
    pending_call: &PendingCall,
    response: Response,
) -> Result<(), CallError> {
    let number = pending_call.number;
    let mut events = Events::new(http.wire.limit);
    let mut body = Some(response.body);
    let mut empty_attempts = 0;
    loop {
        let read = match &mut body {
            Some(body) => read(&mut events, core, pending_call, body).await,
            None => Ok(false),
        };
        if !is_open(core, number) {
            if let Some(body) = &mut body {
                let _ = timeout(STREAM_END_TIMEOUT, drain(body)).await;
            }
            return Ok(());
        }
        let legacy = core.protocol.get().is_none_or(|protocol| protocol.era() == Era::Legacy);
        let last = events.resume_from().filter(|_| legacy);
        let Some(last) = last else { return Err(broken(read.err())) };
        empty_attempts = if read.is_ok_and(|some| some) { 0 } else { empty_attempts + 1 };
        if empty_attempts > RESUME_ATTEMPTS {
            return Err(broken(None));
        }
        drop(body.take());
        events.begin();
        body = resume(http, core, number, last, pause(&events, empty_attempts)).await?;
    }
}

fn pause(events: &Events, barren: u32) -> Duration {
    let pause = events.retry().unwrap_or(RESUME_DELAY * barren.max(1));
    pause.clamp(*RETRY_DELAYS.start(), *RETRY_DELAYS.end())
}

fn is_open(core: &Core, number: u64) -> bool {
    core.pending.lock().is_in_flight(number)
}

fn broken(error: Option<CallError>) -> CallError {
    error.unwrap_or_else(|| {
        CallError::failed("the server's stream ended before its answer", Delivery::Unknown)
    })
}

/// Reads events until the answer is there or the stream ends. Returns whether any event came.
async fn read(
    events: &mut Events,
    core: &Arc<Core>,
    pending_call: &PendingCall,
    body: &mut Body,
) -> Result<bool, CallError> {
    let (number, mut some) = (pending_call.number, false);
    while is_open(core, number) {
        let Some(chunk) = body.chunk().await.map_err(|error| of_http(&error))? else { break };
        let mut rest = &chunk[..];
        while let Some(event) = events.next_event(&mut rest) {
            some = true;
            match event {
                // An event without data only names a point to resume from.
                Ok(event) if event.data().is_empty() => {}
                Ok(event) => {
                    if core.receive(event.data(), MessageSource::Call(number)).foreign {
                        // After such an event nothing on this connection can be trusted.
                        body.discard();
                        core.fail(number, drive::foreign());
                        return Ok(some);
                    }
                }
                Err(error) => {
                    core.give_up(number, CallError::TooLarge { limit: error.limit() });
                }
            }
        }
        if some {
            pending_call.streaming();
        }
    }
    Ok(some)
}

async fn drain(body: &mut Body) {
    while let Ok(Some(_)) = body.chunk().await {}
}

/// Resumes a stream after `last`. Returns `None` if the server could not be reached.
async fn resume(
    http: &Streamable,
    core: &Arc<Core>,
    number: u64,
    last: HeaderValue,
    pause: Duration,
) -> Result<Option<Body>, CallError> {
    sleep(pause).await;
    let Ok(response) = http.open_stream(core, Some(last)).await else { return Ok(None) };
    if response.status.is_server_error() {
        return Ok(None);
    }
    if !response.status.is_success() {
        // The request itself was accepted before, so whether it was executed is not known.
        let refused = drive::ErrorResponse::read(response, number).await;
        return Err(match refused.judge(http, core, number) {
            CallError::Lost { loss, .. } => CallError::Lost { loss, delivery: Delivery::Unknown },
            error => CallError::failed(error, Delivery::Unknown),
        });
    }
    Ok(Some(response.body))
}
