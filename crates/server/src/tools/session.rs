//! Session tools.

use std::sync::Arc;

use rmcp::{
    ErrorData,
    handler::server::tool::{ToolCallContext, ToolRoute},
    model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations},
};
use stayput_core::Origin;
use stayput_identify::{
    ArgumentName, JsonValue,
    text::HandlePlace,
    tools::{LIST_PAGE, SessionTool, SessionView, ToolArguments, ToolError, ToolReply},
};

use crate::{
    Error, ServerSessions, State, names::SessionRef, registry::SessionGuard,
    request::RequestSession,
};

/// Returns the route of a session tool.
pub(super) fn route<S: Send + Sync + 'static>(
    tool: SessionTool,
    sessions: &ServerSessions,
    name: String,
) -> ToolRoute<S> {
    let hints = ToolAnnotations::new()
        .read_only(tool.is_read_only())
        .destructive(tool.is_destructive())
        .idempotent(tool.is_idempotent())
        .open_world(false);
    let description = tool.description(sessions.registry().settings.expiry);
    let definition = Tool::new(name, description, Arc::new(tool.input_schema()));
    ToolRoute::new_dyn(
        definition.with_annotations(hints),
        move |context: ToolCallContext<'_, S>| {
            Box::pin(async move {
                let state =
                    State::from_context(&context.request_context).map_err(ErrorData::from)?;
                let result = match call(tool, &state, context.arguments.unwrap_or_default()).await {
                    Ok(reply) => {
                        let mut result =
                            CallToolResult::success(vec![ContentBlock::text(reply.text)]);
                        result.structured_content = Some(reply.structure);
                        result
                    }
                    Err(error) => {
                        CallToolResult::error(vec![ContentBlock::text(error.to_string())])
                    }
                };
                Ok(result.into())
            })
        },
    )
}

async fn call(tool: SessionTool, state: &State, arguments: JsonObject) -> Result<ToolReply, Error> {
    let request = state.request_session();
    let arguments = ToolArguments::from_object(JsonValue::Object(&arguments));
    match tool {
        SessionTool::Start => start(request, arguments).await,
        SessionTool::Info => info(state).await,
        SessionTool::End => end(state).await,
        SessionTool::List => list(request, arguments).await,
        SessionTool::Switch => switch(request).await,
    }
}

/// Describes a session to a function of [`SessionView`].
fn describe(
    guard: &SessionGuard,
    request: &RequestSession,
    reply: impl FnOnce(&SessionView<'_>) -> ToolReply,
) -> ToolReply {
    let record = guard.session().record();
    let origin = match record.unacknowledged_loss() {
        Some(generation) => Origin::Lost(generation),
        None if guard.is_new => Origin::New,
        None => Origin::Existing,
    };
    let now = request.sessions().registry().now();
    reply(&SessionView { record: &record, origin, now })
}

async fn start(request: &RequestSession, arguments: ToolArguments<'_>) -> Result<ToolReply, Error> {
    let registry = request.sessions().registry();
    request.sessions().start_sweeper();
    let opened;
    let (guard, handle) = match (arguments.chosen_key()?, request.session_ref()) {
        // The name is an explicit request. A client that lost its handle gets the session back by name.
        (Some((agent, key)), _) if !request.is_named_by_argument() => {
            opened = registry.find_or_create(request.owner(), &agent, &key).await?;
            (&opened, None)
        }
        (_, SessionRef::Handle(handle)) => (request.session().await?, Some(handle.clone())),
        (_, SessionRef::Key(_) | SessionRef::Invalid(_)) => (request.session().await?, None),
        // R148, E31: the server mints the id and never takes one over from the caller.
        _ => {
            opened = registry.create(request.owner(), false).await?;
            (&opened, None)
        }
    };
    let session = guard.session();
    let handle = match handle {
        Some(handle) => handle,
        None => registry.issue_handle(session).await?,
    };
    let place = HandlePlace::Argument(ArgumentName::Plain);
    let reply = describe(guard, request, |view| view.started(&handle, &place));
    if session.record().unacknowledged_loss().is_some() {
        registry.acknowledge_loss(session.id()).await?;
    }
    Ok(reply)
}

async fn info(state: &State) -> Result<ToolReply, Error> {
    // Checks that the session was not ended elsewhere.
    state.info().await?;
    let request = state.request_session();
    Ok(describe(request.session().await?, request, |view| view.info()))
}

async fn end(state: &State) -> Result<ToolReply, Error> {
    let session = state.info().await?.session;
    state.end().await?;
    Ok(ToolReply::ended(session))
}

/// Lists the sessions of the owner. Anonymous clients share an owner, so they get no list.
async fn list(request: &RequestSession, arguments: ToolArguments<'_>) -> Result<ToolReply, Error> {
    let (registry, owner) = (request.sessions().registry(), request.owner());
    if owner.issuer().is_none() && !matches!(request.connection(), Some(SessionRef::Transport(_))) {
        return Err(ToolError::UncertainOwner.into());
    }
    if let Some(id) = arguments.session_id("session")? {
        let guard = registry.open_by_id(owner, id).await?;
        let handle = registry.issue_handle(guard.session()).await?;
        return Ok(ToolReply::issued(id, &handle));
    }
    let after = arguments.session_id("after")?;
    let page = registry.store.list(Some(owner), after, LIST_PAGE).await?;
    Ok(ToolReply::listed(&page, None, registry.now()))
}

async fn switch(request: &RequestSession) -> Result<ToolReply, Error> {
    let registry = request.sessions().registry();
    if !request.is_named_by_argument() {
        return Err(ToolError::MissingSession.into());
    }
    let guard = request.session().await?;
    match request.connection() {
        Some(SessionRef::Transport(transport)) => {
            transport.switch_to(registry, guard.session().id()).await?;
        }
        Some(SessionRef::Connection(name)) => registry.switch_connection(*name, guard).await?,
        _ => {
            return Err(Error::InvalidName(
                "this client has no connection to switch; pass the session_id in every call".into(),
            ));
        }
    }
    Ok(describe(guard, request, |view| view.switched()))
}
