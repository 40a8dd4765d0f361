//! `/admin/events`: event stream of the gateway, and `/admin/samples`: its numbers over 15 minutes.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream as _, unfold};
use http::{HeaderMap, Response, header};
use hyper::body::{Body, Frame};
use serde::Serialize;
use stayput_core::{Clock as _, SessionId, SystemClock};
use stayput_wire::{header as mcp, sse};
use tokio::sync::{broadcast, watch};

use super::{
    Answer, json,
    query::{Query, bad},
    sampler,
};
use crate::{
    auth::Principal,
    observe::recent::{
        recent_events::LoggedEvent,
        samples::{INTERVAL, OpenPage, Sample},
    },
    reply::{self, AfterWriteSink, EventBody, Reply},
    state::AppState,
};

/// Kinds of events.
const KINDS: [&str; 6] = ["opened", "resumed", "lost", "ended", "refused", "reloaded"];

/// Time after which a silent stream sends a comment.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Period that the samples cover.
const PERIOD: Duration = Duration::from_secs(15 * 60);

/// Answer of `/admin/samples`.
#[derive(Serialize)]
struct SamplesView {
    interval_seconds: u64,
    samples: Vec<Sample>,
}

/// View of an event.
#[derive(Serialize)]
pub(super) struct EventView<'a> {
    number: u64,
    at: String,
    kind: &'a str,
    session: Option<String>,
    server: Option<&'a str>,
    reason: Option<&'a str>,
    generation: Option<u64>,
    detail: Option<&'a str>,
}

impl<'a> EventView<'a> {
    pub(super) fn new(event: &'a LoggedEvent) -> Self {
        Self {
            number: event.number,
            at: event.at.to_rfc3339_millis(),
            kind: event.kind,
            session: event.session.map(|id| id.to_string()),
            server: event.server.as_deref(),
            reason: event.reason,
            generation: event.generation,
            detail: event.detail.as_deref(),
        }
    }
}

/// Shows the samples of the last 15 minutes.
pub(super) fn samples(app: &AppState) -> Response<Reply> {
    let from = SystemClock.now().before(PERIOD).as_millis();
    let samples = app.recent.samples.since(from);
    json(&SamplesView { interval_seconds: INTERVAL.as_secs(), samples })
}

/// Filter of events.
struct EventFilter {
    kinds: Option<Vec<String>>,
    server: Option<String>,
    session: Option<SessionId>,
}

impl EventFilter {
    fn read(query: &Query) -> Result<Self, super::Refusal> {
        let kinds = query.get("kinds").map(|text| text.split(',').map(str::to_owned).collect());
        let known = |kind: &String| KINDS.contains(&&**kind);
        if kinds.as_ref().is_some_and(|kinds: &Vec<String>| !kinds.iter().all(known)) {
            return Err(bad(format!("`kinds` are some of {}, with commas", KINDS.join(", "))));
        }
        let session = query.get("session").map(str::parse).transpose();
        let session = session.map_err(|_| bad("`session` is the id of a session"))?;
        Ok(Self { kinds, server: query.get("server").map(str::to_owned), session })
    }

    fn has(&self, event: &LoggedEvent) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|kind| kind == event.kind))
            && self.server.as_deref().is_none_or(|server| event.server.as_deref() == Some(server))
            && self.session.is_none_or(|session| event.session == Some(session))
    }
}

/// Access of a client to the stream, which can end while the stream is open: by a logout, by the end of the login, or by
/// a credential that expires or leaves the configuration.
struct Access {
    app: Arc<AppState>,
    principal: Principal,
    /// Headers of the request, if it came with the cookie of a login.
    login: Option<HeaderMap>,
}

impl Access {
    fn new(app: &Arc<AppState>, principal: &Principal, headers: &HeaderMap) -> Self {
        let is_login =
            !headers.contains_key(header::AUTHORIZATION) && app.logins.find(headers).is_some();
        let login = is_login.then(|| headers.clone());
        Self { app: app.clone(), principal: principal.clone(), login }
    }

