//! Stream that a client listens on, and the tasks that deliver messages of servers to it.

use std::sync::Arc;

use stayput_core::{HolderId, Owner};
use stayput_upstream::LinkKey;
use tokio::{sync::Notify, task::AbortHandle};

use super::{Connection, RareState};
use crate::{
    auth::{Claims, Principal},
    connections::event_stream::EventStream,
};

/// Stream that a client listens on, with the principal that opened it.
pub(super) struct ListenStream {
    pub(super) stream: Arc<EventStream>,
    principal: Principal,
    /// Whether another replica reads the stream: the client listens there.
    is_relayed: bool,
    /// Tasks that read the messages of links which other replicas have.
    relays: Vec<RelayTask>,
}

impl ListenStream {
    /// Whether somebody reads the stream, or may read it again. Another replica asks for a stream that it does not read when
    /// it is told of a link.
    fn is_live(&self) -> bool {
        !self.stream.has_ended() && (!self.is_relayed || self.stream.is_read())
    }

    /// Replaces the principal. Other replicas are asked again if its claims are others.
    fn set_principal(&mut self, principal: Principal) {
        if self.principal.claims != principal.claims {
            self.relays.iter().for_each(|it| it.claims_changed.notify_one());
        }
        self.principal = principal;
    }
}

/// Task that reads the messages of links at one replica. It ends with the stream.
pub(crate) struct RelayTask {
    pub(crate) replica: HolderId,
    pub(crate) task: AbortHandle,
    /// Signalled when the client has other claims, which the replica must know.
    pub(crate) claims_changed: Arc<Notify>,
}

