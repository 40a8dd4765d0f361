//! Periodic tasks.

use std::{sync::Arc, time::Duration};

use stayput_core::LostReason;
use stayput_engine::SweptSession;
use stayput_upstream::LinkSweepReport;
use tokio::{runtime::Handle, sync::watch, task::JoinHandle, time::Instant};

use crate::{observe::events::Event, state::AppState};

/// Interval at which times of use are written, and expired sessions are ended.
const TICK_INTERVAL: Duration = Duration::from_secs(5);

/// Renews the lease, in a task of its own so that no slow work delays it.
pub(super) async fn renew(app: Arc<AppState>) {
    let mut reclaiming: Option<JoinHandle<()>> = None;
    loop {
        let renewed = app.sessions.renew().await;
        match (app.health.reached_store(renewed.is_ok()), &renewed) {
            (true, Err(error)) => tracing::warn!("the store cannot be reached: {error}"),
            (true, Ok(_)) => tracing::info!("the store can be reached again"),
            (false, _) => {}
        }
        if reclaiming.as_ref().is_none_or(JoinHandle::is_finished) {
            let app = app.clone();
            reclaiming = Some(Handle::current().spawn(async move { reclaim(&app).await }));
        }
        tokio::time::sleep(app.sessions.renewal_interval(&renewed)).await;
    }
}

/// Claims the sessions that this process released, and restores what the store forgot.
async fn reclaim(app: &AppState) {
    app.sessions.reclaim().await;
    let restored = app.sessions.take_restored();
    if restored.is_empty() {
        return;
    }
    tracing::warn!(
        "the store had forgotten {} sessions that are held here; they were stored again",
        restored.len()
    );
    app.keep_connections_of(&restored).await;
}

/// Closes the links of sessions that this process loses to another one, and logs that.
pub(super) fn close_lost_links(app: &AppState) {
    let (links, services) = (app.links.clone(), Arc::downgrade(&app.services));
    stayput_engine::close_lost_links(&app.sessions, &app.links, move |session, reason| {
        let Some(services) = services.upgrade() else { return };
        services.server_claims.release(session, &links);
        if services.cluster.is_some() {
            services.connections.stop_listening_where(|it| it == session);
        }
        if reason == LostReason::Moved {
            tracing::warn!(
                %session,
                "session {session}, or its key, was taken over by another process while this one had \
                 no lease: its links here are closed"
            );
        }
    });
}

/// Adds each loss of a session's state to the event log when it happens. The next call reports it to its client, the log
/// and the metrics. State that several sessions share is only reported by their calls.
pub(super) fn log_losses(app: &AppState) {
    let events = app.recent.events.clone();
    app.links.on_loss(move |key, generation, loss| {
        if let Some(session) = key.scope().session() {
            let (server, reason) = (key.server(), Some(loss.reason()));
            let event = Event::Lost { server, reason, generation, detail: loss.detail() };
            events.add(event.logged(session));
        }
    });
}

/// Keeps as many spare processes ready as the configuration of each server says.
pub(super) fn start_spares(app: &AppState) {
    app.servers.values().for_each(|server| app.links.warm(server));
}

/// Removes, in the background, what killed processes left behind.
pub(super) fn sweep_leftovers(app: &AppState) {
    let sweep = stayput_engine::sweep_leftovers(&app.sessions, &app.links, |_| false);
    Handle::current().spawn(async move {
        let LinkSweepReport { processes, kept } = sweep.await;
        if processes > 0 {
            tracing::info!("ended {processes} processes that a killed stayput left behind");
        }
        if !kept.is_empty() {
            tracing::warn!("a private folder of an ended session is still there: {kept}");
        }
    });
}

/// Writes times of use to the store, ends expired sessions, and prunes connections.
pub(super) async fn tick(app: Arc<AppState>, mut stopped: watch::Receiver<bool>) {
    let mut every = tokio::time::interval(TICK_INTERVAL);
    loop {
        tokio::select! {
            _ = every.tick() => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
        let app = app.now();
        app.note_uses(Instant::now()).await;
        for swept in app.engine.sweep().await {
            record_expiry(&app, &swept);
            if !swept.is_revived {
                end(&app, &swept).await;
            }
        }
        // Connections can be restored from the store, so idle and surplus ones are dropped here.
        let is_cached =
            |session| app.cluster.as_ref().is_some_and(|cluster| cluster.holders.has(session));
        app.connections
            .remove_idle(|session| app.sessions.is_held_or_released(session) || is_cached(session));
        app.connections.remove_surplus(app.sessions.count());
    }
}

/// Records that a session expired. Closed sessions are skipped: the code that closed them has recorded it.
fn record_expiry(app: &AppState, swept: &SweptSession) {
    let record = &swept.record;
    if let Some(reason) = swept.unreported_reason() {
        let known = app.connections.server_of(record.id);
        let linked = || record.attachments.keys().next().map(|it| it.as_str());
        let server = known.as_deref().or_else(linked);
        app.note(record.id, Event::Ended { server, reason });
    }
}

/// Ends the links of a session in a task of its own, because a child process can take long to exit.
async fn end(app: &Arc<AppState>, swept: &SweptSession) {
    let record = &swept.record;
    if let Some(cluster) = &app.cluster {
        // Another replica may continue the session.
        app.connections.stop_listening_where(|it| it == record.id);
        cluster.unread_events.remove(&record.owner, record.id).await;
    }
    app.connections.remove_session(record.id);
    match swept.unreported_reason() {
        Some(_) => drop(app.engine.end_expired(record, |name| app.servers.get(name).cloned())),
        // The code that closed it has deleted its sessions on servers.
        None => drop(app.links.end(record.id)),
    }
}
