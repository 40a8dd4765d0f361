//! Routing of client requests, in both eras: own tool? allowed? cached list? which server?

pub(crate) mod admission;
pub(crate) mod aggregate;
pub(crate) mod discover;
pub(crate) mod initialize;
pub(crate) mod lists;
pub(crate) mod preferences;
pub(crate) mod single;

use std::sync::Arc;

use stayput_core::ActiveSession;
use stayput_upstream::Server;
use stayput_wire::{Code, Era};

use crate::{
    call::{
        CallOutcome,
        modern::{bridge, validate::validate},
    },
    catalog::list,
    config::target::Target,
    identify::{self, Refusal, RequestContext},
    reply::ReplyText,
    session_tools,
    state::snapshot,
};

/// Whether a request depends on the connection and on no session that it names: lists as the client saw them last, and the
/// log level. Of several replicas, the one that holds the default session answers it.
fn belongs_home(context: &RequestContext<'_>) -> bool {
    let method = context.request_ref().method;
    context.app.cluster.is_some()
        && context.connection.is_some()
        && context.claim.is_none()
        && (list::is_list(method) || method == "logging/setLevel")
}

/// Answers a request. A legacy client has sent `initialize` before, alone: one in a batch would reach the server, whose link
/// other clients may share.
pub(crate) async fn answer(context: &RequestContext<'_>) -> CallOutcome {
    let asked = context.request_ref();
    if asked.method == "initialize" && context.era == Era::Legacy {
        let sentence = "`initialize` must not be in a batch; send it alone";
        return context.error(Code::INVALID_REQUEST, sentence).into();
    }
    if asked.method == "ping" && context.era == Era::Legacy {
        return context.result("{}").into();
    }
    if let Err(invalid) = validate(context) {
        return invalid.answer(asked.id).into();
    }
    if let (Target::Server(name), None) = (context.target, context.server) {
        return context.failure(&snapshot::gone(name)).into();
    }
    let claim = match Box::pin(claim(context)).await {
        Ok(claim) => claim,
        Err(answer) => return answer.into(),
    };
    let context = &RequestContext { claim: claim.as_ref(), ..*context };
    let in_its_era;
    let context = match (context.server, context.era) {
        (Some(server), Era::Modern) => {
            let opens = opens_link_soon(asked.method);
            let client = (context.era, opens.then(|| bridge::client_info(context.message)));
            let server = Box::pin(context.app.server_for(server, context.owner, client)).await;
            in_its_era = RequestContext { server: Some(server), ..*context };
            &in_its_era
        }
        _ => context,
    };
    if belongs_home(context)
        && let Some(refusal) =
            Box::pin(identify::refusal_if_home_is_elsewhere(context.app, context)).await
    {
        return refusal.answer(asked, context.era).into();
    }
    // Boxed, like every rare path: otherwise the future of every call would have its size.
    if session_tools::may_be(context)
        && let Some(done) = Box::pin(session_tools::call(context)).await
    {
        return done.into();
    }
    match context.server {
        Some(server) => single::answer(context, server).await,
        None => Box::pin(aggregate::answer(context)).await,
    }
}

/// Claims the process of the server that a request is for, if one replica holds it for all its users. Session tools are no
/// tools of that process, so they are answered before.
///
/// # Errors
/// The answer to the request: that of a session tool, or the refusal because another replica holds the process.
async fn claim(context: &RequestContext<'_>) -> Result<Option<Arc<ActiveSession>>, ReplyText> {
    let is_claimable = |server: &&Server| context.app.is_claimable(server, context.owner);
    let Some(server) = context.server.filter(is_claimable) else { return Ok(None) };
    if session_tools::may_be(context)
        && let Some(done) = session_tools::call(context).await
    {
        return Err(done);
    }
    let refused = |refusal: Refusal| refusal.answer(context.request_ref(), context.era);
    identify::claim_server(context, server).await.map_err(refused)
}

/// Whether a modern client that sends this request probably uses the server next. `server/discover` is its first request,
/// as `initialize` is that of a legacy client.
fn opens_link_soon(method: &str) -> bool {
    matches!(
        method,
        "server/discover" | "tools/call" | "prompts/get" | "resources/read" | "completion/complete"
    )
}
