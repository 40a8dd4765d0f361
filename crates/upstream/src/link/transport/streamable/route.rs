//! Route to one server, shared by all links that use it.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use stayput_http::{Client, Target};
use stayput_sync::Mutex;

use crate::{Endpoint, Expansion, Identity, Server};

/// Parts of a request to a server that do not depend on a single link.
pub(crate) struct Route {
    pub(crate) client: Client,
    pub(crate) target: Target,
    pub(crate) endpoint: Endpoint,
    pub(crate) server: Server,
    /// Maximum size of a response.
    pub(crate) limit: usize,
}

/// Routes in use. An unused route is not kept, because it holds credentials.
#[derive(Debug, Default)]
pub(crate) struct Routes(Mutex<HashMap<(usize, Identity), Weak<Route>>>);

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Route({})", self.target)
    }
}

impl Routes {
    /// Returns the route of links to `server` with these values, and builds it if no link has it.
    pub(crate) fn get<E>(
        &self,
        server: &Server,
        expansion: &Expansion,
        make: impl FnOnce() -> Result<Route, E>,
    ) -> Result<Arc<Route>, E> {
        // No other link could share this route.
        if server.depends_on_session() {
            return make().map(Arc::new);
        }
        // The address tells apart servers with the same configuration, which may have different providers. A
        // route holds its server, so while the route exists, no other server has this address.
        let key = (server.address(), server.identity(expansion));
        let mut routes = self.0.lock();
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
