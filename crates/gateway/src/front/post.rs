//! What clients post.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Response, StatusCode};
use stayput_core::{Handle, Owner, Session, Wish};
use stayput_upstream::{Hello, Place, Profile};
use stayput_wire::{Batch, Code, Era, Kind, Message, Version, header as mcp, meta};

use super::http::{accepts, named};
use crate::{
    config::Tools,
    connection::Connection,
    forward::{self, Done, Errand, Outcome},
    house::House,
    lists,
    reply::{self, Reply},
};

/// Takes in the body of a POST.
pub(super) async fn take(
    house: &Arc<House>,
    server: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Response<Reply> {
    if Batch::is_batch(body) {
        return take_batch(house, server, headers, body).await;
    }
    let message = match Message::parse(body) {
        Ok(message) => message,
        Err(error) => return bad(error.answer()),
    };
    if let Some(refused) = modern(&message) {
        return refused;
    }
    if message.method() == Some("initialize") && message.id().is_some() {
        return initialize(house, server, &message).await;
    }
    if let Some(refused) = unknown_version(headers) {
        return refused;
    }
    let connection = match named(house, server, headers).await {
        Ok(connection) => connection,
        Err(refused) => return refused,
    };
    if !matches!(message.kind(), Kind::Request { .. }) {
        heed(&connection, &message);
        pass_notification(house, &connection, &message);
        return reply::status(StatusCode::ACCEPTED);
    }
    let streams = accepts(headers, mcp::EVENT_STREAM);
    let outcome = request(house, &connection, &message, streams).await;
    forward::respond(house, outcome)
}

fn bad(answer: String) -> Response<Reply> {
    let mut response = reply::message(answer);
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

/// A request of the modern era is told which versions are spoken here; its client falls back.
fn modern(message: &Message<'_>) -> Option<Response<Reply>> {
    let said = message.params()?.find(&[meta::META, meta::PROTOCOL_VERSION])?.text()?;
    if Version::from(&*said).era() == Era::Legacy {
        return None;
    }
    let legacy = Version::KNOWN.iter().filter(|version| version.era() == Era::Legacy);
    let supported: Vec<_> = legacy.map(Version::as_str).collect();
    let data = serde_json::json!({ "supported": supported, "requested": said });
    let id = message.id().map_or("null".to_owned(), |id| id.as_str().to_owned());
    let code = Code::UNSUPPORTED_VERSION.0;
    Some(bad(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"this version is not spoken here yet","data":{data}}}}}"#
    )))
}

fn unknown_version(headers: &HeaderMap) -> Option<Response<Reply>> {
    let said = headers.get(mcp::PROTOCOL_VERSION)?.to_str().unwrap_or("?");
    if Version::from(said).is_known() {
        return None;
    }
    let sentence = "MCP-Protocol-Version names a version that is not known here";
    Some(reply::refusal(StatusCode::BAD_REQUEST, None, Code::INVALID_REQUEST, sentence))
}

