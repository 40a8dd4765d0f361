//! A request on its way to a server, and what becomes of its answer.

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Response;
use stayput_core::{Handle, Origin, Session};
use stayput_upstream::{
    Answer, Asking, CallError, CallOptions, Delivery, Held, Isolation, LossReason, Profile,
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

/// How clients ask to hear what happens.
const LISTEN: &str = "subscriptions/listen";

/// Everything that is needed to the end of a call.
pub(crate) struct ModernCall {
    pub(crate) behind: CallOwner,
    link: Held,
    profile: Arc<Profile>,
    id: String,
    method: String,
    tools: Option<ToolFilter>,
    /// The log messages that the client wants to hear of this call.
    level: Option<String>,
    server: String,
    /// Who listens may do so for hours, and is not timed.
    account: CallRecord,
    app: Arc<AppState>,
}

/// Whose call it is.
pub(crate) enum CallOwner {
    /// No session's. What was made for it goes with it.
    Sessionless { nobody: Sessionless, _turn: CallPermit },
    /// A session's, which does not idle meanwhile.
    Session(Box<OfSession>),
}

/// A call of a session.
pub(crate) struct OfSession {
    pub(crate) visit: SessionLink,
    pub(crate) origin: Origin,
    /// A handle that the answer gives out.
    pub(crate) given: Option<Handle>,
    #[allow(dead_code, reason = "it does its work when it is dropped")]
    pub(crate) fleeting: Option<EphemeralSession>,
}

/// How a call ended.
pub(crate) struct Ended {
    pub(crate) done: ReplyText,
    /// The code that the status depends on, if a server answered with an error.
    pub(crate) code: Option<Code>,
}

/// Asks a server something that concerns no session, on the link that all share. A server that has a link
/// for each session is asked on one that is thrown away.
pub(crate) async fn ask(
    request: &ModernRequest<'_>,
    profile: &Arc<Profile>,
    link: Option<Held>,
) -> Response<Reply> {
    let Some(turn) = request.turn() else {
        request.note(None, Denied);
        return request.failed(&request.crowded());
    };
    let alone = request.server.isolation(profile.way().era()) == Isolation::PerSession;
    let nobody = Sessionless::new(request.app, &request.owner, alone);
    let links = &request.app.links;
    let link = match link {
        Some(link) => link,
        // Of those who share it, none is named to the server.
        None => {
            let server = match request.app.present(request.server) {
                Ok(server) => server,
                Err(sentence) => return request.unlinked(&sentence),
            };
            match links.open(&server, nobody.place(), &Asking::default()).await {
                Ok(link) => link,
                Err(error) => return request.unlinked(&request.app.blame(&error)),
            }
        }
    };
    if let Some(told) = shared_loss(request, profile, &link) {
        request.note(None, Lost);
        return reply::message_then(told.text, told.then);
    }
    let errand =
        ModernCall::new(request, profile, link, CallOwner::Sessionless { nobody, _turn: turn });
    match unnamed(request.message).as_deref().map(|text| Message::parse(text.as_bytes())) {
        Some(Ok(message)) => errand.send(&message).await,
        _ => errand.send(request.message).await,
    }
}

impl ModernRequest<'_> {
    /// Room for one more call that belongs to no session.
    fn turn(&self) -> Option<CallPermit> {
        let (owner, server) = (self.owner.clone(), self.server.shared_name());
        let at = At { owner, server, listens: self.method == LISTEN };
        self.app.crowd.enter(at, self.app.rules.calls)
    }

    /// Why there is no room for one more.
    fn crowded(&self) -> String {
        self.app.metrics.refused("busy");
        let (limit, server) = (self.app.rules.calls, self.server.name());
        format!(
            "Nothing was run: {limit} of your calls to `{server}` are in flight that belong to no session, \
             which is `limits.calls_per_session`. Wait for one of them to end, and try again in 1 s."
        )
    }

    /// There is no link, for this reason.
    fn unlinked(&self, sentence: &str) -> Response<Reply> {
        self.note(None, NoLink);
        self.failed(sentence)
    }
}

