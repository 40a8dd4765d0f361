//! POST requests.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll};

use http::{HeaderValue, StatusCode};
use serde_json::Value;
use stayput_wire::{Code, Era, header};

use super::{
    super::{
        engine::{Answer, Call, unserved},
        message::{Incoming, Refusal, notification_text},
        options::{Answers, Eras, Quirk},
        scope::{Nowhere, Outlet, Scope},
    },
    Ask, Front, Reply, Tricks,
    body::OnGone,
    checks, events, json, refused,
    session::Session,
    status,
    stream::Stream,
};

impl Front {
    pub(super) async fn post(self: &Arc<Self>, ask: Ask, tricks: Tricks) -> Reply {
        if !checks::is_json(&ask.headers) {
            return status(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        if !checks::accepts(&ask.headers, &[header::JSON, header::EVENT_STREAM]) {
            return status(StatusCode::NOT_ACCEPTABLE);
        }
        let message = match ask.message {
            Some(Ok(message)) => message,
            Some(Err(refusal)) => return refused(&refusal, None, Era::Legacy),
            None => return status(StatusCode::BAD_REQUEST),
        };
        if message.method.is_some() {
            self.engine.stats.method(message.method());
        }
        let era = checks::era(&message, &ask.headers);
        match (self.engine.options.eras, era) {
            (Eras::Modern, Era::Legacy) if message.method() == "initialize" => {
                let requested = &message.params()["protocolVersion"];
                refused(&unserved(requested), message.id(), Era::Modern)
            }
            (Eras::Modern, _) | (Eras::Dual, Era::Modern) => {
                self.modern(message, ask.headers, tricks).await
            }
            _ => self.legacy(message, ask.headers, tricks).await,
        }
    }

    async fn modern(
        self: &Arc<Self>,
        message: Incoming,
        headers: http::HeaderMap,
        tricks: Tricks,
    ) -> Reply {
        if !message.is_request() {
            return status(StatusCode::ACCEPTED);
        }
        let has_meta = !message.params()["_meta"].is_null();
        if has_meta && let Err(refusal) = checks::mirror(&message, &headers) {
            return refused(&refusal, message.id(), Era::Modern);
        }
        let scope = self.engine.modern.clone();
        let name = format!("http {}", self.engine.next());
        let streams = self.streams(&message, &tricks);
        let mut call = self.call(scope.clone(), Era::Modern, message, headers);
        call.name.clone_from(&name);
        if !streams {
            // Dropped with the request when the client disconnects.
            return whole(call.run().await, &tricks);
        }
        let stream = Stream::new(0, false);
        call.out = stream.clone();
        let gone = OnGone::new(move || scope.stop(&name));
        self.stream(call, stream, tricks, gone).await
    }

    async fn legacy(
        self: &Arc<Self>,
        message: Incoming,
        headers: http::HeaderMap,
        tricks: Tricks,
    ) -> Reply {
        let ids = !self.engine.options.has(Quirk::NoEventIds);
        if self.engine.options.stateless {
            return self.legacy_on(Session::new(false), message, headers, tricks).await;
        }
        if message.method() == "initialize" {
            let known = checks::text(&headers, header::MCP_SESSION_ID);
            if known.is_some_and(|id| self.sessions.get(id).is_some()) {
                let refusal = Refusal::new(Code::INVALID_REQUEST, "this session is initialized");
                return refused(&refusal, message.id(), Era::Legacy);
            }
            let session = Session::new(ids);
            self.sessions.insert(session.clone());
            let id = HeaderValue::from_str(&session.id).unwrap();
            let mut reply = self.legacy_on(session, message, headers, tricks).await;
            reply.headers_mut().insert(header::MCP_SESSION_ID, id);
            return reply;
        }
        match self.session(&headers) {
            Ok(session) => self.legacy_on(session, message, headers, tricks).await,
            Err(refusal) => refused(&refusal, message.id(), Era::Legacy),
        }
    }

    async fn legacy_on(
        self: &Arc<Self>,
        session: Arc<Session>,
        message: Incoming,
        headers: http::HeaderMap,
        tricks: Tricks,
    ) -> Reply {
        if !message.is_request() {
            self.told(&session.scope, &message);
            return status(StatusCode::ACCEPTED);
        }
        let streams = self.streams(&message, &tricks);
        let mut call = self.call(session.scope.clone(), Era::Legacy, message, headers);
        if !streams {
            call.out = session.standalone.clone();
            // A disconnect does not cancel in this era.
            return whole(tokio::spawn(call.run()).await.ok().flatten(), &tricks);
        }
        let stream = session.open_stream();
        if session.primes() {
            stream.prime(tricks.close.unwrap_or(self.retry()));
        }
        call.out = stream.clone();
        let close = self.engine.options.has(Quirk::CloseStream) || tricks.close.is_some();
        let reply = self.stream(call, stream.clone(), tricks, OnGone::nothing()).await;
        if close {
            stream.detach();
        }
        reply
    }

    /// Processes an answer or a notification of the client.
    pub(super) fn told(&self, scope: &Scope, message: &Incoming) {
        if let Some(answer) = message.answer() {
            self.engine.stats.count("answers");
            scope.answered(message.id().unwrap_or_default(), answer);
        } else {
            scope.notified(message);
        }
    }

    pub(super) fn call(
        &self,
        scope: Arc<Scope>,
        era: Era,
        message: Incoming,
        headers: http::HeaderMap,
    ) -> Call {
        Call {
            engine: self.engine.clone(),
            scope,
            era,
            name: message.id().unwrap_or_default().to_owned(),
            message,
            headers,
            out: Arc::new(Nowhere),
        }
    }

    fn streams(&self, message: &Incoming, tricks: &Tricks) -> bool {
        let must = tricks.need_a_stream() || message.method() == "subscriptions/listen";
        must || match self.engine.options.answers {
            Answers::Mixed => message.method() == "tools/call",
            Answers::Json => false,
            Answers::Sse => true,
        }
    }

    /// Answers with a stream, unless the answer is immediately a refusal with its own status.
    async fn stream(&self, call: Call, stream: Arc<Stream>, tricks: Tricks, gone: OnGone) -> Reply {
        flood(&stream, &tricks);
        let mut run = Box::pin(call.run());
        let body = stream.attach(0, gone);
        let first = poll_fn(|context| Poll::Ready(pin!(&mut run).poll(context))).await;
        match first {
            Poll::Ready(Some(answer)) if answer.status != 200 => {
                return whole(Some(answer), &tricks);
            }
            Poll::Ready(answer) => finish(&stream, answer, &tricks),
            Poll::Pending => {
                tokio::spawn(async move { finish(&stream, run.await, &tricks) });
            }
        }
        events(body)
    }
}

fn flood(stream: &Stream, tricks: &Tricks) {
    let Some((count, bytes)) = tricks.flood else { return };
    let data = Value::from("x".repeat(bytes));
    for _ in 0..count {
        let params = serde_json::json!({ "level": "info", "data": data });
        stream.send(notification_text("notifications/message", &params));
    }
}

fn finish(stream: &Stream, answer: Option<Answer>, tricks: &Tricks) {
    if tricks.cut {
        stream.cut();
    }
    if let Some(answer) = answer {
        let text = with_id(answer.text, tricks);
        stream.send(text.clone());
        if tricks.twice {
            stream.send(text);
        }
    }
    stream.finish();
}

fn whole(answer: Option<Answer>, tricks: &Tricks) -> Reply {
    match answer {
        Some(answer) => {
            let code = StatusCode::from_u16(answer.status).unwrap_or_default();
            json(code, with_id(answer.text, tricks))
        }
        None => status(StatusCode::ACCEPTED),
    }
}

fn with_id(text: String, tricks: &Tricks) -> String {
    let Some(id) = &tricks.foreign_id else { return text };
    let mut message: Value = serde_json::from_str(&text).unwrap();
    message["id"] = serde_json::from_str(id).unwrap();
    message.to_string()
}
