//! A request on its way to a server, and what becomes of its answer.

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Response;
use stayput_core::{Handle, Origin, Session};
use stayput_upstream::{
    Answer, Asking, CallError, CallOptions, Delivery, Held, Isolation, LossReason, Profile,
};
use stayput_wire::{Code, Era, Message, Raw, meta};

use super::{Following, Request, answer::Finish, bridge, state};
use crate::{
    account::Account,
    config::Tools,
    crowd::{At, Turn},
    forward::Done,
    house::House,
    identify::Fleeting,
    losses::{self, Told},
    nobody::Nobody,
    reply::{self, Reply},
    visit::{Asked, Visit},
    watch::Outcome::{Denied, Lost, NoLink},
};

/// How clients ask to hear what happens.
const LISTEN: &str = "subscriptions/listen";

/// Everything that is needed to the end of a call.
pub(super) struct Errand {
    pub(super) behind: Behind,
    link: Held,
    profile: Arc<Profile>,
    id: String,
    method: String,
    tools: Option<Tools>,
    /// The log messages that the client wants to hear of this call.
    level: Option<String>,
    server: String,
    /// Who listens may do so for hours, and is not timed.
    account: Account,
    house: Arc<House>,
}

/// Whose call it is.
pub(super) enum Behind {
    /// No session's. What was made for it goes with it.
    Nobody { nobody: Nobody, _turn: Turn },
    /// A session's, which does not idle meanwhile.
    Session(Box<OfSession>),
}

/// A call of a session.
pub(super) struct OfSession {
    pub(super) visit: Visit,
    pub(super) origin: Origin,
    /// A handle that the answer gives out.
    pub(super) given: Option<Handle>,
    #[allow(dead_code, reason = "it does its work when it is dropped")]
    pub(super) fleeting: Option<Fleeting>,
}

/// How a call ended.
pub(super) struct Ended {
    pub(super) done: Done,
    /// The code that the status depends on, if a server answered with an error.
    pub(super) code: Option<Code>,
}

/// Asks a server something that concerns no session, on the link that all share. A server that has a link
/// for each session is asked on one that is thrown away.
pub(super) async fn ask(
    request: &Request<'_>,
    profile: &Arc<Profile>,
    link: Option<Held>,
) -> Response<Reply> {
    let Some(turn) = request.turn() else {
        request.note(None, Denied);
        return request.failed(&request.crowded());
    };
    let alone = request.server.isolation(profile.way().era()) == Isolation::PerSession;
    let nobody = Nobody::new(request.house, &request.owner, alone);
    let links = &request.house.links;
    let link = match link {
        Some(link) => link,
        // Of those who share it, none is named to the server.
        None => {
            let server = match request.house.present(request.server) {
                Ok(server) => server,
                Err(sentence) => return request.unlinked(&sentence),
            };
            match links.open(&server, nobody.place(), &Asking::default()).await {
                Ok(link) => link,
                Err(error) => return request.unlinked(&request.house.blame(&error)),
            }
        }
    };
    if let Some(told) = shared_loss(request, profile, &link) {
        request.note(None, Lost);
        return reply::message_then(told.text, told.then);
    }
    let errand = Errand::new(request, profile, link, Behind::Nobody { nobody, _turn: turn });
    match unnamed(request.message).as_deref().map(|text| Message::parse(text.as_bytes())) {
        Some(Ok(message)) => errand.send(&message).await,
        _ => errand.send(request.message).await,
    }
}

