//! Calls of modern clients: sends the request to a server and converts its answer.

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Response;
use stayput_core::{Handle, Origin, Session};
use stayput_upstream::{
    Answer, Asking, CallError, CallOptions, Delivery, Isolation, LossReason, PooledLink, Profile,
};
use stayput_wire::{Code, Era, Message, Raw, meta};

use crate::{
    auth::call_limit::{At, CallPermit},
    call::{
        modern::{
            answer::Finish, bridge, call_stream::ModernCallStream, request::ModernRequest, state,
        },
        session_link::SessionLink,
        sessionless::Sessionless,
    },
    config::ToolFilter,
    identify::EphemeralSession,
    observe::{
        CallEnd::{Denied, Lost, NoLink},
        call_record::CallRecord,
    },
    reply::{
        self, Reply, ReplyText, RequestRef,
        loss::{self, LossReport},
    },
    state::AppState,
};

/// Method by which clients subscribe to notifications.
const LISTEN: &str = "subscriptions/listen";

/// Call of a modern client, with everything that is needed until the call ends.
pub(crate) struct ModernCall {
    pub(crate) behind: CallOwner,
    link: PooledLink,
    profile: Arc<Profile>,
    id: String,
    method: String,
    tools: Option<ToolFilter>,
    /// Lowest level of log messages that the client wants during this call.
    level: Option<String>,
    server: String,
    /// Record of the call. A `subscriptions/listen` request is not timed, because it may last for hours.
    record: CallRecord,
    app: Arc<AppState>,
}

/// Owner of a call: a session, or none.
pub(crate) enum CallOwner {
    /// Call without a session. Resources that were made for it end with it.
    Sessionless { nobody: Sessionless, _turn: CallPermit },
    /// Call of a session. The session does not become idle during the call.
    Session(Box<OfSession>),
}

/// Session part of a call.
pub(crate) struct OfSession {
    pub(crate) session_link: SessionLink,
    pub(crate) origin: Origin,
    /// New handle that the answer returns to the client.
    pub(crate) given: Option<Handle>,
    #[allow(dead_code, reason = "it does its work when it is dropped")]
    pub(crate) fleeting: Option<EphemeralSession>,
}

/// End of a call.
pub(crate) struct Ended {
    pub(crate) done: ReplyText,
    /// Error code that determines the HTTP status, if the server answered with an error.
    pub(crate) code: Option<Code>,
}

/// Sends a request that belongs to no session, on the shared link. A server with one link per session gets a
/// temporary link.
pub(crate) async fn ask(
    request: &ModernRequest<'_>,
    profile: &Arc<Profile>,
    link: Option<PooledLink>,
) -> Response<Reply> {
    let Some(permit) = request.turn() else {
        request.note(None, Denied);
        return request.failed(&request.crowded());
    };
    let per_session = request.server.isolation(profile.way().era()) == Isolation::PerSession;
    let nobody = Sessionless::new(request.app, &request.owner, per_session);
    let links = &request.app.links;
    let link = match link {
        Some(link) => link,
        // No client is named to the server, because several share the link.
        None => {
            let server = match request.app.present(request.server) {
                Ok(server) => server,
                Err(sentence) => return request.unlinked(&sentence),
            };
            match links.open(&server, nobody.place(), &Asking::default()).await {
                Ok(link) => link,
                Err(error) => return request.unlinked(&request.app.describe_open_error(&error)),
            }
        }
    };
    if let Some(report) = shared_loss(request, profile, &link) {
        request.note(None, Lost);
        return reply::message_then(report.text, report.then);
    }
    let call =
        ModernCall::new(request, profile, link, CallOwner::Sessionless { nobody, _turn: permit });
    match unnamed(request.message).as_deref().map(|text| Message::parse(text.as_bytes())) {
        Some(Ok(message)) => call.send(&message).await,
        _ => call.send(request.message).await,
    }
}

