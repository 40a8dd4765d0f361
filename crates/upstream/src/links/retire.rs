//! Links to a server that is configured otherwise from now on, or not at all.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Links, all_gone, leaving, slot::Slot};
use crate::{LinkKey, LossReason, Server, flag::Trace};

/// How often it is looked whether calls have ended.
const LOOK: Duration = Duration::from_millis(20);

/// Links to a server that is not to be used any more. Whoever wants one to what comes in its place waits for
/// the end of these, which [`Retiring::run`] brings about.
#[derive(Debug)]
#[must_use = "the links go on until it is run"]
pub struct Retiring {
    links: Links,
    /// Those there are, each with a trace: when that is dropped, what follows on it is let in.
    slots: Vec<(Arc<Slot>, Trace)>,
    /// The server, if its key is nobody's any more: what comes too late is let go of as well.
    old: Option<Server>,
}

impl Links {
    /// Lets go of every link to a server of this name that is configured otherwise than `server`, or
    /// of all if there is none any more. What is in flight on them fails.
    pub async fn reconfigure(&self, name: &str, server: Option<&Server>) {
        let keep = server.map(Server::configuration);
        self.0.spares.drop_all(name, keep);
        let slots = self
            .0
            .table
            .remove_where(|key| key.server() == name && Some(key.configuration()) != keep);
        let (trace, gone) = Trace::new();
        let ended = leaving(&slots, LossReason::Reconfigured);
        if let Some(server) = server {
            let all = slots.iter().map(|slot| (slot, gone.clone()));
            self.0.table.succeed(all, server, &self.0.opener.budget);
        }
        all_gone(&ended).await;
        drop(trace);
    }

    /// Puts `new` in the place of `old`: whoever has state at the one has lost it at the other, which is told
    /// once nobody is sent to `old` any more. That is the caller's part, between this and [`Retiring::run`].
    pub fn retire(&self, old: &Server, new: Option<&Server>) -> Retiring {
        let same = new.is_some_and(|new| new.configuration() == old.configuration());
        let traced = self.0.table.all_where(|key| is_of(key, old)).into_iter().map(|slot| {
            let (trace, gone) = Trace::new();
            // What is only shared by others has other slots, and none of them follows on these.
            if let Some(new) = new.filter(|_| !same) {
                self.0.table.succeed([(&slot, gone)], new, &self.0.opener.budget);
            }
            (slot, trace)
        });
        let slots = traced.collect();
        if !same {
            self.0.spares.drop_all(old.name(), new.map(Server::configuration));
        }
        Retiring { links: self.clone(), slots, old: (!same).then(|| old.clone()) }
    }
}

impl Retiring {
    /// Ends each of the links when no call is in flight on it any more, or after `limit`.
    pub async fn run(self, limit: Duration) {
        let Self { links, mut slots, old } = self;
        let until = Instant::now() + limit;
        links.0.table.remove_all(slots.iter().map(|(slot, _)| slot));
        if let Some(old) = old {
            let late = links.0.table.remove_where(|key| is_of(key, &old));
            slots.extend(late.into_iter().map(|slot| (slot, Trace::new().0)));
        }
        let mut ended = Vec::new();
        while !slots.is_empty() {
            let late = Instant::now() >= until;
            for (slot, trace) in slots.extract_if(.., |(slot, _)| late || slot.in_flight() == 0) {
                ended.extend(slot.end(LossReason::Reconfigured, true).map(|it| (it, trace)));
            }
            // What is gone lets in what follows on it, whatever else still takes.
            ended.retain(|(leaving, _)| !leaving.is_gone());
            tokio::time::sleep(LOOK).await;
        }
        for (leaving, trace) in ended {
            leaving.gone().await;
            drop(trace);
        }
    }
}

fn is_of(key: &LinkKey, server: &Server) -> bool {
    key.server() == server.name() && key.configuration() == server.configuration()
}
