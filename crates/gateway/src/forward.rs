//! A request on its way to a server, and what comes back.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Response;
use stayput_core::{Generation, InUse, Topic};
use stayput_upstream::{
    Asked, Asking, Attachment, Call, CallError, CallOptions, Delivery, Held, Incoming, Isolation,
    Loss, LossReason, Place, Server,
};
use stayput_wire::{Code, Message, Raw};

use crate::{
    connection::{Connection, InFlight},
    house::House,
    keeper::RecordKeeper,
    losses::{self, Told},
    reply::{self, Reply, Then},
    stream::Stream,
};

/// How long a server may take for what a client asked for before there was a link.
const GREETING: Duration = Duration::from_secs(5);

/// Who asks, and for what: everything that is needed to the end of the call.
pub(crate) struct Errand {
    house: Arc<House>,
    connection: Arc<Connection>,
    server: Server,
    session: InUse,
    /// The client's id as it was written.
    id: String,
    method: String,
}

/// How a request ended, before it has become bytes.
pub(crate) struct Done {
    pub(crate) text: Bytes,
    pub(crate) then: Option<Then>,
}

impl Done {
    pub(crate) fn new(text: impl Into<Bytes>) -> Self {
        Self { text: text.into(), then: None }
    }
}

/// What a request has come to.
pub(crate) enum Outcome {
    /// An answer.
    Done(Done),
    /// A stream on which it will come.
    Stream(Arc<Stream>),
    /// The client took it back: there is no answer.
    Cancelled,
}

impl Errand {
    /// Sends a request to the server of its connection. `streams` says whether the client reads
    /// streams.
    pub(crate) async fn run(
        house: &Arc<House>,
        connection: &Arc<Connection>,
        message: &Message<'_>,
        streams: bool,
    ) -> Outcome {
        let id = message.id().map(|id| id.as_str().to_owned()).unwrap_or_default();
        let method = message.method().unwrap_or_default().to_owned();
        // From here on the id is taken, and the request can be taken back.
        let Some(in_flight) = connection.begin(&id) else {
            let sentence = "a request with this id is in flight; each needs an id of its own";
            return Outcome::Done(Done::new(reply::error(&id, Code::INVALID_REQUEST, sentence)));
        };
        let failed =
            |sentence: String| Outcome::Done(Done::new(reply::failure(&id, &method, &sentence)));
        let Some(server) = house.servers.get(&*connection.server).cloned() else {
            return failed(format!("there is no server `{}` any more", connection.server));
        };
        let session = match house.session(&connection.owner, connection.session).await {
            Ok(session) => session,
            Err(error) => return failed(error.to_string()),
        };
        let errand = Self {
            house: house.clone(),
            connection: connection.clone(),
            server,
            session,
            id: id.clone(),
            method: method.clone(),
        };
        let link = match errand.link().await {
            Ok(link) => link,
            Err(sentence) => return failed(sentence),
        };
        if let Some(told) = errand.pending_loss(&link) {
            return Outcome::Done(told);
        }
        if in_flight.is_cancelled() {
            return Outcome::Cancelled;
        }
        errand.send(link, message, in_flight, streams).await
    }

    async fn link(&self) -> Result<Held, String> {
        let place = Place::new(self.connection.owner.clone(), self.session.id());
        if let Some(held) = self.house.links.find(&self.server, &place) {
            return Ok(held);
        }
        let asking = self.asking(&place).await?;
        let held = self.house.links.open(&self.server, &place, &asking).await;
        let held = held.map_err(|error| error.to_string())?;
        self.greet(&held).await;
        Ok(held)
    }

    async fn asking(&self, place: &Place) -> Result<Asking, String> {
        let hello = self.connection.hello.clone();
        let profile = self.house.links.profile(&self.server, place).await;
        let era = profile.map_err(|error| error.to_string())?.way().era();
        if self.server.isolation(era) != Isolation::PerSession {
            // What several sessions share is in the record of none.
            return Ok(Asking { hello, ..Asking::default() });
        }
        let record = self.session.record();
        let kept = record.attachments.get(&*self.connection.server);
        // What cannot be read leads nowhere: whatever it led to is lost.
        let unreadable = kept.is_some_and(|it| Attachment::open(it, &self.house.seal).is_err());
        let generation = if unreadable { record.generation.next() } else { record.generation };
        let keeper = RecordKeeper {
            house: self.house.clone(),
            session: self.session.session().clone(),
            server: self.connection.server.clone(),
        };
        Ok(Asking { hello, keeper: Some(Arc::new(keeper)), generation })
    }

