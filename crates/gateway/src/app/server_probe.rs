//! Start of every server in the background, so that a broken one is known before its first client comes.

use std::sync::Arc;

use futures_util::future::join_all;
use stayput_core::Owner;
use stayput_identify::tool_names;
use stayput_upstream::Server;
use tokio::sync::Semaphore;

use super::missing_program;
use crate::state::AppState;

/// Number of servers that are started at once.
const MAX_CONCURRENT_PROBES: usize = 4;

/// Starts each server once, or connects to it, and logs whether it works. A profile that is learned by this is kept.
pub(super) async fn run(app: Arc<AppState>) {
    let permits = Semaphore::new(MAX_CONCURRENT_PROBES);
    let servers = app.servers.values().filter(|server| missing_program::find(server).is_none());
    let probes = servers.map(|server| async {
        let _permit = permits.acquire().await;
        probe(&app, server).await;
    });
    join_all(probes).await;
}

async fn probe(app: &Arc<AppState>, server: &Server) {
    let name = server.name();
    match app.profile(server, &Owner::local()).await {
        Ok(profile) => {
            app.health.server_works(name);
            let tools = tool_names(profile.pages("tools/list")).count();
            tracing::info!(event = "server_ready", server = name, "  {name}: ready, {tools} tools");
        }
        Err(error) => {
            app.health.server_fails(name, error.to_string());
            tracing::warn!(
                event = "server_failed",
                server = name,
                "  {name}: cannot be used: {error}"
            );
        }
    }
}
