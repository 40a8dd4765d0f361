//! What clients post.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Response, StatusCode};
use stayput_wire::{Batch, Code, Kind, Message, Version, header as mcp};

use super::http::{accepts, named};
use crate::{
    forward::{self, Done, Outcome},
    handshake::{self, Greeted},
    heed::heed,
    house::House,
    identify, modern,
    reply::{self, Reply},
    request,
    target::Target,
};

/// Takes in the body of a POST.
pub(super) async fn take(
    house: &Arc<House>,
    target: &Target,
    headers: &HeaderMap,
    body: &[u8],
) -> Response<Reply> {
    if Batch::is_batch(body) && modern::is_named(headers) {
        let sentence = "this version of the protocol has no batches; send each message alone";
        let status = StatusCode::BAD_REQUEST;
        return reply::refusal(status, None, Code::INVALID_REQUEST, sentence);
    }
    if Batch::is_batch(body) {
        return take_batch(house, target, headers, body).await;
    }
    let message = match Message::parse(body) {
        Ok(message) => message,
        Err(error) => return bad(error.answer()),
    };
    if modern::is_spoken(headers, &message) {
        return modern::take(house, target, headers, &message).await;
    }
    if message.method() == Some("initialize") && message.id().is_some() {
        let owner = identify::owner(headers);
        return greeted(handshake::initialize(house, &owner, target, &message).await);
    }
    if let Some(refused) = unknown_version(headers) {
        return refused;
    }
    let connection = match named(house, target, headers).await {
        Ok(connection) => connection,
        Err(refused) => return refused,
    };
    if !matches!(message.kind(), Kind::Request { .. }) {
        heed(house, &connection, &message);
        return reply::status(StatusCode::ACCEPTED);
    }
    let streams = accepts(headers, mcp::EVENT_STREAM);
    let outcome = request::answer(house, &connection, &message, streams).await;
    forward::respond(house, outcome)
}

fn greeted(Greeted { answer, name, later }: Greeted) -> Response<Reply> {
    let mut response = reply::message(answer);
    if later {
        return reply::later(response);
    }
    let name = name.and_then(|name| HeaderValue::from_str(name.expose()).ok());
    if let Some(name) = name {
        response.headers_mut().insert(mcp::SESSION_ID, name);
    }
    response
}

fn bad(answer: String) -> Response<Reply> {
    let mut response = reply::message(answer);
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

fn unknown_version(headers: &HeaderMap) -> Option<Response<Reply>> {
    let said = headers.get(mcp::PROTOCOL_VERSION)?.to_str().unwrap_or("?");
    if Version::from(said).is_known() {
        return None;
    }
    let sentence = "MCP-Protocol-Version names a version that is not known here";
    Some(reply::refusal(StatusCode::BAD_REQUEST, None, Code::INVALID_REQUEST, sentence))
}

/// Several messages at once, as 2025-03-26 had them: their answers come together.
async fn take_batch(
    house: &Arc<House>,
    target: &Target,
    headers: &HeaderMap,
    body: &[u8],
) -> Response<Reply> {
    let connection = match named(house, target, headers).await {
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
                if let Outcome::Done(done) =
                    request::answer(house, &connection, &message, false).await
                {
                    answers.push(done);
                }
            }
            Ok(message) => {
                heed(house, &connection, &message);
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