    /// What a client asked for before there was a link holds for this one, too.
    async fn greet(&self, link: &Held) {
        let options = CallOptions { limit: Some(GREETING), ..CallOptions::default() };
        if let Some(level) = self.connection.log_level()
            && let Ok(call) = link.call("logging/setLevel", Some(&level), options).await
        {
            let _ = call.answer().await;
        }
        crate::listening::start(&self.connection, link).await;
    }

    /// A loss that the client has not been told of comes before everything that depends on state.
    fn pending_loss(&self, link: &Held) -> Option<Done> {
        let generation = self.session.lost()?;
        if !losses::depends_on_state(&self.method) {
            return None;
        }
        let otherwise = "it expired, or the gateway was restarted";
        let reason = link.loss().map_or(otherwise, |it| losses::reason(it.reason()));
        Some(self.told(generation, reason, Delivery::NotSent))
    }

    fn told(&self, generation: Generation, reason: &str, delivery: Delivery) -> Done {
        let told = Told {
            server: &self.connection.server,
            session: self.session.id().to_string(),
            generation,
            reason,
            delivery,
        };
        self.house.log.warn(&format!(
            "session {} lost its state on {}: {reason} (generation {generation})",
            self.session.id(),
            self.connection.server
        ));
        let text = told.answer(&self.id, &self.method).into();
        let (house, session) = (self.house.clone(), self.session.session().clone());
        let runtime = tokio::runtime::Handle::current();
        let then: Then = Box::new(move || {
            runtime.spawn(async move {
                let noted = house.sessions.change(&session, |record| {
                    record.generation = record.generation.max(generation);
                    record.told = record.told.max(generation);
                });
                // Not noted, it is told once more, which does no harm.
                let _ = noted.await;
            });
        });
        Done { text, then: Some(then) }
    }

    async fn send(
        self,
        link: Held,
        message: &Message<'_>,
        in_flight: InFlight,
        streams: bool,
    ) -> Outcome {
        let options = CallOptions { declares: self.connection.declares, ..CallOptions::default() };
        let call = match link.send(message, options).await {
            Ok(call) => call,
            Err(error) => return Outcome::Done(self.failed(&link, &error)),
        };
        in_flight.sent(&call.canceller());
        Following {
            errand: Some(self),
            call: Some(call),
            link: Some(link),
            in_flight: Some(in_flight),
        }
        .wait(streams)
        .await
    }

    fn failed(&self, link: &Held, error: &CallError) -> Done {
        // What does not depend on state says nothing about it: the next one that does will be told. And
        // what we only let go of may still be there.
        if let Some(loss) = error.loss()
            && losses::depends_on_state(&self.method)
            && loss.reason() != LossReason::Released
        {
            return self.lost(link.generation(), loss, error.delivery());
        }
        Done::new(reply::failure(&self.id, &self.method, &error.to_string()))
    }

    /// The link was lost under this call: its answer tells.
    fn lost(&self, generation: Generation, loss: &Loss, delivery: Delivery) -> Done {
        self.told(generation.next(), losses::reason(loss.reason()), delivery)
    }

    fn ended(&self, link: &Held, end: Result<stayput_upstream::Answer, CallError>) -> Option<Done> {
        match end {
            Ok(answer) => Some(Done::new(answer.into_bytes())),
            Err(CallError::Cancelled) => None,
            Err(error) => Some(self.failed(link, &error)),
        }
    }
}

/// A call that is waited for. Dropped before its end, because the client went away, it goes on in the
/// background: to go away is not to cancel.
struct Following {
    errand: Option<Errand>,
    call: Option<Call>,
    link: Option<Held>,
    in_flight: Option<InFlight>,
}

impl Following {
    async fn wait(mut self, streams: bool) -> Outcome {
        let patience = self.errand.as_ref().map(|errand| errand.house.rules.patience);
        let patience = tokio::time::sleep(patience.unwrap_or_default());
        tokio::pin!(patience);
        loop {
            let Some(call) = &mut self.call else { return Outcome::Cancelled };
            let first = tokio::select! {
                biased;
                incoming = call.next() => incoming,
                () = &mut patience, if streams => return self.detach(None, true),
            };
            match first {
                Some(Incoming::Answer(end)) => return self.finish(end),
                None => return Outcome::Cancelled,
                first if streams => return self.detach(first, true),
                // Who reads no streams hears nothing but answers; questions are refused.
                _ => {}
            }
        }
    }

