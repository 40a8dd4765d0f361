//! A session that ends with its call.

use std::{fmt, sync::Arc};

use stayput_core::Session;

use crate::house::House;

/// Ends a session when it is dropped, however the call went.
pub(crate) struct Fleeting {
    house: Arc<House>,
    session: Arc<Session>,
}

impl Fleeting {
    /// The session ends with this.
    pub(crate) fn of(house: &Arc<House>, session: &Arc<Session>) -> Self {
        Self { house: house.clone(), session: session.clone() }
    }
}

impl Drop for Fleeting {
    fn drop(&mut self) {
        let (house, session) = (self.house.clone(), self.session.clone());
        // Without a runtime everything ends.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            // If this fails, it idles out.
            let _ = house.end(&session, None).await;
            let _ = house.links.end(session.id()).await;
        });
    }
}

impl fmt::Debug for Fleeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fleeting({})", self.session.id())
    }
}
