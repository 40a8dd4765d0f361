//! A request to a server, from its parameters to its answer.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use stayput_config::OnLoss;
use stayput_upstream::{Answer, Call, CallError, CallOptions, Held, Incoming};
use stayput_wire::{Era, Raw, meta};

use crate::{Error, Handlers, Hub, ambient::Ambient, handlers::Question, hold::Hold, visit::Visit};

/// Hears what a server says while a call is under way: a whole notification, as JSON.
type Hears = Box<dyn FnMut(&str) + Send>;

/// The answers to questions that are under way.
type Answering = Vec<Pin<Box<dyn Future<Output = ()> + Send>>>;

/// How often a server may answer with a question: one that never has enough is stopped.
const ROUNDS: u32 = 16;

/// How long is waited before the next try when a server only wants to be asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// A request to a server, before it is sent.
pub(crate) struct Request {
    hub: Hub,
    ambient: Result<Arc<Ambient>, Error>,
    pub(crate) server: String,
    method: &'static str,
    params: Result<String, Error>,
    /// The tool, if it is a call of one.
    pub(crate) tool: Option<Box<str>>,
    pub(crate) limit: Option<Duration>,
    pub(crate) hears: Option<Hears>,
    /// Once more after a loss, if it surely did not run.
    pub(crate) again: bool,
}

/// A result that wants input.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wanted<'a> {
    #[serde(default)]
    input_requests: BTreeMap<String, Question>,
    #[serde(borrow)]
    request_state: Option<&'a RawValue>,
}

