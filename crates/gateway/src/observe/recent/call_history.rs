//! Last calls of sessions, with the part of the request that named the session.

use std::{
    collections::{HashMap, VecDeque},
    mem::size_of,
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use rustc_hash::{FxBuildHasher, FxHasher};
use stayput_core::{Clock as _, SessionId, SystemClock, Timestamp};
use stayput_sync::Mutex;
use tokio::time::Instant;

use super::{NameSource, inline_name::InlineName};
use crate::observe::CallEnd;

/// Number of parts, each with its own lock.
const PARTS: usize = 8;

/// Number of sessions in one part.
const SESSIONS: usize = 24;

/// Number of calls of one session. A power of two, because that is how a ring grows.
const CALLS: usize = 32;

/// Maximum number of bytes of the arguments of one call, and of all calls in one part.
const MAX_ARGUMENTS: usize = 512;
const MAX_PART_ARGUMENTS: usize = 8 << 10;

/// Most memory of the history.
pub(super) const MAX_BYTES: usize = PARTS
    * (MAX_PART_ARGUMENTS
        + SESSIONS * (CALLS * size_of::<Entry>() + 2 * size_of::<(SessionId, SessionCalls)>()));

/// Call of a session.
#[derive(Debug)]
struct Entry {
    at: Timestamp,
    micros: u32,
    sent: u32,
    received: u32,
    /// Short number of the client's connection.
    connection: Option<u32>,
    /// Name of the tool, or method of another request.
    label: InlineName<40>,
    server: InlineName<20>,
    name_source: Option<NameSource>,
    /// Outcome. `None` while the call runs.
    end: Option<CallEnd>,
    arguments: Option<Box<str>>,
}

/// Call as it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOpening<'a> {
    pub(crate) server: &'a str,
    /// Name of the tool, or method of another request.
    pub(crate) label: &'a str,
    /// Size of the request.
    pub(crate) sent: usize,
    /// Shard of the request that named the session.
    pub(crate) name_source: Option<NameSource>,
    /// Short number of the client's connection.
    pub(crate) connection: Option<u32>,
    /// Raw JSON of the arguments.
    pub(crate) arguments: Option<&'a str>,
}

/// Call as the operator reads it.
#[derive(Debug)]
pub(crate) struct PastCall {
    pub(crate) at: Timestamp,
    /// Duration. `None` while the call runs.
    pub(crate) micros: Option<u32>,
    pub(crate) sent: u32,
    pub(crate) received: u32,
    pub(crate) connection: Option<u32>,
    pub(crate) label: String,
    pub(crate) server: String,
    pub(crate) name_source: Option<NameSource>,
    pub(crate) end: Option<CallEnd>,
    pub(crate) arguments: Option<String>,
}

/// Last calls of the sessions that were used last.
#[derive(Debug, Default)]
pub(crate) struct CallHistory {
    parts: [Mutex<Shard>; PARTS],
    /// Whether arguments are kept (`ui.show_arguments`).
    keeps_arguments: AtomicBool,
}

#[derive(Debug, Default)]
struct Shard {
    sessions: HashMap<SessionId, SessionCalls, FxBuildHasher>,
    /// Counter that orders the uses of sessions.
    uses: u64,
    /// Bytes of all arguments.
    arguments: usize,
}

#[derive(Debug, Default)]
struct SessionCalls {
    used: u64,
    /// Number of the first call in the ring.
    first: u64,
    calls: VecDeque<Entry>,
}

/// Call that is in the history and runs. Dropping it without an outcome means that it was cancelled.
#[derive(Debug)]
pub(crate) struct RunningEntry {
    history: Arc<CallHistory>,
    session: SessionId,
    number: u64,
    begun: Instant,
    is_over: AtomicBool,
}

impl CallHistory {
    /// Sets whether arguments are kept from now on.
    pub(crate) fn keep_arguments(&self, keep: bool) {
        self.keeps_arguments.store(keep, Ordering::Relaxed);
    }

    pub(crate) fn keeps_arguments(&self) -> bool {
        self.keeps_arguments.load(Ordering::Relaxed)
    }

    /// Adds a call that begins now.
    pub(crate) fn begin(
        self: &Arc<Self>,
        session: SessionId,
        call: CallOpening<'_>,
    ) -> RunningEntry {
        let entry = Entry {
            at: SystemClock.now(),
            micros: 0,
            sent: limited(call.sent),
            received: 0,
            connection: call.connection,
            label: InlineName::new(call.label),
            server: InlineName::new(call.server),
            name_source: call.name_source,
            end: None,
            arguments: call.arguments.map(|text| readable(text).into()),
        };
        let number = self.part(session).add(session, entry);
        let (history, is_over) = (self.clone(), AtomicBool::new(false));
        RunningEntry { history, session, number, begun: Instant::now(), is_over }
    }

