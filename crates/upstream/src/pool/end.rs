//! Ends of links: of a session, of a branch of it, of a scope, of idle links, and of the whole pool.
//!
//! An end starts at once for all links and is awaited afterwards. *Ending* also ends the sessions on the servers;
//! *releasing* keeps them for the process that resumes them.

use std::{sync::Arc, time::Duration};

use stayput_core::SessionId;
use tokio::task::JoinHandle;

use super::{
    CloseSummary, Links, RemoteSession,
    pool_entry::{EndingLink, PoolEntry},
};
use crate::{
    ClientInfo, LinkKey, LinkOwner, LossReason, Scope, Server, UnremovedPaths,
    open::opener::OpenRequest, util::flag::CompletionGuard,
};

impl Links {
    /// Ends all links of a session and removes its directories. Returns what could not be removed.
    ///
    /// The end begins when this function is called, and continues if the future is dropped. A link that is
    /// opened for the session meanwhile waits for the end.
    pub fn end(&self, session: SessionId) -> impl Future<Output = UnremovedPaths> + use<> {
        self.end_with(session, Vec::new())
    }

    /// Ends all links of a session as [`Links::end`], and deletes those of its `remote` sessions for which there is
    /// no link in this pool.
    pub fn end_with(
        &self,
        session: SessionId,
        mut remote: Vec<RemoteSession>,
    ) -> impl Future<Output = UnremovedPaths> + use<> {
        let (completion, gone) = CompletionGuard::new();
        let (entries, earlier) = self.0.table.remove_session(session, gone.clone());
        let is_linked = |it: &RemoteSession| {
            let same = |entry: &Arc<PoolEntry>| entry.server.name() == it.server.name();
            entries.iter().any(|entry| same(entry) && *entry.key.scope() == it.scope)
        };
        remote.retain(|it| !is_linked(it));
        // A released link leaves its session on the server: delete it there.
        remote.extend(entries.iter().filter_map(|entry| entry.left_behind()));
        let deletions: Vec<_> = remote.into_iter().filter_map(|it| self.delete(it)).collect();
        // Start the end of all links first, then wait for all of them.
        let mut ended = begin_ends(&entries, LossReason::Ended);
        ended.extend(self.0.profiles.end(session).into_iter().map(EndingLink::Opening));
        ended.extend(self.end_probed_of(session, LossReason::Ended));
        ended.extend(earlier.map(EndingLink::Opening));
        let inner = self.0.clone();
        let ending = self.0.opener.runtime.spawn(async move {
            wait_for_all(&ended).await;
            for deletion in deletions {
                let _ = deletion.await;
            }
            let kept = inner.opener.folders.remove_session(session).await;
            inner.table.finish_end(session, &gone);
            drop(completion);
            kept
        });
        async move { ending.await.unwrap_or_default() }
    }

    /// Releases all links of a session that continues in another process. Sessions on the servers and local
    /// directories are kept for the process that resumes it. Begins and continues as [`Links::end`].
    pub fn release(&self, session: SessionId) -> impl Future<Output = ()> + use<> {
        let (completion, gone) = CompletionGuard::new();
        let (entries, earlier) = self.0.table.remove_session(session, gone.clone());
        let mut ended = begin_ends(&entries, LossReason::Released);
        ended.extend(self.end_probed_of(session, LossReason::Released));
        ended.extend(earlier.map(EndingLink::Opening));
        let inner = self.0.clone();
        let releasing = self.0.opener.runtime.spawn(async move {
            wait_for_all(&ended).await;
            inner.table.finish_end(session, &gone);
            drop(completion);
        });
        async move {
            let _ = releasing.await;
        }
    }

    /// Releases the links of `scope` to the servers of this name. Another process continues with their state, or with none.
    /// Begins and continues as [`Links::end`].
    pub fn release_scope(&self, server: &str, scope: &Scope) -> impl Future<Output = ()> + use<> {
        let is_of = |key: &LinkKey| key.server() == server && key.scope() == scope;
        let entries = self.0.table.remove_where(is_of);
        let mut ended = begin_ends(&entries, LossReason::Released);
        ended.extend(self.0.probed.end(LossReason::Released, |it| it == scope));
        async move { wait_for_all(&ended).await }
    }

