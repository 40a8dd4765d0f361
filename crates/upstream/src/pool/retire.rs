//! Retirement of links to a server that was reconfigured or removed.

use std::{sync::Arc, time::Duration};

use stayput_wire::Era;
use tokio::time::Instant;

use super::{
    Links,
    end::{begin_ends, wait_for_all},
};
use crate::{
    LinkKey, LossReason, Server, pool::pool_entry::PoolEntry, util::flag::CompletionGuard,
};

/// Interval at which links are checked for calls in flight.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Links to a server that is being replaced. A link to its replacement is opened after these have ended;
/// [`Retirement::run`] ends them.
#[derive(Debug)]
#[must_use = "the links go on until it is run"]
pub struct Retirement {
    links: Links,
    /// Current pool entries, each with a guard. Dropping the guard lets the successor of that entry open.
    entries: Vec<(Arc<PoolEntry>, CompletionGuard)>,
    /// Server whose key is no longer in use: entries that were added late are ended too. `None` if the key
    /// stays in use.
    old: Option<Server>,
}

impl Links {
    /// Ends every link to a server of this name whose configuration differs from `server`, or all of them if
    /// `server` is `None`. Calls in flight fail.
    pub async fn reconfigure(&self, name: &str, server: Option<&Server>) {
        self.0.spares.drop_all(name, server.map(Server::configuration));
        let keep = |key: &LinkKey| server.is_some_and(|server| is_of(key, server));
        let entries = self.0.table.remove_where(|key| key.server() == name && !keep(key));
        let (completion, gone) = CompletionGuard::new();
        let mut ended = begin_ends(&entries, LossReason::Reconfigured);
        ended.extend(self.0.probed.end_all(name, server.map(Server::configuration)));
        if let Some(server) = server {
            let all = entries.iter().map(|entry| (entry, gone.clone()));
            self.0.table.succeed(all, server, &self.0.opener.budget);
        }
        wait_for_all(&ended).await;
        drop(completion);
    }

    /// Replaces `old` by `new`. Sessions with state at `old` get a loss at `new`. Before it calls
    /// [`Retirement::run`], the caller has to stop routing new calls to `old`.
    pub fn retire(&self, old: &Server, new: Option<&Server>) -> Retirement {
        let same = new.is_some_and(|new| new.configuration() == old.configuration());
        let traced = self.0.table.all_where(|key| is_of(key, old)).into_iter().map(|entry| {
            let (completion, gone) = CompletionGuard::new();
            // With the same configuration only options changed, such as the isolation. Links of another
            // isolation have other entries, which do not succeed these.
            if let Some(new) = new.filter(|_| !same) {
                self.0.table.succeed([(&entry, gone)], new, &self.0.opener.budget);
            }
            (entry, completion)
        });
        let entries = traced.collect();
        if !same {
            self.0.spares.drop_all(old.name(), new.map(Server::configuration));
            // Processes end in the background: no session has seen their state.
            drop(self.0.probed.end_all(old.name(), new.map(Server::configuration)));
        }
        Retirement { links: self.clone(), entries, old: (!same).then(|| old.clone()) }
    }
}

impl Retirement {
    /// Ends each link when it has no call in flight, or after `limit`.
    pub async fn run(self, limit: Duration) {
        let Self { links, mut entries, old } = self;
        let until = Instant::now() + limit;
        links.0.table.remove_all(entries.iter().map(|(entry, _)| entry));
        if let Some(old) = old {
            let late = links.0.table.remove_where(|key| is_of(key, &old));
            entries.extend(late.into_iter().map(|entry| (entry, CompletionGuard::new().0)));
        }
        let mut ended = Vec::new();
        while !entries.is_empty() {
            let late = Instant::now() >= until;
            for (entry, completion) in
                entries.extract_if(.., |(entry, _)| late || entry.in_flight() == 0)
            {
                ended.extend(entry.end(LossReason::Reconfigured, true).map(|it| (it, completion)));
            }
            // Drop the guards of ended links now, so that their successors need not wait for the slower ones.
            ended.retain(|(leaving, _)| !leaving.is_gone());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        for (leaving, completion) in ended {
            leaving.gone().await;
            drop(completion);
        }
    }
}

/// Whether it is the key of a link to this server, for clients of either era.
fn is_of(key: &LinkKey, server: &Server) -> bool {
    let configurations =
        [Era::Legacy, Era::Modern].map(|era| server.for_client(era).configuration());
    key.server() == server.name() && configurations.contains(&key.configuration())
}
