//! One tool call in the scope of its session.

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
use stayput_identify::text;
use stayput_wire::meta;

use crate::{
    error::ERROR_MARKER,
    extract::session_extension,
    request::{
        RequestSession,
        scope::{RequestScope, run_in_scope},
    },
};

/// Future of a tool call.
type ToolFuture<'s> =
    Pin<Box<dyn Future<Output = Result<CallToolResponse, ErrorData>> + Send + 's>>;

/// Runs a tool, and adds the minted handle to its result. The context is large, so it is handed to the tool at once
/// instead of being kept in this future.
pub(super) fn run<'s, S>(
    inner: &DynCallToolHandler<S>,
    context: ToolCallContext<'s, S>,
) -> ToolFuture<'s> {
    let Some(request_session) =
        session_extension(&context.request_context.extensions).map(|it| it.0.clone())
    else {
        return inner(context);
    };
    // A synchronous tool runs inside this call.
    let call = run_in_scope(&request_session, || inner(context));
    Box::pin(SessionCall(RequestScope::new(request_session, call)))
}

/// Running tool call. Written by hand, because the result is large and nearly always passed on unchanged.
struct SessionCall<'s>(RequestScope<ToolFuture<'s>>);

impl Future for SessionCall<'_> {
    type Output = Result<CallToolResponse, ErrorData>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.0).poll(cx);
        match (&polled, self.0.request_session()) {
            (Poll::Ready(result), Some(request_session))
                if result.is_err() || request_session.minted_handle().is_some() =>
            {
                polled.map(|result| finish_result(result, request_session))
            }
            _ => polled,
        }
    }
}

/// Completes the result of a tool with the minted handle.
#[cold]
fn finish_result(
    result: Result<CallToolResponse, ErrorData>,
    request_session: &RequestSession,
) -> Result<CallToolResponse, ErrorData> {
    match (result.or_else(into_tool_error), request_session.minted_handle()) {
        (Ok(CallToolResponse::Complete(result)), Some(handle)) => {
            Ok(add_handle(result, handle, request_session).into())
        }
        (result, _) => result,
    }
}

/// Converts an error of this crate into a tool result that the model can read. `?` has turned it into `ErrorData` in
/// tools with other error types.
fn into_tool_error(error: ErrorData) -> Result<CallToolResponse, ErrorData> {
    if error.data.as_ref().is_some_and(|data| data.get(ERROR_MARKER).is_some()) {
        return Ok(CallToolResult::error(vec![ContentBlock::text(error.message)]).into());
    }
    Err(error)
}

/// Adds the handle to a result: in `_meta` for programs, and as text for the model, unless an error text contains it
/// already.
fn add_handle(
    mut result: CallToolResult,
    handle: &Handle,
    request_session: &RequestSession,
) -> CallToolResult {
    let meta_out = result.meta.get_or_insert_default();
    meta_out.insert(meta::SESSION.to_owned(), handle.expose().into());
    if request_session.open_minted_handle().is_some() {
        result.content.push(ContentBlock::text(text::minted(handle)));
    }
    result
}