impl ModernRequest<'_> {
    /// Takes a permit for one more call without a session. `None` if the limit is reached.
    fn turn(&self) -> Option<CallPermit> {
        let (owner, server) = (self.owner.clone(), self.server.shared_name());
        let at = At { owner, server, listens: self.method == LISTEN };
        self.app.call_limiter.enter(at, self.app.rules.calls)
    }

    /// Returns the error message for a call over the limit.
    fn crowded(&self) -> String {
        self.app.metrics.refused("busy");
        let (limit, server) = (self.app.rules.calls, self.server.name());
        format!(
            "Nothing was run: {limit} of your calls to `{server}` are in flight that belong to no session, \
             which is `limits.calls_per_session`. Wait for one of them to end, and try again in 1 s."
        )
    }

    /// Answers that there is no link, for this reason.
    fn unlinked(&self, sentence: &str) -> Response<Reply> {
        self.note(None, NoLink);
        self.failed(sentence)
    }
}

/// Returns the loss report if the state behind a shared link was lost since the last call of this owner. It is not
/// known which of several clients without a session gets the report, so every answer carries its generation.
fn shared_loss(
    request: &ModernRequest<'_>,
    profile: &Profile,
    link: &PooledLink,
) -> Option<ReplyText> {
    let ModernRequest { app, server, owner, .. } = request;
    let keeps = profile.way().era() == Era::Legacy && link.keeps_state();
    if !keeps || !loss::depends_on_state(request.method) {
        return None;
    }
    let generation = link.generation();
    let entry = (link.slot(), generation);
    app.generations.lost(owner, server.name(), entry).then(|| {
        let reason = loss::reason(link.loss().map(|loss| loss.reason()));
        let (server, delivery) = (server.name(), Delivery::NotSent);
        let report = LossReport { server, session: None, generation, reason, delivery };
        let text = report.answer(request.asked(), Era::Modern);
        let (app, owner, server) = ((*app).clone(), owner.clone(), server.to_owned());
        let note: reply::AfterWrite =
            Box::new(move || app.generations.tell(&owner, &server, entry));
        ReplyText { text: text.into(), then: Some(note) }
    })
}

/// Returns the message without its session name, or `None` if it has none. The name is a secret between the client
/// and the gateway.
fn unnamed(message: &Message<'_>) -> Option<String> {
    message.params()?.find(&[meta::META, meta::SESSION])?;
    let mut edits = message.edit();
    edits.remove(&["params", meta::META, meta::SESSION]);
    edits.apply().ok().map(std::borrow::Cow::into_owned)
}

impl ModernCall {
    pub(crate) fn new(
        request: &ModernRequest<'_>,
        profile: &Arc<Profile>,
        link: PooledLink,
        behind: CallOwner,
    ) -> Self {
        let params = request.message.params();
        let level = params.and_then(|it| it.find(&[meta::META, meta::LOG_LEVEL])?.text());
        let session = match &behind {
            CallOwner::Session(of) => Some(of.session_link.session.session()),
            CallOwner::Sessionless { .. } => None,
        };
        let record =
            CallRecord::begin(request.app.watch.as_ref(), request.begun(session.map(|it| &**it)));
        Self {
            behind,
            link,
            profile: profile.clone(),
            id: request.id.to_owned(),
            method: request.method.to_owned(),
            tools: request.tools().cloned(),
            level: level.map(std::borrow::Cow::into_owned),
            server: request.server.name().to_owned(),
            record,
            app: request.app.clone(),
        }
    }