/// Shakes hands: a new connection, and a new session behind it. Both are kept before the answer leaves.
async fn initialize(house: &Arc<House>, server: &str, message: &Message<'_>) -> Response<Reply> {
    let id = message.id().map_or("null".to_owned(), |id| id.as_str().to_owned());
    let params = message.params();
    let find = |name: &str| params.and_then(|params| params.find(&[name]));
    let said = find("protocolVersion").and_then(|version| version.text().map(|it| it.into_owned()));
    let Some(said) = said else {
        let sentence = "`initialize` needs a protocolVersion";
        return reply::message(reply::error(&id, Code::INVALID_PARAMS, sentence));
    };
    let version = spoken(&said);
    let capabilities = find("capabilities").map_or("{}", |it| it.as_str());
    let info = find("clientInfo").map_or(r#"{"name":"unknown","version":"0"}"#, |it| it.as_str());
    let hello = match Hello::new(info, capabilities) {
        Ok(hello) => hello,
        Err(error) => {
            return reply::message(reply::error(&id, Code::INVALID_PARAMS, &error.to_string()));
        }
    };
    match open(house, server, version.clone(), hello).await {
        Ok((name, profile)) => {
            let greeting = lists::greeting(&profile, &version);
            let mut response = reply::message(reply::result(&id, &greeting));
            if let Ok(name) = HeaderValue::from_str(name.expose()) {
                response.headers_mut().insert(mcp::SESSION_ID, name);
            }
            response
        }
        Err(sentence) => reply::message(reply::error(&id, Code::INTERNAL_ERROR, &sentence)),
    }
}

/// What is spoken with a client that asks for this version.
fn spoken(said: &str) -> Version {
    let version = Version::from(said);
    if version.is_known() && version.era() == Era::Legacy {
        version
    } else {
        Version::LATEST_LEGACY
    }
}

async fn open(
    house: &Arc<House>,
    name: &str,
    version: Version,
    hello: Hello,
) -> Result<(Handle, Arc<Profile>), String> {
    let owner = Owner::anonymous();
    let server = house.servers.get(name).ok_or("there is no such server")?;
    let opened = house.sessions.open(&Wish::new(owner.clone())).await;
    let session = opened.map_err(|error| error.to_string())?.session;
    let unclaimed = Unclaimed { house, session: Some(session.session().clone()) };
    let place = Place::new(owner.clone(), session.id());
    let profile = house.links.profile_for(server, &place, &hello).await;
    let profile = profile.map_err(|error| error.to_string())?;
    let connection = Connection::new(owner.clone(), session.id(), name.into(), version, hello);
    let handle = Handle::generate();
    let kept = house.sessions.connect(&session, &handle, &connection.to_bytes()).await;
    kept.map_err(|error| error.to_string())?;
    house.connections.insert(handle.hash(&owner), Arc::new(connection));
    unclaimed.claim();
    house.log.info(&format!("session {} opened on {name}", session.id()));
    Ok((handle, profile))
}

/// A session that no connection leads to yet. Dropped, because its client went away or its server cannot
/// be asked, it ends.
struct Unclaimed<'a> {
    house: &'a Arc<House>,
    session: Option<Arc<Session>>,
}

impl Unclaimed<'_> {
    fn claim(mut self) {
        self.session = None;
    }
}

impl Drop for Unclaimed<'_> {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        let house = self.house.clone();
        tokio::runtime::Handle::current().spawn(async move {
            // If this fails, it idles out.
            let _ = house.sessions.end(&session).await;
        });
    }
}

/// Answers and notifications of a client, as far as they are for us.
fn heed(connection: &Connection, message: &Message<'_>) {
    match message.kind() {
        Kind::Response { id, .. } | Kind::Error { id: Some(id), .. } => {
            if let Some(asked) = id.number().and_then(|id| connection.asked(id)) {
                asked.pass(message.text().as_bytes());
            }
        }
        Kind::Notification { method, params } if method == "notifications/cancelled" => {
            let id = params.and_then(|params| params.find(&["requestId"]));
            if let Some(id) = id {
                connection.cancel(id.as_str());
            }
        }
        _ => {}
    }
}

/// Other notifications go to the server, if there is a link to it: a child is not started for one.
fn pass_notification(house: &House, connection: &Connection, message: &Message<'_>) {
    let ours = ["notifications/initialized", "notifications/cancelled"];
    let Some(method) = message.method().filter(|method| !ours.contains(method)) else { return };
    let _ = method;
    let place = Place::new(connection.owner.clone(), connection.session);
    if let Some(server) = house.servers.get(&*connection.server)
        && let Some(link) = house.links.find(server, &place)
    {
        let _ = link.tell(message);
    }
}