impl Drop for RelayTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connection {
    /// Registers the task that delivers messages of a link, and aborts the previous one of that link.
    pub(crate) fn add_listen_task(&self, link: LinkKey, task: AbortHandle) {
        let mut activity = self.activity.lock();
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

    /// Whether the client listens, but no task delivers the messages of this link yet.
    pub(crate) fn lacks_listener_for(&self, link: &LinkKey) -> bool {
        let activity = self.activity.lock();
        let mut tasks = activity.rare.iter().flat_map(|rare| &rare.listen_tasks);
        let listens = activity.listen_stream.as_ref().is_some_and(ListenStream::is_live);
        listens && !tasks.any(|(known, _)| known == link)
    }

    /// Whether a task delivers the messages of this link now.
    pub(crate) fn has_listener_for(&self, link: &LinkKey) -> bool {
        let activity = self.activity.lock();
        let mut tasks = activity.rare.iter().flat_map(|rare| &rare.listen_tasks);
        tasks.any(|(known, task)| known == link && !task.is_finished())
    }

    /// Whether the client listens, here or at a replica that reads its messages here.
    pub(crate) fn is_listening(&self) -> bool {
        self.activity.lock().listen_stream.as_ref().is_some_and(ListenStream::is_live)
    }

    /// Whether another replica reads the messages of the client here.
    pub(crate) fn is_relayed(&self) -> bool {
        self.activity.lock().listen_stream.as_ref().is_some_and(|it| it.is_relayed)
    }

    /// Makes this the stream that the client listens on, and ends the previous one.
    pub(crate) fn listen(&self, stream: Arc<EventStream>, principal: &Principal) {
        self.set_listen_stream(stream, principal, false);
    }

    /// Returns the stream from which another replica, where the client listens, reads its messages, and whether it is new. One
    /// that has not ended is kept, with the messages that were not read.
    pub(crate) fn listen_for_replica(&self, principal: &Principal) -> (Arc<EventStream>, bool) {
        let mut activity = self.activity.lock();
        let kept = activity.listen_stream.as_mut();
        if let Some(kept) = kept.filter(|it| it.is_relayed && !it.stream.has_ended()) {
            kept.set_principal(principal.clone());
            return (kept.stream.clone(), false);
        }
        drop(activity);
        // Each message is kept until the other replica has read it; that one keeps it for the client.
        let stream = EventStream::once(self.target.server().cloned(), Box::new(|| {}));
        self.set_listen_stream(stream.clone(), principal, true);
        (stream, true)
    }

    fn set_listen_stream(&self, stream: Arc<EventStream>, principal: &Principal, is_relayed: bool) {
        let (principal, relays) = (principal.clone(), Vec::new());
        let next = ListenStream { stream, principal, is_relayed, relays };
        let before = self.activity.lock().listen_stream.replace(next);
        if let Some(before) = before {
            before.stream.end();
        }
    }

    /// Returns the stream on which the client itself listens here, until it has ended, and the principal that opened it.
    pub(crate) fn own_stream(&self) -> Option<(Arc<EventStream>, Principal)> {
        let activity = self.activity.lock();
        let own = activity.listen_stream.as_ref().filter(|own| !own.is_relayed)?;
        (!own.stream.has_ended()).then(|| (own.stream.clone(), own.principal.clone()))
    }

    /// Ends the stream on which the client listens here, unless it is its only one. The client opens it again.
    pub(crate) fn stop_listening(&self) {
        if self.only_stream().is_some() {
            return;
        }
        if let Some((stream, _)) = self.own_stream() {
            stream.end();
            let listen_stream = &mut self.activity.lock().listen_stream;
            listen_stream.iter_mut().for_each(|it| it.relays.clear());
        }
    }

    /// Registers the task that reads the messages of links at a replica, and aborts the previous one of that replica. The
    /// task is aborted if the client listens on another stream than its one.
    pub(crate) fn add_relay(&self, stream: &Arc<EventStream>, relay: RelayTask) {
        let mut activity = self.activity.lock();
        let listen_stream = activity.listen_stream.as_mut();
        let Some(listen_stream) = listen_stream.filter(|it| Arc::ptr_eq(&it.stream, stream)) else {
            return;
        };
        let keeps = |it: &RelayTask| it.replica != relay.replica && !it.task.is_finished();
        listen_stream.relays.retain(keeps);
        listen_stream.relays.push(relay);
    }

    /// Whether a task reads the messages of links at this replica.
    pub(crate) fn has_relay(&self, replica: HolderId) -> bool {
        let activity = self.activity.lock();
        let mut relays = activity.listen_stream.iter().flat_map(|it| &it.relays);
        relays.any(|it| it.replica == replica && !it.task.is_finished())
    }

    /// Updates the principal of the listening client.
    pub(crate) fn set_listening_principal(&self, principal: &Principal) {
        if let Some(listen_stream) = &mut self.activity.lock().listen_stream {
            listen_stream.set_principal(principal.clone());
        }
    }

    /// Checks the access of a listening client again. `authenticate` returns the current principal, and `may_use`
    /// tells whether it may still use a server. Messages of other servers are not delivered any more.
    pub(crate) fn recheck(
        &self,
        authenticate: impl FnOnce(&Principal) -> Option<Principal>,
        may_use: impl Fn(&str, &Principal) -> bool,
    ) {
        let mut activity = self.activity.lock();
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
        match principal {
            Some(principal) => listen_stream.set_principal(principal),
            None => listen_stream.relays.clear(),
        }
    }

    /// Returns the stream that the client listens on.
    pub(crate) fn listen_stream(&self) -> Option<Arc<EventStream>> {
        self.activity
            .lock()
            .listen_stream
            .as_ref()
            .map(|listen_stream| listen_stream.stream.clone())
    }

    /// Returns the stream that the client listens on here, if `accepts` returns true for the client.
    pub(crate) fn listen_stream_of(
        &self,
        accepts: impl Fn(&Owner, &Claims) -> bool,
    ) -> Option<Arc<EventStream>> {
        let activity = self.activity.lock();
        let listen_stream = activity.listen_stream.as_ref();
        let listen_stream = listen_stream.filter(|listen_stream| {
            !listen_stream.is_relayed && accepts(&self.owner, &listen_stream.principal.claims)
        })?;
        Some(listen_stream.stream.clone())
    }

    /// Sends every message for the client to this stream from now on.
    pub(crate) fn set_only_stream(&self, stream: Arc<EventStream>, principal: &Principal) {
        let _ = self.only_stream.set(stream.clone());
        self.listen(stream, principal);
    }

    /// Detaches the stream, because another connection uses it now. This connection then closes without ending it.
    pub(crate) fn detach_stream(&self) {
        self.activity.lock().listen_stream = None;
    }

    /// Returns the single stream of the client, if it has only one.
    pub(crate) fn only_stream(&self) -> Option<&Arc<EventStream>> {
        self.only_stream.get()
    }
}