    fn end_probed_of(&self, session: SessionId, reason: LossReason) -> Vec<EndingLink> {
        self.0.probed.end(reason, |scope| scope.session() == Some(session))
    }

    /// Deletes a server-side session that has no link.
    fn delete(&self, remote: RemoteSession) -> Option<JoinHandle<()>> {
        if !remote.is_deletable() {
            return None;
        }
        let links = self.clone();
        Some(self.0.opener.runtime.spawn(async move {
            let RemoteSession { server, scope, attachment } = remote;
            let client_info = ClientInfo::default();
            let plan = OpenRequest { server: &server, scope: &scope, client_info: &client_info };
            // Ignore errors: a server that cannot be reached has to expire the session itself.
            let _ = links.0.opener.delete_upstream_session(plan, &attachment).await;
        }))
    }

    /// Ends the link of `link_owner` to `server`, if there is one, for all sessions that share it. The next link
    /// has the next generation. For a branch of a session, only links of the branch itself are ended.
    pub async fn restart(&self, server: &Server, link_owner: &LinkOwner, reason: LossReason) {
        let mut entries = self.0.table.entries_for(server, link_owner);
        entries.retain(|entry| link_owner.branch == 0 || entry.key.scope().session().is_some());
        let ended: Vec<_> = entries.iter().filter_map(|entry| entry.end(reason, false)).collect();
        wait_for_all(&ended).await;
    }

    /// Ends links that were idle for at least `idle`. Returns their number.
    pub fn close_idle(&self, idle: Duration) -> usize {
        let entries = self.0.table.all();
        let old = entries
            .iter()
            .filter(|entry| entry.idle_since().is_some_and(|at| at.elapsed() >= idle));
        old.filter(|entry| entry.recycle()).count()
    }

    /// Ends all links of a branch of a session and removes its directories. The session itself stays open.
    ///
    /// The work continues if the future is dropped.
    pub async fn end_part(&self, session: SessionId, branch: u64) -> UnremovedPaths {
        let part = |scope: &Scope| matches!(scope, Scope::Session { session: of, branch: it, .. } if *of == session && *it == branch);
        let entries = self.0.table.remove_where(|key| part(key.scope()));
        let mut ended = begin_ends(&entries, LossReason::Ended);
        ended.extend(self.0.probed.end(LossReason::Ended, part));
        let folders = self.0.opener.folders.clone();
        let ending = self.0.opener.runtime.spawn(async move {
            wait_for_all(&ended).await;
            folders.remove_branch(session, branch).await
        });
        ending.await.unwrap_or_default()
    }

    /// Releases all links at once, under one deadline, and opens no more. The work continues if the future is
    /// dropped.
    pub async fn close(&self, limit: Duration) -> CloseSummary {
        self.0.closed.raise();
        let entries = self.0.table.remove_where(|_| true);
        let mut ended = begin_ends(&entries, LossReason::Released);
        let links = ended.iter().filter(|leaving| leaving.is_link()).count();
        ended.extend(self.0.profiles.close().into_iter().map(EndingLink::Opening));
        ended.push(EndingLink::Opening(self.0.spares.close()));
        ended.extend(self.0.probed.close());
        let processes = self.0.opener.processes.clone();
        let closing = self.0.opener.runtime.spawn(async move {
            let _ = tokio::time::timeout(limit, wait_for_all(&ended)).await;
            let left = ended.iter().filter(|leaving| !leaving.is_gone()).count();
            processes.close().await;
            CloseSummary { links, left }
        });
        closing.await.unwrap_or_default()
    }
}

/// Begins the end of all links, for good. Returns the ends to wait for.
pub(super) fn begin_ends(entries: &[Arc<PoolEntry>], reason: LossReason) -> Vec<EndingLink> {
    entries.iter().filter_map(|entry| entry.end(reason, true)).collect()
}

/// Waits for each in turn. All ends were started before, so that this takes as long as the slowest one.
pub(super) async fn wait_for_all(all: &[EndingLink]) {
    for leaving in all {
        leaving.gone().await;
    }
}
