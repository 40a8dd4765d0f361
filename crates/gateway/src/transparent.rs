//! Requests to one server, whose names and results pass as they are.

use std::sync::Arc;

use stayput_upstream::Place;
use stayput_wire::{Code, Era, Message};

use crate::{
    config::Tools,
    connection::Connection,
    forward::{Done, Errand, Outcome},
    house::House,
    lists, reply,
    visit::Asked,
};

/// One request of a client, to its server.
pub(crate) async fn request(
    house: &Arc<House>,
    connection: &Arc<Connection>,
    name: &str,
    message: &Message<'_>,
    streams: bool,
) -> Outcome {
    let id = message.id().map(|id| id.as_str().to_owned()).unwrap_or_default();
    let method = message.method().unwrap_or_default();
    let Some(server) = house.servers.get(name) else {
        let asked = Asked { id: &id, method };
        let sentence = format!("there is no server `{name}` any more");
        return Outcome::Done(Done::new(reply::failure(asked, Era::Legacy, &sentence)));
    };
    let tools = house.tools.get(name).filter(|tools| !tools.passes_all());
    if let Some(tools) = tools.filter(|_| method == "tools/call")
        && !named_tool(message).is_some_and(|name| tools.allows(&name))
    {
        house.metrics.refused("denied_tool");
        // As for one that is not there.
        let sentence = "Unknown tool";
        return Outcome::Done(Done::new(reply::error(&id, Code::INVALID_PARAMS, sentence)));
    }
    let place = Place::new(connection.owner.clone(), connection.session);
    if method == "logging/setLevel" && house.links.find(server, &place).is_none() {
        wish(house, connection, message).await;
        return Outcome::Done(Done::new(reply::result(&id, "{}")));
    }
    if method.ends_with("/list")
        && let Some(page) = lists::known(house, server, (&place, &connection.hello), message).await
    {
        let page =
            tools.filter(|_| method == "tools/list").map_or((&*page).into(), |it| it.filter(&page));
        return Outcome::Done(Done::new(reply::result(&id, &page)));
    }
    match tools.filter(|_| method == "tools/list") {
        // At once and not on a stream, so that it can be looked through.
        Some(tools) => {
            without_denied(tools, Errand::run(house, connection, server, message, false).await)
        }
        None => {
            let outcome = Errand::run(house, connection, server, message, streams).await;
            wish(house, connection, message).await;
            outcome
        }
    }
}

/// Keeps what a client wants from every link, before it is told that it will get it.
pub(crate) async fn wish(house: &House, connection: &Connection, message: &Message<'_>) {
    if connection.wish(message)
        && let Err(error) = house.keep(connection).await
    {
        house.log.warn(&format!("what a client wants to hear was not kept: {error}"));
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