impl Request<'_> {
    /// Room for one more call that belongs to no session.
    fn turn(&self) -> Option<Turn> {
        let (owner, server) = (self.owner.clone(), self.server.shared_name());
        let at = At { owner, server, listens: self.method == LISTEN };
        self.house.crowd.enter(at, self.house.rules.calls)
    }

    /// Why there is no room for one more.
    fn crowded(&self) -> String {
        self.house.metrics.refused("busy");
        let (limit, server) = (self.house.rules.calls, self.server.name());
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
fn shared_loss(request: &Request<'_>, profile: &Profile, link: &Held) -> Option<Done> {
    let Request { house, server, owner, .. } = request;
    let keeps = profile.way().era() == Era::Legacy && link.keeps_state();
    if !keeps || !losses::depends_on_state(request.method) {
        return None;
    }
    let generation = link.generation();
    let behind = (link.slot(), generation);
    house.generations.lost(owner, server.name(), behind).then(|| {
        let reason = losses::reason(link.loss().map(|loss| loss.reason()));
        let (server, delivery) = (server.name(), Delivery::NotSent);
        let told = Told { server, session: None, generation, reason, delivery };
        let text = told.answer(request.asked(), Era::Modern);
        let (house, owner, server) = ((*house).clone(), owner.clone(), server.to_owned());
        let note: reply::Then = Box::new(move || house.generations.tell(&owner, &server, behind));
        Done { text: text.into(), then: Some(note) }
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

impl Errand {
    pub(super) fn new(
        request: &Request<'_>,
        profile: &Arc<Profile>,
        link: Held,
        behind: Behind,
    ) -> Self {
        let params = request.message.params();
        let level = params.and_then(|it| it.find(&[meta::META, meta::LOG_LEVEL])?.text());
        let session = match &behind {
            Behind::Session(of) => Some(of.visit.session.session()),
            Behind::Nobody { .. } => None,
        };
        let account = Account::begin(request.house, request.begun(session.map(|it| &**it)));
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
            house: request.house.clone(),
        }
    }

    fn asked(&self) -> Asked<'_> {
        Asked { id: &self.id, method: &self.method }
    }

    fn era(&self) -> Era {
        self.profile.way().era()
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    fn listens(&self) -> bool {
        self.method == LISTEN
    }

    /// Sends it, and waits for what comes first.
    pub(super) async fn send(mut self, message: &Message<'_>) -> Response<Reply> {
        if !self.listens() {
            self.account.sent(&self.house, &self.server);
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
            Ok(call) => Following::new(self, call).begin().await,
            Err(error) => {
                let Done { text, then } = self.ended(Err(error)).done;
                reply::message_then(text, then)
            }
        }
    }

    /// Ready when nothing more will come to who listens. What is called ends by itself.
    pub(super) fn closing(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>> {
        let mut closing = self.house.closing.clone();
        let closed = async move {
            let _ = closing.wait_for(|closing| *closing).await;
        };
        self.listens().then(|| Box::pin(closed) as _)
    }

    /// The last words to who listens.
    pub(super) fn farewell(&self) -> Bytes {
        let (meta, tag, id) = (meta::META, meta::SUBSCRIPTION_ID, &self.id);
        let result = format!(r#"{{"resultType":"complete","{meta}":{{"{tag}":{id}}}}}"#);
        reply::result(&self.id, &result).into()
    }

    /// What of that which a server says before its answer concerns the client.
    pub(super) fn heard(&self, text: Bytes) -> Option<Bytes> {
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
            Behind::Session(of) => Some(&of.visit.session),
            Behind::Nobody { .. } => None,
        }
    }

    pub(super) fn ended(&self, end: Result<Answer, CallError>) -> Ended {
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
        if let Behind::Session(of) = &self.behind {
            let session = of.visit.session.session();
            let state = state::told(session, of.origin, self.link.generation());
            finish = finish.telling(state, of.given.as_ref());
        } else if self.era() == Era::Legacy
            && self.link.keeps_state()
            && losses::depends_on_state(&self.method)
        {
            finish = finish.telling(state::shared(self.link.generation()), None);
        }
        let (text, code) = finish.answer(answer);
        Ended { done: Done::new(text), code }
    }

    fn failed(&self, error: &CallError) -> Done {
        if let Behind::Session(of) = &self.behind {
            return of.visit.failed(&self.link, self.asked(), error);
        }
        // What several share is lost to all of them, and nobody notes who was told. A modern server
        // keeps nothing between calls.
        let loss = error.loss().filter(|loss| {
            let depends = losses::depends_on_state(&self.method) && self.era() == Era::Legacy;
            depends && loss.reason() != LossReason::Released
        });
        let text = match loss {
            Some(loss) => {
                let generation = self.link.generation().next();
                let (server, delivery) = (&self.server, error.delivery());
                let reason = losses::reason(Some(loss.reason()));
                let told = Told { server, session: None, generation, reason, delivery };
                if let Behind::Nobody { nobody, .. } = &self.behind {
                    let behind = (self.link.slot(), generation);
                    self.house.generations.tell(&nobody.place().owner, server, behind);
                }
                told.answer(self.asked(), Era::Modern)
            }
            None => reply::failure(self.asked(), Era::Modern, &error.brief()),
        };
        Done::new(text)
    }
}

/// The code of an answer that is an error.
pub(super) fn code(text: &str) -> Option<Code> {
    let message = Message::parse(text.as_bytes()).ok()?;
    message.error()?.find(&["code"]).and_then(Raw::integer).map(Code)
}
