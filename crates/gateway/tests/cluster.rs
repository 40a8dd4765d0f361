//! Several gateways on one database: one gateway for their clients.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

#[path = "cluster/database_use.rs"]
mod database_use;
#[path = "cluster/drain.rs"]
mod drain;
#[path = "clients/driven.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod driven;
#[path = "cluster/example.rs"]
mod example;
#[path = "cluster/faults.rs"]
mod faults;
#[path = "cluster/folders.rs"]
mod folders;
#[path = "cluster/forwarding.rs"]
mod forwarding;
#[path = "cluster/internal_listener.rs"]
mod internal_listener;
#[path = "cluster/listening.rs"]
mod listening;
#[path = "cluster/messages.rs"]
mod messages;
#[path = "modern/kit.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod modern;
#[path = "cluster/other_transports.rs"]
mod other_transports;
#[path = "cluster/receipts.rs"]
mod receipts;
#[path = "cluster/replicas.rs"]
mod replicas;
#[path = "cluster/rolling_restart.rs"]
mod rolling_restart;
#[path = "cluster/round_robin.rs"]
mod round_robin;
#[path = "cluster/sessions.rs"]
mod sessions;
#[path = "cluster/setups.rs"]
mod setups;
#[path = "cluster/shared_servers.rs"]
mod shared_servers;
#[path = "cluster/stage.rs"]
mod stage;
#[path = "cluster/stall_meter.rs"]
mod stall_meter;
mod support;
#[path = "cluster/takeover.rs"]
mod takeover;
#[path = "cluster/unread_events.rs"]
mod unread_events;
#[path = "cluster/withdrawn_servers.rs"]
mod withdrawn_servers;
#[path = "support/writer.rs"]
mod writer;
