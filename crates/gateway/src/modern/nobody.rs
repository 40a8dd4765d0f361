//! A place for what belongs to no session.

use std::sync::{Arc, OnceLock};

use stayput_core::{Owner, SessionId, Timestamp};
use stayput_upstream::Place;

use crate::house::House;

/// Stands where a session has to be named and none is meant. What was made for one that is `alone` ends
/// with it.
pub(super) struct Nobody {
    house: Arc<House>,
    place: Place,
    alone: bool,
}

impl Nobody {
    /// `alone`: something may be made in its name, a folder or a link, that nobody else uses.
    pub(super) fn new(house: &Arc<House>, owner: &Owner, alone: bool) -> Self {
        /// Where nothing is made in its name, one does for all.
        static COMMON: OnceLock<SessionId> = OnceLock::new();
        let fresh = || SessionId::generate(Timestamp::from_millis(0));
        let session = if alone { fresh() } else { *COMMON.get_or_init(fresh) };
        Self { house: house.clone(), place: Place::new(owner.clone(), session), alone }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }
}

impl Drop for Nobody {
    fn drop(&mut self) {
        if !self.alone {
            return;
        }
        let (house, session) = (self.house.clone(), self.place.session);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { house.links.end(session).await });
        }
    }
}