    fn finish(mut self, end: Result<stayput_upstream::Answer, CallError>) -> Outcome {
        self.call = None;
        let done = match (&self.errand, &self.link) {
            (Some(errand), Some(link)) => errand.ended(link, end),
            _ => None,
        };
        done.map_or(Outcome::Cancelled, Outcome::Done)
    }

    /// Goes on in a task of its own, on a stream that can be taken up again.
    fn detach(&mut self, first: Option<Incoming>, keep: bool) -> Outcome {
        let taken = (self.errand.take(), self.call.take(), self.link.take(), self.in_flight.take());
        let (Some(errand), Some(call), Some(link), Some(in_flight)) = taken else {
            return Outcome::Cancelled;
        };
        let stream = new_stream(&errand.connection, keep);
        let pursuit = Pursuit { errand, call, link, _in_flight: in_flight, stream: stream.clone() };
        tokio::runtime::Handle::current().spawn(pursuit.run(first));
        Outcome::Stream(stream)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if self.call.is_some() && self.errand.is_some() {
            // Nobody knows of this stream, so nobody can take it up.
            self.detach(None, false);
        }
    }
}

/// A new stream of a connection, kept or not so that it can be taken up again.
pub(crate) fn new_stream(connection: &Connection, keep: bool) -> Arc<Stream> {
    let mut bytes = [0; 8];
    // Without randomness numbers could meet; the seal of an id still says whose it is.
    let _ = getrandom::fill(&mut bytes);
    let stream = Stream::new(Topic {
        owner: connection.owner.clone(),
        session: connection.session,
        // Stores have signed numbers.
        stream: u64::from_be_bytes(bytes) >> 1,
    });
    if keep {
        connection.streams.keep(&stream);
    }
    stream
}

/// A call whose answer goes to a stream, whoever reads it.
struct Pursuit {
    errand: Errand,
    call: Call,
    link: Held,
    _in_flight: InFlight,
    stream: Arc<Stream>,
}

impl Pursuit {
    async fn run(mut self, first: Option<Incoming>) {
        let mut next = first;
        loop {
            let incoming = match next.take() {
                Some(first) => Some(first),
                None => self.call.next().await,
            };
            match incoming {
                Some(Incoming::Answer(end)) => {
                    if let Some(done) = self.errand.ended(&self.link, end) {
                        self.stream.push_then(done.text, done.then);
                    }
                    break;
                }
                Some(incoming) => say(&self.errand.connection, &self.stream, incoming),
                None => break,
            }
        }
        self.stream.end();
    }
}

/// Passes on what a server says or asks.
pub(crate) fn say(connection: &Connection, stream: &Stream, incoming: Incoming) {
    match incoming {
        Incoming::Notification(text) => stream.push(withdrawn(connection, text)),
        Incoming::Request(asked) => stream.push(ask(connection, asked)),
        _ => {}
    }
}

/// A question under an id of ours: servers do not agree on theirs.
fn ask(connection: &Connection, asked: Asked) -> Bytes {
    let text = asked.text().clone();
    let number = connection.ask(asked).to_string();
    let Ok(message) = Message::parse(&text) else { return text };
    let mut edits = message.edit();
    if let Some(id) = message.id() {
        edits.replace(id.raw(), &number);
    }
    edits.apply().map_or_else(|_| text.clone(), |edited| edited.into_owned().into())
}

/// A question that the server takes back is named by the id that the client knows.
fn withdrawn(connection: &Connection, text: Bytes) -> Bytes {
    let Ok(message) = Message::parse(&text) else { return text };
    if message.method() != Some("notifications/cancelled") {
        return text;
    }
    let id = message.params().and_then(|params| params.find(&["requestId"]));
    let number = id.map(Raw::as_str).and_then(|id| connection.withdraw(id));
    let Some((id, number)) = id.zip(number) else { return text.clone() };
    let mut edits = message.edit();
    edits.replace(id, &number.to_string());
    edits.apply().map_or_else(|_| text.clone(), |edited| edited.into_owned().into())
}

/// An outcome as an answer of HTTP.
pub(crate) fn respond(house: &House, outcome: Outcome) -> Response<Reply> {
    match outcome {
        Outcome::Done(Done { text, then }) => reply::message_then(text, then),
        Outcome::Stream(stream) => reply::stream(stream.read_after(0, &house.ids)),
        Outcome::Cancelled => reply::status(http::StatusCode::ACCEPTED),
    }
}
