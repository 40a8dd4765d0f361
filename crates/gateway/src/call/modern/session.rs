//! Modern calls to a server that keeps state, which first have to identify their session.

use std::sync::Arc;

use http::{Response, header};
use stayput_core::{ActiveSession, Handle, Origin};
use stayput_upstream::Profile;
use stayput_wire::Era;

use crate::{
    call::{
        modern::{
            bridge,
            client_call::{self, CallOwner, ModernCall, OfSession},
            request::ModernRequest,
            validate,
        },
        session_link::SessionLink,
    },
    identify::{self, EphemeralSession, RequestEdit, SessionChoice, cookie},
    observe::CallEnd,
    reply::{self, Reply, loss},
};

/// Runs a request that depends on the state of a session. If cookies are enabled, the response sets one.
pub(crate) async fn call(request: &ModernRequest<'_>, profile: &Arc<Profile>) -> Response<Reply> {
    let (app, headers) = (request.app, request.headers);
    let choice = identify::which(app, request.context()).await;
    let (mut response, cookie) = match choice {
        SessionChoice::Answer(text) => {
            request.note(None, CallEnd::NoSession);
            let status = client_call::code(&text).map(validate::status).unwrap_or_default();
            let mut response = reply::message(text);
            *response.status_mut() = status;
            (response, cookie::given(app, headers, None).await)
        }
        SessionChoice::Session { session, origin, text, given, fleeting } => {
            let cookie = cookie::given(app, headers, Some(session.session())).await;
            let meant = Meant { session, origin, text, given, fleeting };
            (run(request, profile, meant).await, cookie)
        }
    };
    if let Some(cookie) = cookie {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// Session of a request, see [`SessionChoice::Session`].
struct Meant {
    session: ActiveSession,
    origin: Origin,
    text: Option<RequestEdit>,
    given: Option<Handle>,
    fleeting: bool,
}

async fn run(request: &ModernRequest<'_>, profile: &Arc<Profile>, meant: Meant) -> Response<Reply> {
    let ModernRequest { app, server, message, .. } = request;
    let Meant { session, origin, text, given, fleeting } = meant;
    let fleeting = fleeting.then(|| EphemeralSession::of(app, session.session()));
    let session_link =
        SessionLink { app: (*app).clone(), server: (*server).clone(), session, era: Era::Modern };
    let note = |outcome| request.note(Some(session_link.session.session()), outcome);
    if let Some(sentence) = session_link.busy() {
        note(CallEnd::Denied);
        return request.failed(&sentence);
    }
    let link = match session_link.found() {
        Some(link) => link,
        None => match session_link.open(&bridge::hello(message)).await {
            Ok(link) => link,
            Err(sentence) => {
                note(CallEnd::NoLink);
                return request.failed(&sentence);
            }
        },
    };
    if let Err(sentence) = session_link.depend(&link, request.asked()).await {
        note(CallEnd::NoLink);
        return request.failed(&sentence);
    }
    if let Some(report) = session_link.pending_loss(&link, request.asked()) {
        note(CallEnd::Lost);
        return reply::message_then(report.text, report.then);
    }
    // A lost state was reported before this call, or the call would not be sent, though the store may not show that
    // yet.
    let is_reported = loss::depends_on_state(request.method) && matches!(origin, Origin::Lost(_));
    let origin = if is_reported { Origin::Existing } else { origin };
    let owner = CallOwner::Session(Box::new(OfSession { session_link, origin, given, fleeting }));
    let call = ModernCall::new(request, profile, link, owner);
    match text {
        None => call.send(message).await,
        Some(rest) => match rest.message(message) {
            Ok(message) => call.send(&message).await,
            Err(error) => request.failed(&error.to_string()),
        },
    }
}
