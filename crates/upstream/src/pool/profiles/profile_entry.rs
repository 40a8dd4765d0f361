//! Cache entry of one profile: unknown, being learned, or known.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use stayput_sync::Mutex;
use tokio::{
    sync::{Notify, futures::Notified},
    task::AbortHandle,
    time::Instant,
};

use crate::{
    LinkOpenError, Profile, Scope, Server,
    util::{
        backoff::Backoff,
        flag::{CompletionGuard, Flag},
    },
};

/// Cache entry of one profile. Requests wait while it is being learned.
pub(super) struct ProfileEntry {
    state: Mutex<State>,
    changed: Notify,
    /// Number of list changes, on any link, that were checked.
    pub(super) looked: AtomicU64,
    /// Lock that is held while changed lists are fetched.
    pub(super) relearning: tokio::sync::Mutex<()>,
}

struct State {
    known: Option<Arc<Profile>>,
    /// Number of the current attempt, so that a waiter can tell how its attempt ended.
    attempt: u64,
    learning: Option<RunningAttempt>,
    failed: Option<(u64, Arc<LinkOpenError>)>,
    backoff: Backoff,
    rest_until: Option<Instant>,
}

/// Running attempt.
struct RunningAttempt {
    /// Scope whose credentials are used.
    scope: Scope,
    /// Flag that is raised when the attempt has released everything.
    gone: Arc<Flag>,
    task: Option<AbortHandle>,
}

/// Next step for a request.
pub(super) enum ProfileStep {
    Known(Arc<Profile>),
    Failed(Arc<LinkOpenError>),
    /// Wait for this attempt.
    Wait(u64),
    /// Learn the profile in this attempt; no other attempt runs.
    Learn(u64, CompletionGuard),
}

impl Default for ProfileEntry {
    fn default() -> Self {
        let backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(30));
        let state = State {
            known: None,
            attempt: 0,
            learning: None,
            failed: None,
            backoff,
            rest_until: None,
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            looked: AtomicU64::default(),
            relearning: tokio::sync::Mutex::default(),
        }
    }
}

impl ProfileEntry {
    pub(super) fn known(&self) -> Option<Arc<Profile>> {
        self.state.lock().known.clone()
    }

    /// Drops the profile; the next request learns it again.
    pub(super) fn clear(&self) {
        self.state.lock().known = None;
    }

    pub(super) fn set(&self, profile: Arc<Profile>) {
        self.state.lock().known = Some(profile);
        self.changed.notify_waiters();
    }

    /// Waits for a change of the state. Enable it before the call of [`ProfileEntry::enter`], so that no change is missed.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Returns the next step for a request. `waited` is the attempt that it waited for.
    pub(super) fn enter(&self, waited: Option<u64>, server: &Server, scope: &Scope) -> ProfileStep {
        let mut state = self.state.lock();
        if let Some(known) = &state.known {
            return ProfileStep::Known(known.clone());
        }
        if state.learning.is_some() {
            return ProfileStep::Wait(state.attempt);
        }
        if let Some((attempt, error)) = &state.failed
            && waited == Some(*attempt)
        {
            return ProfileStep::Failed(error.clone());
        }
        if let Some(resting) = state.resting(server) {
            return ProfileStep::Failed(Arc::new(resting));
        }
        state.attempt += 1;
        let (completion, gone) = CompletionGuard::new();
        state.learning = Some(RunningAttempt { scope: scope.clone(), gone, task: None });
        ProfileStep::Learn(state.attempt, completion)
    }

    /// Stores the abort handle of the learning task, or aborts the task if its attempt is over.
    pub(super) fn learning(&self, attempt: u64, task: AbortHandle) {
        let mut state = self.state.lock();
        let current = state.attempt == attempt;
        match &mut state.learning {
            Some(learning) if current => learning.task = Some(task),
            // The attempt has finished, or was given up before its handle was stored.
            _ => task.abort(),
        }
    }

    /// Stores the result of an attempt. Returns `false` if the attempt was stopped meanwhile.
    pub(super) fn done(&self, attempt: u64, learned: Result<Profile, LinkOpenError>) -> bool {
        {
            let mut state = self.state.lock();
            if state.attempt != attempt || state.learning.take().is_none() {
                return false;
            }
            match learned {
                Ok(profile) => {
                    state.known = Some(Arc::new(profile));
                    state.failed = None;
                }
                Err(error) => {
                    // An exhausted budget is not a failure of the server.
                    if !matches!(error, LinkOpenError::AtCapacity(_) | LinkOpenError::Ended { .. })
                    {
                        state.rest_until = Some(Instant::now() + state.backoff.next());
                    }
                    state.failed = Some((attempt, Arc::new(error)));
                }
            }
        }
        self.changed.notify_waiters();
        true
    }

    /// Aborts the attempt if its scope matches. Returns what to wait for.
    pub(super) fn stop(&self, which: &impl Fn(&Scope) -> bool) -> Option<Arc<Flag>> {
        let stopped = {
            let mut state = self.state.lock();
            let stopped = state.learning.take_if(|learning| which(&learning.scope))?;
            // A new number, so that a late result is ignored.
            state.attempt += 1;
            stopped
        };
        self.changed.notify_waiters();
        if let Some(task) = stopped.task {
            task.abort();
        }
        Some(stopped.gone)
    }
}

impl State {
    fn resting(&self, server: &Server) -> Option<LinkOpenError> {
        let pause = self.rest_until?.checked_duration_since(Instant::now())?;
        let failed = self.failed.as_ref().map(|(_, error)| (error.to_string(), error.brief()));
        let (last, brief) = failed.unwrap_or_default();
        Some(LinkOpenError::BackingOff { server: server.name().to_owned(), pause, last, brief })
    }
}

impl fmt::Debug for ProfileEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        write!(f, "ProfileEntry({:?})", state.known)
    }
}
