//! What has to be done from time to time.

use std::sync::Arc;

use stayput_core::{EndReason, Record, SessionId};
use tokio::{runtime::Handle, sync::watch, time::Instant};

use super::LEASE;
use crate::{event::Event, house::House, log::Log};

/// Keeps the lease, whatever else takes long.
pub(super) async fn renew(house: Arc<House>, log: Log) {
    let mut every = tokio::time::interval(LEASE / 3);
    loop {
        every.tick().await;
        let renewed = house.sessions.renew().await;
        let changed = house.health.reached_store(renewed.is_ok());
        match renewed {
            Err(error) => log.warn(&format!("the store cannot be reached: {error}")),
            Ok(_) if changed => log.info("the store can be reached again"),
            Ok(_) => {}
        }
        // What was let go of is taken up again by its next call, with the links it has.
        drop(house.sessions.lost());
    }
}

/// What has to be done from time to time: write times of use back, end what is over.
pub(super) async fn tick(house: Arc<House>, mut stopped: watch::Receiver<bool>) {
    let mut every = tokio::time::interval(LEASE / 3);
    loop {
        tokio::select! {
            _ = every.tick() => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
        let house = house.now();
        let _ = house.sessions.write_back().await;
        house.note_uses(Instant::now()).await;
        let swept = house.sessions.sweep().await;
        let held = |id| house.sessions.held_by_id(id);
        for record in swept.ended {
            // It may live again: then what is there belongs to its next life.
            let again = held(record.id).is_some_and(|it| it.record().life != record.life);
            note_end(&house, &record);
            if !again {
                end(&house, record.id);
            }
        }
        // What the store knows need not be remembered here.
        house.connections.forget_idle(|session| held(session).is_some());
        house.connections.forget_surplus(house.sessions.count());
    }
}

/// Notes that a session ended by itself. Of one that was closed whoever closed it has told.
fn note_end(house: &House, record: &Record) {
    let reason = record.ended.map(|ended| ended.reason);
    if let Some(reason) = reason.filter(|reason| *reason != EndReason::Closed) {
        let known = house.connections.server_of(record.id);
        let linked = || record.attachments.keys().next().map(|it| it.as_str());
        let server = known.as_deref().or_else(linked);
        house.note(record.id, Event::Ended { server, reason });
    }
}

/// Ends the links of a session. A child that takes its time keeps nobody waiting.
fn end(house: &Arc<House>, session: SessionId) {
    house.connections.forget_session(session);
    let house = house.clone();
    Handle::current().spawn(async move { house.links.end(session).await });
}
