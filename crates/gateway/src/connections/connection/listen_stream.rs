//! Stream that a client listens on, and the tasks that deliver messages of servers to it.

use std::sync::Arc;

use stayput_core::Owner;
use stayput_upstream::LinkKey;
use tokio::task::AbortHandle;

use super::{Connection, RareState};
use crate::{
    auth::{Claims, Principal},
    connections::event_stream::EventStream,
};

/// Stream that a client listens on, with the principal that opened it.
pub(super) struct ListenStream {
    pub(super) stream: Arc<EventStream>,
    principal: Principal,
}

impl Connection {
    /// Registers the task that delivers messages of a link, and aborts the previous one of that link.
    pub(crate) fn add_listen_task(&self, link: LinkKey, task: AbortHandle) {
        let mut activity = self.activity();
        let tasks = &mut activity.rare().listen_tasks;
        tasks.retain(|(_, task)| !task.is_finished());
        let before = tasks.iter().position(|(known, _)| *known == link);
        let before = before.map(|at| tasks.swap_remove(at));
        tasks.push((link, task));
        drop(activity);
        if let Some((_, before)) = before {
            before.abort();
        }
    }

    /// Whether the client has a stream, but no task delivers the messages of this link yet.
    pub(crate) fn lacks_listener_for(&self, link: &LinkKey) -> bool {
        let activity = self.activity();
        let mut tasks = activity.rare.iter().flat_map(|rare| &rare.listen_tasks);
        activity.listen_stream.is_some() && !tasks.any(|(known, _)| known == link)
    }

    /// Makes this the stream that the client listens on, and ends the previous one.
    pub(crate) fn listen(&self, stream: Arc<EventStream>, principal: &Principal) {
        let before = self
            .activity()
            .listen_stream
            .replace(ListenStream { stream, principal: principal.clone() });
        if let Some(before) = before {
            before.stream.end();
        }
    }

    /// Updates the principal of the listening client.
    pub(crate) fn set_listening_principal(&self, principal: &Principal) {
        if let Some(listen_stream) = &mut self.activity().listen_stream {
            listen_stream.principal = principal.clone();
        }
    }

    /// Checks the access of a listening client again. `authenticate` returns the current principal, and `may_use`
    /// tells whether it may still use a server. Messages of other servers are not delivered any more.
    pub(crate) fn recheck(
        &self,
        authenticate: impl FnOnce(&Principal) -> Option<Principal>,
        may_use: impl Fn(&str, &Principal) -> bool,
    ) {
        let mut activity = self.activity();
        let activity = &mut *activity;
        let Some(listen_stream) = activity
            .listen_stream
            .as_mut()
            .filter(|listen_stream| !listen_stream.principal.is_local())
        else {
            return;
        };
        let principal = authenticate(&listen_stream.principal);
        let may_use_link = |link: &LinkKey| {
            principal.as_ref().is_some_and(|principal| may_use(link.server(), principal))
        };
        if let Some(RareState { listen_tasks, .. }) = activity.rare.as_deref_mut() {
            // Removed as well as aborted: if the server comes back, its messages are delivered again.
            listen_tasks
                .extract_if(.., |(link, _)| !may_use_link(link))
                .for_each(|(_, task)| task.abort());
        }
        if let Some(principal) = principal {
            listen_stream.principal = principal;
        }
    }

    /// Returns the stream that the client listens on.
    pub(crate) fn listen_stream(&self) -> Option<Arc<EventStream>> {
        self.activity().listen_stream.as_ref().map(|listen_stream| listen_stream.stream.clone())
    }

    /// Returns the stream that the client listens on, if `accepts` returns true for the client.
    pub(crate) fn listen_stream_of(
        &self,
        accepts: impl Fn(&Owner, &Claims) -> bool,
    ) -> Option<Arc<EventStream>> {
        let activity = self.activity();
        let listen_stream = activity.listen_stream.as_ref();
        let listen_stream = listen_stream
            .filter(|listen_stream| accepts(&self.owner, &listen_stream.principal.claims))?;
        Some(listen_stream.stream.clone())
    }

    /// Sends every message for the client to this stream from now on.
    pub(crate) fn set_only_stream(&self, stream: Arc<EventStream>, principal: &Principal) {
        let _ = self.only_stream.set(stream.clone());
        self.listen(stream, principal);
    }

    /// Detaches the stream, because another connection uses it now. This connection then closes without ending it.
    pub(crate) fn detach_stream(&self) {
        self.activity().listen_stream = None;
    }

    /// Returns the single stream of the client, if it has only one.
    pub(crate) fn only_stream(&self) -> Option<&Arc<EventStream>> {
        self.only_stream.get()
    }
}
