//! Requests to one server, whose names and results pass as they are.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use stayput_upstream::{Place, Server};
use stayput_wire::{Code, Era, Message};

use crate::{
    account::Account,
    aggregate,
    config::Tools,
    connection::Connection,
    forward::{self, Done, Errand, Outcome},
    house::House,
    identify::Claim,
    latest, lists, reply,
    request::Along,
    session_tools, subscriptions,
    visit::Asked,
};

/// One request of a client, to its server.
pub(crate) async fn request(
    house: &Arc<House>,
    connection: &Arc<Connection>,
    name: &str,
    message: &Message<'_>,
    along: Along<'_>,
) -> Outcome {
    let id = message.id().map(|id| id.as_str()).unwrap_or_default();
    let method = message.method().unwrap_or_default();
    let Some(server) = house.servers.get(name) else {
        let asked = Asked { id, method };
        let sentence = latest::gone(name);
        return Outcome::Done(Done::new(reply::failure(asked, Era::Legacy, &sentence)));
    };
    let claim = along.claim(connection, Some(server), message);
    // In a box, as all that is rare: every call would have to be as large.
    if session_tools::may_be(&claim)
        && let Some(done) = Box::pin(session_tools::call(house, claim)).await
    {
        return Outcome::Done(done);
    }
    let tools = house.tools.get(name).filter(|tools| !tools.passes_all());
    if let Some(tools) = tools.filter(|_| method == "tools/call")
        && !named_tool(message).is_some_and(|name| tools.allows(&name))
    {
        house.metrics.refused("denied_tool");
        Account::denied(house, claim.begun());
        // As for one that is not there.
        let sentence = "Unknown tool";
        return Outcome::Done(Done::new(reply::error(id, Code::INVALID_PARAMS, sentence)));
    }
    if method == "logging/setLevel" {
        return Box::pin(set_level(house, connection, server, (message, along))).await;
    }
    if method.ends_with("/list")
        && let Some(page) = Box::pin(known(house, connection, claim, tools)).await
    {
        return Outcome::Done(Done::new(reply::result(id, &page)));
    }
    let added = house.takes_argument(&claim) || house.shows_tools(&claim);
    if method != "tools/list" || (tools.is_none() && !added) {
        let outcome = Errand::run(house, connection, server, message, along).await;
        if connection.wish(message) {
            Box::pin(keep_wish(house, connection)).await;
            if method == "resources/unsubscribe" {
                Box::pin(subscriptions::renew(house, connection, message)).await;
            }
        }
        return outcome;
    }
    // At once and not on a stream, so that it can be looked through.
    let whole = Along { streams: false, ..along };
    let listed = Box::pin(Errand::run(house, connection, server, message, whole)).await;
    Box::pin(edited(house, claim, tools, listed)).await
}

/// A list as it is known, and as it is to be shown.
async fn known(
    house: &Arc<House>,
    connection: &Connection,
    claim: Claim<'_>,
    tools: Option<&Tools>,
) -> Option<String> {
    let page = lists::known(house, claim.server?, connection, claim.message).await?;
    Some(match claim.asked().method {
        "tools/list" => shown(house, claim, tools, &page).await.into_owned(),
        _ => page,
    })
}

/// Keeps what a client wants from every link, before it is told that it will get it.
pub(crate) async fn wish(house: &House, connection: &Connection, message: &Message<'_>) {
    if connection.wish(message) {
        keep_wish(house, connection).await;
    }
}

async fn keep_wish(house: &House, connection: &Connection) {
    if let Err(error) = house.keep(connection).await {
        house.log.warn(&format!("what a client wants to hear was not kept: {error}"));
    }
}

/// A page of tools without those that are not passed on, and with what we add.
async fn shown<'a>(
    house: &Arc<House>,
    claim: Claim<'_>,
    tools: Option<&Tools>,
    page: &'a str,
) -> Cow<'a, str> {
    let page = tools.map_or(page.into(), |tools| tools.filter(page));
    house.shown(&claim, &page).await.map_or(page, Cow::Owned)
}

/// The level holds for every session of the connection. Where there is no link yet, it is told when
/// there is one.
async fn set_level(
    house: &Arc<House>,
    connection: &Arc<Connection>,
    server: &Server,
    (message, along): (&Message<'_>, Along<'_>),
) -> Outcome {
    wish(house, connection, message).await;
    let own = connection.default_session();
    let find = |session| house.links.find(server, &Place::new(connection.owner.clone(), session));
    let others = connection.sessions().into_iter().filter(|it| *it != own).filter_map(find);
    // Several sessions may share one.
    let others: HashMap<_, _> = others.map(|link| (link.key().clone(), link)).collect();
    aggregate::all(others.values().map(|link| forward::tell_level(connection, link))).await;
    if find(own).is_some() {
        return Errand::run(house, connection, server, message, along).await;
    }
    let id = message.id().map_or("null", |id| id.as_str());
    Outcome::Done(Done::new(reply::result(id, "{}")))
}

/// The tool that a call names; none if it names two.
fn named_tool(message: &Message<'_>) -> Option<String> {
    let name = message.params()?.find_unique(&["name"]).ok()??;
    name.text().map(Cow::into_owned)
}

/// An answer to `tools/list` as it is to be shown.
async fn edited(
    house: &Arc<House>,
    claim: Claim<'_>,
    tools: Option<&Tools>,
    outcome: Outcome,
) -> Outcome {
    let Outcome::Done(done) = outcome else { return outcome };
    let Some(answer) = Message::parse(&done.text).ok() else { return Outcome::Done(done) };
    let Some(result) = answer.result() else { return Outcome::Done(done) };
    let page = shown(house, claim, tools, result.as_str()).await;
    let mut edits = answer.edit();
    edits.replace(result, &page);
    let text = edits.apply().ok().map(Cow::into_owned);
    match text {
        Some(text) => Outcome::Done(Done { text: text.into(), ..done }),
        None => Outcome::Done(done),
    }
}
