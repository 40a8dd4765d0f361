//! One call of a tool, inside its session.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use rmcp::{
    ErrorData,
    handler::server::tool::{DynCallToolHandler, ToolCallContext},
    model::{CallToolResponse, CallToolResult, ContentBlock},
};
use stayput_core::Handle;
use stayput_wire::meta;

use crate::{
    error::OURS,
    extract::carried,
    scope::{Scoped, within},
    visit::Visit,
};

/// What a tool says in the end.
type Said<'s> = Pin<Box<dyn Future<Output = Result<CallToolResponse, ErrorData>> + Send + 's>>;

/// Runs a tool, and tells its client the handle that was made for it. What the tool was called with is large, and given
/// to it at once: then it does not have to be kept here.
pub(super) fn run<'s, S>(
    inner: &DynCallToolHandler<S>,
    context: ToolCallContext<'s, S>,
) -> Said<'s> {
    let Some(visit) = carried(&context.request_context.extensions).map(|it| it.0.clone()) else {
        return inner(context);
    };
    // A tool that is not async has done its work when this returns.
    let call = within(&visit, || inner(context));
    Box::pin(Watched(Scoped::new(visit, call)))
}

/// A tool that runs. By hand, because nearly always there is nothing to be added to what it says, and that is large.
struct Watched<'s>(Scoped<Said<'s>>);

impl Future for Watched<'_> {
    type Output = Result<CallToolResponse, ErrorData>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.0).poll(cx);
        match (&polled, self.0.visit()) {
            (Poll::Ready(said), Some(visit)) if said.is_err() || visit.minted().is_some() => {
                polled.map(|said| told(said, visit))
            }
            _ => polled,
        }
    }
}

/// What a client is told of what a tool said.
#[cold]
fn told(
    said: Result<CallToolResponse, ErrorData>,
    visit: &Visit,
) -> Result<CallToolResponse, ErrorData> {
    match (said.or_else(readable), visit.minted()) {
        (Ok(CallToolResponse::Complete(result)), Some(handle)) => {
            Ok(given(result, handle, visit).into())
        }
        (said, _) => said,
    }
}

/// An error of ours as what a model can read. `?` made another one of it where a tool returns other errors, too.
fn readable(error: ErrorData) -> Result<CallToolResponse, ErrorData> {
    if error.data.as_ref().is_some_and(|data| data.get(OURS).is_some()) {
        return Ok(CallToolResult::error(vec![ContentBlock::text(error.message)]).into());
    }
    Err(error)
}

/// A result that gives a handle out: to programs in `_meta`, and to the model in words where it did not get it in
/// an error.
fn given(mut result: CallToolResult, handle: &Handle, visit: &Visit) -> CallToolResult {
    let told = result.meta.get_or_insert_default();
    told.insert(meta::SESSION.to_owned(), handle.expose().into());
    if visit.given().is_some() {
        let sentence = format!(
            "This call ran in a new session: {}. Pass it as `session_id` in every later call of this \
             conversation, and keep it when the conversation is summarised; a call without it begins with \
             nothing.",
            handle.expose()
        );
        result.content.push(ContentBlock::text(sentence));
    }
    result
}
