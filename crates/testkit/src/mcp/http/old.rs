//! HTTP+SSE of 2024-11-05: a POST is answered on the GET stream.

use std::sync::Arc;

use http::{Method, StatusCode};
use stayput_wire::{Era, sse, sse::Event};

use super::{
    super::{
        message::Incoming,
        scope::{Outlet, Scope},
    },
    Ask, Front, Reply,
    body::OnGone,
    events,
    session::Session,
    status,
    stream::Stream,
};

/// Stream with the event name of this revision.
struct Named(Arc<Stream>);

impl Outlet for Named {
    fn send(&self, text: String) {
        self.0.push(Event::new(text).with_name(sse::MESSAGE).unwrap());
    }
}

impl Front {
    pub(super) fn old(self: &Arc<Self>, ask: Ask) -> Reply {
        match ask.method {
            Method::GET => self.old_stream(),
            Method::POST => self.old_message(ask),
            _ => status(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    fn old_stream(self: &Arc<Self>) -> Reply {
        let session = Session::new(false);
        let (front, id) = (self.clone(), session.id.clone());
        // The stream is the session: it ends with the stream.
        let gone = OnGone::new(move || {
            front.sessions.remove(&id);
        });
        let endpoint = Event::new(format!("/messages?session={}", session.id));
        session.standalone.push(endpoint.with_name(sse::ENDPOINT).unwrap());
        let body = session.standalone.attach(0, gone);
        self.sessions.insert(session);
        events(body)
    }

    fn old_message(self: &Arc<Self>, ask: Ask) -> Reply {
        let id = ask.query.strip_prefix("session=").unwrap_or_default();
        let Some(session) = self.sessions.get(id) else { return status(StatusCode::NOT_FOUND) };
        let Some(Ok(message)) = ask.message else { return status(StatusCode::BAD_REQUEST) };
        if message.method.is_some() {
            self.engine.stats.method(message.method());
        }
        let out: Arc<dyn Outlet> = Arc::new(Named(session.standalone.clone()));
        if !message.is_request() {
            self.told(&session.scope, &message);
        } else if let Some(refusal) = self.engine.refuse_era(&message) {
            out.send(refusal.to_text(message.id()));
        } else {
            self.old_call(session.scope.clone(), message, ask.headers, out);
        }
        status(StatusCode::ACCEPTED)
    }

    fn old_call(
        &self,
        scope: Arc<Scope>,
        message: Incoming,
        headers: http::HeaderMap,
        out: Arc<dyn Outlet>,
    ) {
        let mut call = self.call(scope, Era::Legacy, message, headers);
        call.out = out.clone();
        let run = call.run();
        tokio::spawn(async move {
            if let Some(answer) = run.await {
                out.send(answer.text);
            }
        });
    }
}