    /// Returns the kept calls of a session, the latest first.
    pub(crate) fn calls(&self, session: SessionId) -> Vec<PastCall> {
        let part = self.part(session);
        let calls = part.sessions.get(&session).map(|it| it.calls.iter().rev().map(Entry::read));
        calls.into_iter().flatten().collect()
    }

    fn part(&self, session: SessionId) -> MutexGuard<'_, Shard> {
        use std::hash::{Hash as _, Hasher as _};
        let mut hasher = FxHasher::default();
        session.hash(&mut hasher);
        // The map of a part uses the low bits of the same hash.
        let at = usize::try_from(hasher.finish() >> 40).unwrap_or_default() % PARTS;
        self.parts[at].lock()
    }
}

impl Shard {
    /// Adds a call, and returns its number.
    fn add(&mut self, session: SessionId, entry: Entry) -> u64 {
        if self.sessions.len() >= SESSIONS && !self.sessions.contains_key(&session) {
            self.drop_oldest();
        }
        self.uses += 1;
        self.arguments += entry.arguments.as_ref().map_or(0, |it| it.len());
        // A session that was dropped and comes back gets new numbers, because a call from before may still run.
        let fresh = || SessionCalls { first: self.uses, ..SessionCalls::default() };
        let of_session = self.sessions.entry(session).or_insert_with(fresh);
        of_session.used = self.uses;
        if of_session.calls.len() == CALLS
            && let Some(oldest) = of_session.calls.pop_front()
        {
            of_session.first += 1;
            self.arguments -= oldest.arguments.map_or(0, |it| it.len());
        }
        of_session.calls.push_back(entry);
        let number = of_session.first + of_session.calls.len() as u64 - 1;
        if self.arguments > MAX_PART_ARGUMENTS {
            self.drop_arguments(session, number);
        }
        number
    }

    /// Removes the session that was used least recently.
    fn drop_oldest(&mut self) {
        let oldest = self.sessions.iter().min_by_key(|(_, it)| it.used).map(|(id, _)| *id);
        let Some(gone) = oldest.and_then(|id| self.sessions.remove(&id)) else { return };
        let freed: usize =
            gone.calls.iter().filter_map(|it| it.arguments.as_ref()).map(|it| it.len()).sum();
        self.arguments -= freed;
    }

    /// Removes the arguments of all calls but this one.
    fn drop_arguments(&mut self, session: SessionId, number: u64) {
        for (id, of_session) in &mut self.sessions {
            for (entry, place) in of_session.calls.iter_mut().zip(of_session.first..) {
                if (*id, place) != (session, number) {
                    let gone = entry.arguments.take();
                    self.arguments -= gone.map_or(0, |it| it.len());
                }
            }
        }
    }
}

impl Entry {
    fn read(&self) -> PastCall {
        PastCall {
            at: self.at,
            micros: self.end.map(|_| self.micros),
            sent: self.sent,
            received: self.received,
            connection: self.connection,
            label: self.label.read(),
            server: self.server.read(),
            name_source: self.name_source,
            end: self.end,
            arguments: self.arguments.as_deref().map(str::to_owned),
        }
    }
}

impl RunningEntry {
    /// Sets the outcome, and the size of the answer. Only the first outcome counts.
    pub(crate) fn end(&self, end: CallEnd, received: usize) {
        if self.is_over.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut part = self.history.part(self.session);
        let Some(of_session) = part.sessions.get_mut(&self.session) else { return };
        let place = self.number.checked_sub(of_session.first).map(usize::try_from);
        let Some(Ok(place)) = place else { return };
        if let Some(entry) = of_session.calls.get_mut(place) {
            entry.micros = u32::try_from(self.begun.elapsed().as_micros()).unwrap_or(u32::MAX);
            entry.received = limited(received);
            entry.end = Some(end);
        }
    }
}

impl Drop for RunningEntry {
    fn drop(&mut self) {
        self.end(CallEnd::Cancelled, 0);
    }
}