    fn asked(&self) -> RequestRef<'_> {
        RequestRef { id: &self.id, method: &self.method }
    }

    fn era(&self) -> Era {
        self.profile.way().era()
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    fn listens(&self) -> bool {
        self.method == LISTEN
    }

    /// Sends the request and waits for the first message of the server.
    pub(crate) async fn send(mut self, message: &Message<'_>) -> Response<Reply> {
        if !self.listens() {
            self.record.sent(&self.app.metrics, &self.server);
        }
        let traced = self.record.traced(message);
        let traced = traced.as_deref().and_then(|text| Message::parse(text.as_bytes()).ok());
        let message = traced.as_ref().unwrap_or(message);
        // No timeout for `subscriptions/listen`: it may receive nothing for hours.
        let limit = self.listens().then_some(Duration::MAX);
        let options = CallOptions { limit, ..CallOptions::default() };
        let sent = match self.era() {
            Era::Modern => self.link.send(message, options).await,
            Era::Legacy => {
                let text = bridge::outward(message);
                match Message::parse(text.as_bytes()) {
                    Ok(message) => self.link.send(&message, options).await,
                    Err(error) => Err(CallError::Invalid(error.to_string().into())),
                }
            }
        };
        match sent {
            Ok(call) => ModernCallStream::new(self, call).begin().await,
            Err(error) => {
                let ReplyText { text, then } = self.ended(Err(error)).done;
                reply::message_then(text, then)
            }
        }
    }

    /// Returns a future that is ready when the gateway closes, for `subscriptions/listen` only. Other calls end by
    /// themselves.
    pub(crate) fn closing(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>> {
        let mut closing = self.app.closing.clone();
        let wait = async move {
            let _ = closing.wait_for(|closing| *closing).await;
        };
        self.listens().then(|| Box::pin(wait) as _)
    }

    /// Returns the final result of a `subscriptions/listen` request.
    pub(crate) fn farewell(&self) -> Bytes {
        let (meta, tag, id) = (meta::META, meta::SUBSCRIPTION_ID, &self.id);
        let result = format!(r#"{{"resultType":"complete","{meta}":{{"{tag}":{id}}}}}"#);
        reply::result(&self.id, &result).into()
    }

    /// Filters messages that the server sends before its answer. Returns those that the client should get.
    pub(crate) fn heard(&self, text: Bytes) -> Option<Bytes> {
        let message = Message::parse(&text).ok()?;
        let legacy = self.era() == Era::Legacy;
        let concerns = match message.method()? {
            "notifications/message" => {
                let wanted = self.level.as_deref().filter(|_| !self.listens());
                wanted.is_some_and(|wanted| !legacy || bridge::is_heard(&message, wanted))
            }
            "notifications/progress" => !self.listens(),
            _ => !legacy,
        };
        concerns.then_some(text)
    }

    /// Returns the session of the call, if it has one.
    fn session(&self) -> Option<&Session> {
        match &self.behind {
            CallOwner::Session(of) => Some(&of.session_link.session),
            CallOwner::Sessionless { .. } => None,
        }
    }

    pub(crate) fn ended(&self, end: Result<Answer, CallError>) -> Ended {
        self.record.ended(self.session(), &self.link, &end);
        let answer = match end {
            Ok(answer) => answer,
            Err(error) => return Ended { done: self.failed(&error), code: None },
        };
        if self.method == "tools/list"
            && let Some(result) = answer.result()
        {
            self.link.learn_tools(result);
        }
        let mut finish = Finish::new(self.asked(), &self.profile).passing(self.tools.as_ref());
        if let CallOwner::Session(of) = &self.behind {
            let session = of.session_link.session.session();
            let state = state::told(session, of.origin, self.link.generation());
            finish = finish.loss_acknowledgements(state, of.given.as_ref());
        } else if self.era() == Era::Legacy
            && self.link.keeps_state()
            && loss::depends_on_state(&self.method)
        {
            finish = finish.loss_acknowledgements(state::shared(self.link.generation()), None);
        }
        let (text, code) = finish.answer(answer);
        Ended { done: ReplyText::new(text), code }
    }

    fn failed(&self, error: &CallError) -> ReplyText {
        if let CallOwner::Session(of) = &self.behind {
            return of.session_link.failed(&self.link, self.asked(), error);
        }
        // Shared state is lost for all its users. The report is recorded for the owner, not for a session. A modern
        // server keeps no state between calls.
        let loss = error.loss().filter(|loss| {
            let depends = loss::depends_on_state(&self.method) && self.era() == Era::Legacy;
            depends && loss.reason() != LossReason::Released
        });
        let text = match loss {
            Some(loss) => {
                let generation = self.link.generation().next();
                let (server, delivery) = (&self.server, error.delivery());
                let reason = loss::reason(Some(loss.reason()));
                let report = LossReport { server, session: None, generation, reason, delivery };
                if let CallOwner::Sessionless { nobody, .. } = &self.behind {
                    let entry = (self.link.slot(), generation);
                    self.app.generations.tell(&nobody.place().owner, server, entry);
                }
                report.answer(self.asked(), Era::Modern)
            }
            None => reply::failure(self.asked(), Era::Modern, &error.brief()),
        };
        ReplyText::new(text)
    }
}

/// Returns the error code of an answer.
pub(crate) fn code(text: &str) -> Option<Code> {
    let message = Message::parse(text.as_bytes()).ok()?;
    message.error()?.find(&["code"]).and_then(Raw::integer).map(Code)
}
