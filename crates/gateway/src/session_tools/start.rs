//! `session_start`.

use std::sync::Arc;

use stayput_core::{OpenOptions, OpenedSession, Origin, SessionOpenError};
use stayput_identify::tools::SessionView;

use super::{
    arguments,
    result::{self, Answer},
};
use crate::{
    identify::{self, FoundSession, Refusal, RequestContext},
    state::AppState,
};

/// Returns the requested session, and a handle for it.
pub(super) async fn call(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<Answer, Refusal> {
    let found = match arguments(context).chosen_key()? {
        // With `name` and without `session_id`, other name sources are ignored: the name is an explicit request. An
        // owner who lost a handle gets the session back by its name.
        Some((agent, key)) if !arguments(context).names_session()? => {
            found(identify::open_by_key(app, context, agent, key).await)?
        }
        _ => match identify::named_session(app, context, true).await?.found {
            Some(found) => found,
            None => fresh(app, context).await?,
        },
    };
    let origin = result::origin(context, &found);
    let handle = match found.handle {
        Some(handle) => handle,
        None => {
            let issued = app.sessions.issue_handle(&found.session).await;
            issued.map_err(|error| Refusal::for_open_error(&error, "Try again."))?
        }
    };
    let place = app.handle_place(context).await;
    let started = |view: &SessionView<'_>| view.started(&handle, &place);
    let reply = result::describe(&found.session, origin, started);
    let then = match origin {
        Origin::Lost(_) => {
            Some(result::acknowledge_when_written(app, context, found.session.session()))
        }
        Origin::New | Origin::Existing => None,
    };
    Ok(Answer { reply, then })
}

/// R148, E31: the id is generated here and never taken from the caller.
async fn fresh(app: &Arc<AppState>, context: &RequestContext<'_>) -> Result<FoundSession, Refusal> {
    let opened = app.open(&OpenOptions::new(context.owner.clone()), context.label()).await;
    found(opened)
}

fn found(opened: Result<OpenedSession, SessionOpenError>) -> Result<FoundSession, Refusal> {
    match opened {
        Ok(OpenedSession { session, origin }) => Ok(FoundSession { session, origin, handle: None }),
        Err(error) => Err(Refusal::for_open_error(&error, "Try again later.")),
    }
}
