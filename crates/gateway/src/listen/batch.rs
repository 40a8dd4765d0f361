//! Batches of messages (2025-03-26).

use http::{Response, StatusCode};
use stayput_wire::{Batch, Code, Version};

use crate::reply::{self, AfterWrite, Reply, ReplyText};

/// Splits a batch of a client that speaks `version`, if that is known.
///
/// # Errors
/// The JSON-RPC error for the client, if the version has no batches or the batch is malformed.
pub(super) fn split<'b>(version: Option<&Version>, body: &'b [u8]) -> Result<Batch<'b>, String> {
    if !version.is_some_and(Version::has_batches) {
        return Err(refusal());
    }
    Batch::split(body).map_err(|error| error.answer())
}

/// Builds the JSON-RPC error for a client whose version has no batches.
pub(super) fn refusal() -> String {
    let sentence = "this version of the protocol has no batches; send each message alone";
    reply::error("null", Code::INVALID_REQUEST, sentence)
}

/// Builds one response of all answers to a batch.
pub(super) fn join(answers: Vec<ReplyText>) -> Response<Reply> {
    if answers.is_empty() {
        return reply::status(StatusCode::ACCEPTED);
    }
    let texts: Vec<&[u8]> = answers.iter().map(|done| &*done.text).collect();
    let all = [b"[".as_slice(), &texts.join(&b','), b"]"].concat();
    let then: Vec<_> = answers.into_iter().filter_map(|done| done.then).collect();
    let session = then.iter().find_map(|then| then.session);
    let all_actions = move || then.into_iter().for_each(AfterWrite::run);
    reply::message_then(all, Some(AfterWrite::new(session, all_actions)))
}
