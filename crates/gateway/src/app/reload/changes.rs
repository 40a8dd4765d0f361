//! What is another in a configuration that was read anew.

use std::{collections::BTreeSet, sync::Arc};

use stayput_upstream::{Retiring, Server};
use stayput_wire::Era;

use crate::{config::ServerEntry, observe::log::Level, state::AppState};

/// How the servers of a configuration differ from those of the one before.
#[derive(Debug, Default)]
pub(super) struct Changes {
    added: Vec<String>,
    /// What was, and what is.
    changed: Vec<(Server, Server)>,
    removed: Vec<Server>,
    /// Shown otherwise, though it is the same server.
    shown: Vec<String>,
}

impl Changes {
    /// What differs. A server that is configured as before is the one of before.
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
                || before.views.of(name) != whom
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

    /// All servers that are not as before.
    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        let others = self.added.iter().map(String::as_str);
        others.chain(self.removed.iter().map(Server::name)).chain(self.differing())
    }

    /// The servers whose own clients may be shown something else now.
    pub(super) fn differing(&self) -> impl Iterator<Item = &str> {
        let changed = self.changed.iter().map(|(_, new)| new.name());
        changed.chain(self.shown.iter().map(String::as_str))
    }

    /// All servers that were there for everybody once and are not any more. Of one that was for some only them
    /// would be told, and of them nothing is known any more: it is as if it never was.
    pub(super) fn removed_names(&self, before: &AppState) -> BTreeSet<String> {
        let mut names = BTreeSet::clone(&before.removed);
        let removed = self.removed.iter().map(|old| old.name().to_owned());
        names.extend(removed.filter(|name| before.views.of(name).is_none()));
        names.retain(|name| !self.added.contains(name));
        names
    }

    /// Makes way for what is new.
    pub(super) fn retire(&self, before: &AppState) -> Vec<Retiring> {
        let changed = self.changed.iter().map(|(old, new)| before.links.retire(old, Some(new)));
        let removed = self.removed.iter().map(|old| before.links.retire(old, None));
        changed.chain(removed).collect()
    }

    /// Says what is another, to whoever runs the gateway.
    pub(super) fn announce(&self, app: &Arc<AppState>) {
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
        let fields = [
            ("event", "reloaded"),
            ("added", &*added),
            ("changed", &*changed),
            ("removed", &*removed),
        ];
        let sentence = format!("the configuration was read anew and holds ({said})");
        app.log.event(Level::Info, &sentence, &fields);
    }
}

/// Whether links to the one are none to the other.
fn is_another(old: &Server, new: &Server) -> bool {
    let shared_otherwise = |era| old.isolation(era) != new.isolation(era);
    old.configuration() != new.configuration()
        || [Era::Legacy, Era::Modern].into_iter().any(shared_otherwise)
}
