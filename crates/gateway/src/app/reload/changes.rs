//! Differences between two configurations.

use std::collections::BTreeSet;

use stayput_upstream::{Retirement, Server};
use stayput_wire::Era;

use crate::{config::ServerEntry, state::AppState};

/// Differences between the servers of a configuration and those of the one before.
#[derive(Debug, Default)]
pub(super) struct Changes {
    added: Vec<String>,
    /// Old and new server.
    changed: Vec<(Server, Server)>,
    removed: Vec<Server>,
    /// Servers that are presented differently, though their own configuration is the same.
    shown: Vec<String>,
}

impl Changes {
    /// Compares the servers. One that is configured as before is replaced by the old one, so that it keeps its links.
    pub(super) fn between(before: &AppState, servers: &mut [ServerEntry]) -> Self {
        let mut changes = Self::default();
        for it in &mut *servers {
            let name = it.server.name();
            let Some(old) = before.servers.get(name) else {
                changes.added.push(name.to_owned());
                continue;
            };
            let handles = before.identify.handles.get(name);
            let whom = Some(&it.claims).filter(|whom| !whom.is_unrestricted());
            if before.tools.get(name) != Some(&it.tools)
                || handles != Some(&it.handles)
                || before.visibility.filter(name) != whom
            {
                changes.shown.push(name.to_owned());
            }
            if is_another(old, &it.server) {
                changes.changed.push((old.clone(), it.server.clone()));
            } else if old.options() == it.server.options() {
                it.server = old.clone();
            }
        }
        let gone = |old: &&Server| !servers.iter().any(|it| it.server.name() == old.name());
        changes.removed = before.servers.values().filter(gone).cloned().collect();
        changes
    }

    /// Returns all servers that differ in any way.
    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        let others = self.added.iter().map(String::as_str);
        others.chain(self.removed.iter().map(Server::name)).chain(self.differing())
    }

    /// Returns the servers that exist before and after, and whose clients may see something else now.
    pub(super) fn differing(&self) -> impl Iterator<Item = &str> {
        let changed = self.changed.iter().map(|(_, new)| new.name());
        changed.chain(self.shown.iter().map(String::as_str))
    }

    /// Returns the names of all servers that were visible to every client once and no longer exist. A server that was
    /// visible to some clients only is not among them: only those clients could get the notice, and they are not known
    /// any more.
    pub(super) fn removed_names(&self, before: &AppState) -> BTreeSet<String> {
        let mut names = BTreeSet::clone(&before.removed);
        let removed = self.removed.iter().map(|old| old.name().to_owned());
        names.extend(removed.filter(|name| before.visibility.filter(name).is_none()));
        names.retain(|name| !self.added.contains(name));
        names
    }

    /// Retires the links of servers that changed or were removed.
    pub(super) fn retire(&self, before: &AppState) -> Vec<Retirement> {
        let changed = self.changed.iter().map(|(old, new)| before.links.retire(old, Some(new)));
        let removed = self.removed.iter().map(|old| before.links.retire(old, None));
        changed.chain(removed).collect()
    }

    /// Logs which servers differ.
    pub(super) fn announce(&self) {
        let added = self.added.join(", ");
        let changed: Vec<_> = self.changed.iter().map(|(_, new)| new.name()).collect();
        let removed: Vec<_> = self.removed.iter().map(Server::name).collect();
        let (changed, removed) = (changed.join(", "), removed.join(", "));
        let parts = [("added", &added), ("changed", &changed), ("removed", &removed)];
        let said: Vec<_> = parts
            .iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("{what}: {names}"))
            .collect();
        let said = if said.is_empty() { "no server differs".to_owned() } else { said.join("; ") };
        tracing::info!(
            event = "reloaded",
            added,
            changed,
            removed,
            "the configuration was read anew and holds ({said})"
        );
    }
}

/// Whether links to the old server cannot be used for the new one.
fn is_another(old: &Server, new: &Server) -> bool {
    let shared_otherwise = |era| old.isolation(era) != new.isolation(era);
    old.configuration() != new.configuration()
        || [Era::Legacy, Era::Modern].into_iter().any(shared_otherwise)
}
