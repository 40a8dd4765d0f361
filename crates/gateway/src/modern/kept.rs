//! Calls to a server whose state is kept: first of all, which session is meant.

use std::sync::Arc;

use http::Response;
use stayput_core::Session;
use stayput_upstream::Profile;
use stayput_wire::{Era, Message};

use super::{
    Request, bridge,
    errand::{self, Behind, Errand, OfSession},
    validate,
};
use crate::{
    house::House,
    identify::{self, Claim, Which},
    reply::{self, Reply},
    visit::Visit,
};

/// A session that ends with its call, because nothing named it.
pub(super) struct Fleeting {
    house: Arc<House>,
    session: Arc<Session>,
}

impl Drop for Fleeting {
    fn drop(&mut self) {
        let (house, session) = (self.house.clone(), self.session.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // If this fails, it idles out.
                let _ = house.sessions.end(&session).await;
                let _ = house.links.end(session.id()).await;
            });
        }
    }
}

/// A request that depends on the state of a session.
pub(super) async fn call(request: &Request<'_>, profile: &Arc<Profile>) -> Response<Reply> {
    let Request { house, server, headers, message, owner, .. } = request;
    let claim = Claim { owner, server, headers, path_key: None, message, connection: None };
    let (session, origin, text, given, fleeting) = match identify::which(house, claim).await {
        Which::Session { session, origin, text, given, fleeting } => {
            (session, origin, text, given, fleeting)
        }
        Which::Answer(text) => {
            let status = errand::code(&text).map(validate::status).unwrap_or_default();
            let mut response = reply::message(text);
            *response.status_mut() = status;
            return response;
        }
    };
    let fleeting =
        fleeting.then(|| Fleeting { house: (*house).clone(), session: session.session().clone() });
    let visit = Visit {
        house: (*house).clone(),
        server: (*server).clone(),
        session,
        hello: bridge::hello(message),
        era: Era::Modern,
    };
    let link = match visit.found() {
        Some(link) => link,
        None => match visit.open().await {
            Ok(link) => link,
            Err(sentence) => return request.failed(&sentence),
        },
    };
    if let Some(told) = visit.pending_loss(&link, request.asked()) {
        return reply::message_then(told.text, told.then);
    }
    let behind = Behind::Session(Box::new(OfSession { visit, origin, given, fleeting }));
    let errand = Errand::new(request, profile, link, behind);
    match text {
        None => errand.send(message).await,
        Some(text) => match Message::parse(text.as_bytes()) {
            Ok(message) => errand.send(&message).await,
            Err(error) => request.failed(&error.to_string()),
        },
    }
}