impl Request {
    pub(crate) fn new(
        hub: &Hub,
        hold: Option<Arc<Hold>>,
        server: &str,
        (method, params): (&'static str, Result<String, Error>),
    ) -> Self {
        // Now and not when it is awaited, so that a call can be given to another task.
        let ambient = match hold {
            Some(hold) => Ok(hub.ambient_of(hold)),
            None => hub.current(),
        };
        Self {
            hub: hub.clone(),
            ambient,
            server: server.to_owned(),
            method,
            params,
            tool: None,
            limit: None,
            hears: None,
            again: false,
        }
    }

    /// The answer, and whether it comes from a state that was begun anew for it.
    pub(crate) async fn send(self) -> Result<(Answer, bool), Error> {
        let home = self.hub.inner.clone();
        home.home.at_home(self.perform()).await
    }

    async fn perform(mut self) -> Result<(Answer, bool), Error> {
        let ambient = std::mem::replace(&mut self.ambient, Err(Error::NoSession))?;
        let params = std::mem::replace(&mut self.params, Ok(String::new()))?;
        let entry = self.hub.entry(&self.server)?;
        if let Some(tool) = self.tool.as_deref().filter(|tool| !entry.tools.allows(tool)) {
            let (server, tool) = (self.server.clone(), tool.to_owned());
            return Err(Error::ToolDenied { server, tool });
        }
        let again = self.again || entry.on_loss == OnLoss::Restart;
        match self.once(&ambient, &params).await {
            Err(Error::StateLost(lost)) if again && !lost.may_have_run() => {
                Ok((self.once(&ambient, &params).await?, true))
            }
            answer => Ok((answer?, false)),
        }
    }

    async fn once(&mut self, ambient: &Arc<Ambient>, params: &str) -> Result<Answer, Error> {
        let visit = Visit::of(&self.hub, ambient, &self.server).await?;
        let link = visit.link().await?;
        if let Some(lost) = visit.pending_loss(&link).await? {
            return Err(Error::StateLost(lost));
        }
        let handlers = ambient.hold.handlers();
        let modern = link.greeting().era() == Era::Modern;
        let params = self.with_meta(params, modern.then_some(&*handlers));
        let answer = self.exchange(&visit, &link, &params, &handlers).await?;
        if !modern || !is_wanting(&answer) {
            return self.judge(answer);
        }
        // Boxed, so that the others do not carry the room for it.
        Box::pin(self.satisfied((&visit, &link), &params, &handlers, answer)).await
    }

    /// What a server of the modern era answers when it has all the input that it wants.
    async fn satisfied(
        &mut self,
        (visit, link): (&Visit, &Held),
        params: &str,
        handlers: &Arc<Handlers>,
        mut answer: Answer,
    ) -> Result<Answer, Error> {
        for round in 1..=ROUNDS {
            let wanted: Wanted<'_> =
                serde_json::from_str(answer.result().unwrap_or("{}")).map_err(Error::invalid)?;
            if wanted.input_requests.is_empty() {
                tokio::time::sleep(PAUSE * round).await;
            }
            let unanswered = |what| Error::Unanswered { server: self.server.clone(), what };
            let answers = handlers.answers(wanted.input_requests).await.map_err(unanswered)?;
            let answers = serde_json::Value::Object(answers).to_string();
            let mut members = format!(r#""inputResponses":{answers}"#);
            if let Some(state) = wanted.request_state {
                members = format!(r#"{members},"requestState":{}"#, state.get());
            }
            let params = with(params, &members);
            answer = self.exchange(visit, link, &params, handlers).await?;
            if !is_wanting(&answer) {
                return self.judge(answer);
            }
        }
        let what = format!("it asked {ROUNDS} times, and still wants to know more");
        Err(Error::Unanswered { server: self.server.clone(), what })
    }

    /// Sends it, and hears and answers until its answer comes.
    async fn exchange(
        &mut self,
        visit: &Visit,
        link: &Held,
        params: &str,
        handlers: &Arc<Handlers>,
    ) -> Result<Answer, Error> {
        let options = CallOptions { limit: self.limit, declares: handlers.declares() };
        let mut call = match link.call(self.method, Some(params), options).await {
            Ok(call) => call,
            Err(error) => return Err(visit.failed(link, error).await),
        };
        let mut answering = Answering::new();
        while let Some(incoming) = next(&mut call, &mut answering).await {
            match incoming {
                Incoming::Answer(Ok(answer)) => return Ok(answer),
                Incoming::Answer(Err(error)) => return Err(visit.failed(link, error).await),
                Incoming::Notification(text) => self.hear(&text),
                Incoming::Request(asked) => {
                    answering.push(Box::pin(handlers.clone().answer(asked)));
                }
                _ => {}
            }
        }
        Err(visit.failed(link, CallError::Cancelled).await)
    }

    fn hear(&mut self, text: &Bytes) {
        if let (Some(hears), Ok(text)) = (&mut self.hears, str::from_utf8(text)) {
            hears(text);
        }
    }

    fn judge(&self, answer: Answer) -> Result<Answer, Error> {
        let Some(raw) = answer.error() else { return Ok(answer) };
        Err(Error::Refused {
            server: self.server.clone(),
            code: answer.code().map_or(0, |code| code.0),
            message: answer.error_message().unwrap_or_default(),
            raw: raw.into(),
        })
    }

    /// Asks for progress, if somebody hears it: the link has tokens of its own on the wire, this one comes back
    /// to us. A server of the modern era is told with each request what can be asked.
    fn with_meta<'p>(
        &self,
        params: &'p str,
        handlers: Option<&Handlers>,
    ) -> std::borrow::Cow<'p, str> {
        let mut said = Vec::new();
        if self.hears.is_some() {
            said.push(r#""progressToken":"stayput""#.to_owned());
        }
        if let Some(handlers) = handlers.filter(|handlers| handlers.is_some()) {
            let capabilities = handlers.capabilities();
            said.push(format!(r#""{}":{capabilities}"#, meta::CLIENT_CAPABILITIES));
        }
        match said.is_empty() {
            true => params.into(),
            false => with(params, &format!(r#""_meta":{{{}}}"#, said.join(","))).into(),
        }
    }
}

/// What comes next on a call, while what it asked before is being answered. Whatever is still being answered
/// when the call ends is dropped with it.
async fn next(call: &mut Call, answering: &mut Answering) -> Option<Incoming> {
    let mut coming = pin!(call.next());
    poll_fn(|cx| {
        answering.retain_mut(|one| one.as_mut().poll(cx).is_pending());
        coming.as_mut().poll(cx)
    })
    .await
}

/// Whether a result wants input before there is one.
fn is_wanting(answer: &Answer) -> bool {
    let raw = answer.result().and_then(|result| Raw::parse(result).ok());
    let kind = raw.and_then(|raw| raw.find(&["resultType"])?.text());
    kind.is_some_and(|kind| kind == "input_required")
}

/// An object with more members. We wrote it, so it has none of them yet.
fn with(params: &str, members: &str) -> String {
    let open = params.trim_end().strip_suffix('}').unwrap_or(params);
    let comma = if open.trim_end().ends_with('{') { "" } else { "," };
    format!("{open}{comma}{members}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_added() {
        assert_eq!(with(r#"{"name":"t"}"#, r#""a":1"#), r#"{"name":"t","a":1}"#);
        assert_eq!(with("{}", r#""a":1"#), r#"{"a":1}"#);
    }
}
