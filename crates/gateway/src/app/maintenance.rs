//! What has to be done from time to time.

use std::sync::Arc;

use stayput_core::{EndReason, Record, SessionId};
use tokio::{runtime::Handle, sync::watch, time::Instant};

use super::LEASE;
use crate::{
    observe::{events::Event, log::Log},
    state::AppState,
};

/// Keeps the lease, whatever else takes long.
pub(super) async fn renew(app: Arc<AppState>, log: Log) {
    let mut every = tokio::time::interval(LEASE / 3);
    loop {
        every.tick().await;
        let renewed = app.sessions.renew().await;
        let changed = app.health.reached_store(renewed.is_ok());
        match renewed {
            Err(error) => log.warn(&format!("the store cannot be reached: {error}")),
            Ok(_) if changed => log.info("the store can be reached again"),
            Ok(_) => {}
        }
        // What was let go of is taken up again by its next call, with the links it has.
        drop(app.sessions.take_released());
    }
}

/// What has to be done from time to time: write times of use back, end what is over.
pub(super) async fn tick(app: Arc<AppState>, mut stopped: watch::Receiver<bool>) {
    let mut every = tokio::time::interval(LEASE / 3);
    loop {
        tokio::select! {
            _ = every.tick() => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
        let app = app.now();
        let _ = app.sessions.write_back().await;
        app.note_uses(Instant::now()).await;
        let swept = app.sessions.sweep().await;
        let held = |id| app.sessions.get_held(id);
        for record in swept.ended {
            // It may live again: then what is there belongs to its next life.
            let again =
                held(record.id).is_some_and(|it| it.record().incarnation != record.incarnation);
            note_end(&app, &record);
            if !again {
                end(&app, record.id);
            }
        }
        // What the store knows need not be remembered here.
        app.connections.forget_idle(|session| held(session).is_some());
        app.connections.forget_surplus(app.sessions.count());
    }
}

/// Notes that a session ended by itself. Of one that was closed whoever closed it has told.
fn note_end(app: &AppState, record: &Record) {
    let reason = record.ended.map(|ended| ended.reason);
    if let Some(reason) = reason.filter(|reason| *reason != EndReason::Closed) {
        let known = app.connections.server_of(record.id);
        let linked = || record.attachments.keys().next().map(|it| it.as_str());
        let server = known.as_deref().or_else(linked);
        app.note(record.id, Event::Ended { server, reason });
    }
}

/// Ends the links of a session. A child that takes its time keeps nobody waiting.
fn end(app: &Arc<AppState>, session: SessionId) {
    app.connections.forget_session(session);
    let app = app.clone();
    Handle::current().spawn(async move { app.links.end(session).await });
}