/// One request of a client.
async fn request(
    house: &Arc<House>,
    connection: &Arc<Connection>,
    message: &Message<'_>,
    streams: bool,
) -> Outcome {
    let id = message.id().map(|id| id.as_str().to_owned()).unwrap_or_default();
    let method = message.method().unwrap_or_default();
    if method == "ping" {
        return Outcome::Done(Done::new(reply::result(&id, "{}")));
    }
    let tools = house.tools.get(&*connection.server).filter(|tools| !tools.passes_all());
    if let Some(tools) = tools.filter(|_| method == "tools/call")
        && !named_tool(message).is_some_and(|name| tools.allows(&name))
    {
        // As for one that is not there.
        let sentence = "Unknown tool";
        return Outcome::Done(Done::new(reply::error(&id, Code::INVALID_PARAMS, sentence)));
    }
    if let Some(server) = house.servers.get(&*connection.server) {
        let place = Place::new(connection.owner.clone(), connection.session);
        let link = house.links.find(server, &place);
        if method == "logging/setLevel" {
            if let Some(params) = message.params() {
                connection.set_log_level(params.as_str());
            }
            if link.is_none() {
                return Outcome::Done(Done::new(reply::result(&id, "{}")));
            }
        }
        // What a server lists is known without it, until it says that it changed.
        let changed = link.is_some_and(|link| link.lists_changed() > 0);
        if method.ends_with("/list")
            && !changed
            && let Ok(profile) = house.links.profile_for(server, &place, &connection.hello).await
            && let Some(page) = lists::page(&profile, method, message.params())
        {
            let page =
                tools.filter(|_| method == "tools/list").map_or(page.into(), |it| it.filter(page));
            return Outcome::Done(Done::new(reply::result(&id, &page)));
        }
    }
    match tools.filter(|_| method == "tools/list") {
        // At once and not on a stream, so that it can be looked through.
        Some(tools) => without_denied(tools, Errand::run(house, connection, message, false).await),
        None => Errand::run(house, connection, message, streams).await,
    }
}

/// The tool that a call names; none if it names two.
fn named_tool(message: &Message<'_>) -> Option<String> {
    let name = message.params()?.find_unique(&["name"]).ok()??;
    name.text().map(std::borrow::Cow::into_owned)
}

/// A list of tools without those that are not passed on.
fn without_denied(tools: &Tools, outcome: Outcome) -> Outcome {
    let Outcome::Done(done) = outcome else { return outcome };
    let filtered = Message::parse(&done.text).ok().and_then(|answer| {
        let result = answer.result()?;
        let mut edits = answer.edit();
        edits.replace(result, &tools.filter(result.as_str()));
        Some(edits.apply().ok()?.into_owned())
    });
    match filtered {
        Some(text) => Outcome::Done(Done { text: text.into(), ..done }),
        None => Outcome::Done(done),
    }
}

/// Several messages at once, as 2025-03-26 had them: their answers come together.
async fn take_batch(
    house: &Arc<House>,
    server: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Response<Reply> {
    let connection = match named(house, server, headers).await {
        Ok(connection) => connection,
        Err(refused) => return refused,
    };
    let batch = match Batch::split(body) {
        Ok(batch) if connection.version.has_batches() => batch,
        Ok(_) => {
            let sentence = "this version of the protocol has no batches; send each message alone";
            let status = StatusCode::BAD_REQUEST;
            return reply::refusal(status, None, Code::INVALID_REQUEST, sentence);
        }
        Err(error) => return bad(error.answer()),
    };
    let mut answers: Vec<Done> = Vec::new();
    for text in batch.messages() {
        match Message::parse(text.as_bytes()) {
            Ok(message) if matches!(message.kind(), Kind::Request { .. }) => {
                if let Outcome::Done(done) = request(house, &connection, &message, false).await {
                    answers.push(done);
                }
            }
            Ok(message) => {
                heed(&connection, &message);
                pass_notification(house, &connection, &message);
            }
            Err(error) => answers.push(Done::new(error.answer())),
        }
    }
    if answers.is_empty() {
        return reply::status(StatusCode::ACCEPTED);
    }
    let mut all = vec![b'['];
    for (at, done) in answers.iter().enumerate() {
        if at > 0 {
            all.push(b',');
        }
        all.extend_from_slice(&done.text);
    }
    all.push(b']');
    let then: Vec<_> = answers.into_iter().filter_map(|done| done.then).collect();
    reply::message_then(all, Some(Box::new(move || then.into_iter().for_each(|then| then()))))
}
