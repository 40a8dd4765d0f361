//! The way to one server, which all links that take it share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
};

use crate::{
    Endpoint, Expansion, Identity, Server,
    http::{Client, Target},
    lock::lock,
};

/// How requests to one server are made: whatever is not of a single link.
pub(crate) struct Route {
    pub(crate) client: Client,
    pub(crate) target: Target,
    pub(crate) endpoint: Endpoint,
    pub(crate) server: Server,
    /// The largest answer.
    pub(crate) limit: usize,
}

/// The routes that are in use. None is kept for its own sake: a route has credentials in it.
#[derive(Debug, Default)]
pub(crate) struct Routes(Mutex<HashMap<(usize, Identity), Weak<Route>>>);

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Route({})", self.target)
    }
}

impl Routes {
    /// The route of links to `server` with these values, made if no link has it.
    pub(crate) fn get<E>(
        &self,
        server: &Server,
        expansion: &Expansion,
        make: impl FnOnce() -> Result<Route, E>,
    ) -> Result<Arc<Route>, E> {
        // No other link could share it.
        if server.depends_on_session() {
            return make().map(Arc::new);
        }
        // Not another server that is configured alike, which may have a provider of its own. A route
        // has its server, so while there is a route, no other server is at this place.
        let key = (server.address(), server.identity(expansion));
        let mut routes = lock(&self.0);
        if let Some(route) = routes.get(&key).and_then(Weak::upgrade) {
            return Ok(route);
        }
        let route = Arc::new(make()?);
        if routes.len() == routes.capacity() {
            routes.retain(|_, route| route.strong_count() > 0);
        }
        routes.insert(key, Arc::downgrade(&route));
        Ok(route)
    }
}
