//! Watches the database file: a deleted or replaced file makes the gateway not ready within seconds.

use std::{sync::Arc, time::Duration};

use stayput_stores::DatabaseFile;

use crate::state::AppState;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Checks the file once a second, and logs each change once. Never returns.
pub(super) async fn run(app: Arc<AppState>, file: Option<Arc<DatabaseFile>>) {
    let Some(file) = file else { return std::future::pending().await };
    let mut every = tokio::time::interval(CHECK_INTERVAL);
    loop {
        every.tick().await;
        let checked = file.clone();
        // A broken disk can block.
        let Ok(outage) = tokio::task::spawn_blocking(move || checked.outage()).await else {
            return;
        };
        if !app.health.store_fails(outage) {
            continue;
        }
        let path = file.path().display();
        match outage {
            Some(outage) => tracing::warn!("the store {path} cannot be used: {outage}"),
            None => tracing::info!("the store {path} can be used again"),
        }
    }
}