    fn is_over(&self) -> bool {
        let is_logged_out =
            self.login.as_ref().is_some_and(|headers| self.app.logins.find(headers).is_none());
        let known = self.app.now().authenticator.recheck(&self.principal, SystemClock.now());
        is_logged_out || !known.is_some_and(|known| known.admin)
    }
}

/// Streams the kept events that match the filter, then those that follow, and each sample, until the client has no
/// access any more.
pub(super) fn follow(
    app: &Arc<AppState>,
    query: &Query,
    (principal, headers): (&Principal, &HeaderMap),
) -> Answer {
    query.only(&["kinds", "server", "session"])?;
    let filter = EventFilter::read(query)?;
    let last = headers.get(mcp::LAST_EVENT_ID).and_then(|it| it.to_str().ok()?.parse().ok());
    let (kept, events) = app.recent.events.follow(last.unwrap_or_default());
    let feed = Feed {
        kept: kept.into(),
        events,
        samples: app.recent.samples.follow(),
        closing: app.closing.clone(),
        filter,
        access: Access::new(app, principal, headers),
        _page: sampler::open_page(app),
    };
    let stream = unfold(feed, |mut feed| async {
        let part = feed.next().await?;
        (!feed.access.is_over()).then_some((part, feed))
    });
    Ok(reply::stream(AdminStream(Box::pin(stream))))
}

/// Source of the stream.
struct Feed {
    kept: VecDeque<Arc<LoggedEvent>>,
    events: broadcast::Receiver<Arc<LoggedEvent>>,
    samples: watch::Receiver<Option<Sample>>,
    closing: watch::Receiver<bool>,
    filter: EventFilter,
    access: Access,
    /// Samples are taken as long as it exists.
    _page: OpenPage,
}

impl Feed {
    /// Returns the next part of the stream, and `None` when the gateway stops.
    async fn next(&mut self) -> Option<Bytes> {
        while let Some(event) = self.kept.pop_front() {
            if let Some(text) = self.encode(&event) {
                return Some(text);
            }
        }
        loop {
            tokio::select! {
                event = self.events.recv() => match event {
                    Ok(event) => match self.encode(&event) {
                        Some(text) => return Some(text),
                        None => continue,
                    },
                    // The client reads too slowly. The numbers show the gap.
                    Err(broadcast::error::RecvError::Lagged(_)) => continue,
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
                changed = self.samples.changed() => {
                    changed.ok()?;
                    let sample = *self.samples.borrow_and_update();
                    let Some(sample) = sample else { continue };
                    return encode("sample", None, &sample);
                }
                () = closed(&mut self.closing) => return None,
                () = tokio::time::sleep(KEEP_ALIVE) => return Some(Bytes::from_static(b":\n\n")),
            }
        }
    }

    fn encode(&self, event: &LoggedEvent) -> Option<Bytes> {
        if !self.filter.has(event) {
            return None;
        }
        encode("event", Some(event.number), &EventView::new(event))
    }
}

/// Waits until the gateway stops.
async fn closed(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

fn encode(name: &str, number: Option<u64>, value: &impl Serialize) -> Option<Bytes> {
    let event = sse::Event::new(serde_json::to_vec(value).ok()?).with_name(name).ok()?;
    let event = match number {
        Some(number) => event.with_id(&number.to_string()).ok()?,
        None => event,
    };
    Some(event.encode().into())
}

/// Body of the stream.
struct AdminStream(BoxStream<'static, Bytes>);

impl Body for AdminStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = ready!(Pin::new(&mut self.0).poll_next(cx));
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }
}

impl EventBody for AdminStream {
    fn server(&self) -> Option<Arc<str>> {
        None
    }

    fn defer(&mut self, _sink: AfterWriteSink) -> bool {
        false
    }
}