fn limited(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// Returns the start of a JSON text, with handles shortened.
fn readable(text: &str) -> String {
    const PREFIX: &str = "sp_";
    let (mut shown, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(PREFIX).filter(|_| shown.len() < MAX_ARGUMENTS) {
        let (before, handle) = rest.split_at(at);
        let length = handle
            .bytes()
            .position(|byte| !(byte.is_ascii_alphanumeric() || byte == b'_'))
            .unwrap_or(handle.len());
        shown.push_str(before);
        // The first characters tell handles apart, as in all other output.
        let (head, is_long) = (length.min(PREFIX.len() + 4), length > PREFIX.len() + 4);
        shown.push_str(&handle[..head]);
        shown.push_str(if is_long { "…" } else { "" });
        rest = &handle[length..];
    }
    shown.push_str(rest);
    let mut length = shown.len().min(MAX_ARGUMENTS - "…".len());
    while !shown.is_char_boundary(length) {
        length -= 1;
    }
    if length < shown.len() {
        shown.truncate(length);
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(label: &str) -> CallOpening<'_> {
        CallOpening {
            server: "notes",
            label,
            sent: 10,
            name_source: Some(NameSource::Header),
            connection: None,
            arguments: None,
        }
    }

    fn ids(count: usize) -> Vec<SessionId> {
        let id = |n: usize| format!("00000000-0000-7000-8000-{n:012}").parse().unwrap();
        (0..count).map(id).collect()
    }

    #[test]
    fn calls_of_a_session_are_kept_up_to_a_limit() {
        let history = Arc::new(CallHistory::default());
        let id = ids(1)[0];
        let slow = history.begin(id, opening("slow"));
        for n in 0..CALLS - 1 {
            history.begin(id, opening(&format!("tool{n}"))).end(CallEnd::Ok, 20);
        }
        let calls = history.calls(id);
        assert_eq!((calls.len(), &*calls[0].label), (CALLS, "tool30"));
        assert_eq!((calls[0].end, calls[0].received), (Some(CallEnd::Ok), 20));
        assert_eq!((calls[CALLS - 1].end, calls[CALLS - 1].micros), (None, None));
        drop(slow);
        assert_eq!(history.calls(id)[CALLS - 1].end, Some(CallEnd::Cancelled));
        let late = history.begin(id, opening("late"));
        for _ in 0..CALLS {
            history.begin(id, opening("more")).end(CallEnd::Ok, 0);
        }
        // The ring has forgotten the call.
        late.end(CallEnd::Error, 1);
        assert!(history.calls(id).iter().all(|call| call.label == "more"));
    }

    #[test]
    fn session_that_was_used_least_recently_makes_room() {
        let history = Arc::new(CallHistory::default());
        let all = ids(PARTS * SESSIONS * 3);
        for id in &all {
            history.begin(all[0], opening("busy")).end(CallEnd::Ok, 0);
            history.begin(*id, opening("once")).end(CallEnd::Ok, 0);
        }
        let kept = all.iter().filter(|id| !history.calls(**id).is_empty()).count();
        assert!(kept <= PARTS * SESSIONS && kept > SESSIONS, "{kept}");
        assert!(!history.calls(all[0]).is_empty() && history.calls(all[1]).is_empty());
    }

    #[test]
    fn call_of_a_dropped_session_does_not_end_a_later_one() {
        let history = Arc::new(CallHistory::default());
        let all = ids(PARTS * SESSIONS * 3);
        let before = history.begin(all[0], opening("before"));
        for id in &all[1..] {
            history.begin(*id, opening("once")).end(CallEnd::Ok, 0);
        }
        assert!(history.calls(all[0]).is_empty());
        let _later = history.begin(all[0], opening("later"));
        before.end(CallEnd::Error, 1);
        let calls = history.calls(all[0]);
        assert_eq!((calls.len(), &*calls[0].label, calls[0].end), (1, "later", None));
    }

    #[test]
    fn arguments_have_a_limit_and_no_handle() {
        let secret = "sp_0123456789abcdefghjkmnpqrstvwxyz";
        let shown = readable(&format!(r#"{{"a":"{secret} and {secret}","b":1}}"#));
        assert_eq!(shown, r#"{"a":"sp_0123… and sp_0123…","b":1}"#);
        assert!(readable(&"ü".repeat(2_000)).len() <= MAX_ARGUMENTS);
        let (history, id) = (Arc::new(CallHistory::default()), ids(1)[0]);
        let long = "x".repeat(2_000);
        for _ in 0..CALLS {
            history
                .begin(id, CallOpening { arguments: Some(&long), ..opening("add") })
                .end(CallEnd::Ok, 0);
            assert!(history.part(id).arguments <= MAX_PART_ARGUMENTS);
        }
        assert!(history.calls(id)[0].arguments.is_some());
    }
}