/// What is told first if the state behind a link that several share was lost since this owner last called. Who
/// of several that come without a name is told is not known: every answer says which generation it is of.
fn shared_loss(request: &ModernRequest<'_>, profile: &Profile, link: &Held) -> Option<ReplyText> {
    let ModernRequest { app, server, owner, .. } = request;
    let keeps = profile.way().era() == Era::Legacy && link.keeps_state();
    if !keeps || !loss::depends_on_state(request.method) {
        return None;
    }
    let generation = link.generation();
    let behind = (link.slot(), generation);
    app.generations.lost(owner, server.name(), behind).then(|| {
        let reason = loss::reason(link.loss().map(|loss| loss.reason()));
        let (server, delivery) = (server.name(), Delivery::NotSent);
        let told = LossReport { server, session: None, generation, reason, delivery };
        let text = told.answer(request.asked(), Era::Modern);
        let (app, owner, server) = ((*app).clone(), owner.clone(), server.to_owned());
        let note: reply::AfterWrite =
            Box::new(move || app.generations.tell(&owner, &server, behind));
        ReplyText { text: text.into(), then: Some(note) }
    })
}

/// The message without the session that it names, which is a secret of the client's and ours; `None` if it
/// names none.
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
        link: Held,
        behind: CallOwner,
    ) -> Self {
        let params = request.message.params();
        let level = params.and_then(|it| it.find(&[meta::META, meta::LOG_LEVEL])?.text());
        let session = match &behind {
            CallOwner::Session(of) => Some(of.visit.session.session()),
            CallOwner::Sessionless { .. } => None,
        };
        let account =
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
            account,
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

    /// Sends it, and waits for what comes first.
    pub(crate) async fn send(mut self, message: &Message<'_>) -> Response<Reply> {
        if !self.listens() {
            self.account.sent(&self.app.metrics, &self.server);
        }
        let traced = self.account.traced(message);
        let traced = traced.as_deref().and_then(|text| Message::parse(text.as_bytes()).ok());
        let message = traced.as_ref().unwrap_or(message);
        // Who listens may hear nothing for hours.
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

    /// Ready when nothing more will come to who listens. What is called ends by itself.
    pub(crate) fn closing(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>> {
        let mut closing = self.app.closing.clone();
        let closed = async move {
            let _ = closing.wait_for(|closing| *closing).await;
        };
        self.listens().then(|| Box::pin(closed) as _)
    }

    /// The last words to who listens.
    pub(crate) fn farewell(&self) -> Bytes {
        let (meta, tag, id) = (meta::META, meta::SUBSCRIPTION_ID, &self.id);
        let result = format!(r#"{{"resultType":"complete","{meta}":{{"{tag}":{id}}}}}"#);
        reply::result(&self.id, &result).into()
    }

    /// What of that which a server says before its answer concerns the client.
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

    /// The session that the call is of, if it is of one.
    fn session(&self) -> Option<&Session> {
        match &self.behind {
            CallOwner::Session(of) => Some(&of.visit.session),
            CallOwner::Sessionless { .. } => None,
        }
    }

    pub(crate) fn ended(&self, end: Result<Answer, CallError>) -> Ended {
        self.account.ended(self.session(), &self.link, &end);
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
            let session = of.visit.session.session();
            let state = state::told(session, of.origin, self.link.generation());
            finish = finish.telling(state, of.given.as_ref());
        } else if self.era() == Era::Legacy
            && self.link.keeps_state()
            && loss::depends_on_state(&self.method)
        {
            finish = finish.telling(state::shared(self.link.generation()), None);
        }
        let (text, code) = finish.answer(answer);
        Ended { done: ReplyText::new(text), code }
    }

    fn failed(&self, error: &CallError) -> ReplyText {
        if let CallOwner::Session(of) = &self.behind {
            return of.visit.failed(&self.link, self.asked(), error);
        }
        // What several share is lost to all of them, and nobody notes who was told. A modern server
        // keeps nothing between calls.
        let loss = error.loss().filter(|loss| {
            let depends = loss::depends_on_state(&self.method) && self.era() == Era::Legacy;
            depends && loss.reason() != LossReason::Released
        });
        let text = match loss {
            Some(loss) => {
                let generation = self.link.generation().next();
                let (server, delivery) = (&self.server, error.delivery());
                let reason = loss::reason(Some(loss.reason()));
                let told = LossReport { server, session: None, generation, reason, delivery };
                if let CallOwner::Sessionless { nobody, .. } = &self.behind {
                    let behind = (self.link.slot(), generation);
                    self.app.generations.tell(&nobody.place().owner, server, behind);
                }
                told.answer(self.asked(), Era::Modern)
            }
            None => reply::failure(self.asked(), Era::Modern, &error.brief()),
        };
        ReplyText::new(text)
    }
}

/// The code of an answer that is an error.
pub(crate) fn code(text: &str) -> Option<Code> {
    let message = Message::parse(text.as_bytes()).ok()?;
    message.error()?.find(&["code"]).and_then(Raw::integer).map(Code)
}
