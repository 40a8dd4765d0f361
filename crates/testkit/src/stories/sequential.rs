//! Sequential stories.

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use stayput_core::{
    Agent, EndReason, ExpectedRevision, ExpectedValue, Expiry, Generation, Holder, Key, Lease,
    Owner, Record, Revision, StateLimits, StateWrite, Store, StoreError, Timestamp,
};

use crate::model::{Model, ModelError, STATE_LIMIT, Session};

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const MINUTE: Duration = Duration::from_secs(60);

/// One step. Sessions are counted from the latest one back, so that steps tend to use the same ones.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Insert {
        owner: usize,
        key: Option<usize>,
        idle: Option<u32>,
        held_by: Option<usize>,
    },
    End {
        session: usize,
        by: Option<usize>,
        unused: bool,
    },
    Revive {
        session: usize,
        by: Option<usize>,
    },
    Extend {
        session: usize,
        by: Option<usize>,
        idle: u32,
        stale: bool,
    },
    Touch {
        session: usize,
        by: Option<usize>,
        back: u32,
    },
    Put {
        session: usize,
        by: Option<usize>,
        key: usize,
        size: usize,
        expect: WriterExpectation,
    },
    Take {
        session: usize,
        by: Option<usize>,
        key: usize,
        expect: WriterExpectation,
    },
    Claim {
        session: usize,
        by: usize,
    },
    Release {
        session: usize,
        by: usize,
    },
    /// The holder dies and returns under a new lease.
    Die {
        holder: usize,
    },
    Remove {
        session: usize,
        by: Option<usize>,
    },
    Purge {
        minutes: u32,
    },
    Look,
}

/// Value that a writer expects.
#[derive(Clone, Copy, Debug)]
pub(super) enum WriterExpectation {
    Anything,
    Nothing,
    TheTruth,
    SomethingElse,
}

fn step() -> impl Strategy<Value = Step> {
    let session = || 0usize..4;
    let by = || prop::option::weighted(0.7, 0usize..2);
    let saw = || {
        prop_oneof![
            3 => Just(WriterExpectation::Anything),
            2 => Just(WriterExpectation::Nothing),
            4 => Just(WriterExpectation::TheTruth),
            1 => Just(WriterExpectation::SomethingElse)
        ]
    };
    let key = || 0usize..3;
    prop_oneof![
        5 => (0usize..2, prop::option::weighted(0.8, 0usize..2), prop::option::of(1u32..40), by())
            .prop_map(|(owner, key, idle, held_by)| Step::Insert { owner, key, idle, held_by }),
        3 => (session(), by(), any::<bool>()).prop_map(|(session, by, unused)| Step::End { session, by, unused }),
        2 => (session(), by()).prop_map(|(session, by)| Step::Revive { session, by }),
        2 => (session(), by(), 1u32..40, any::<bool>())
            .prop_map(|(session, by, idle, stale)| Step::Extend { session, by, idle, stale }),
        3 => (session(), by(), 0u32..3).prop_map(|(session, by, back)| Step::Touch { session, by, back }),
        5 => (session(), by(), key(), 0usize..30, saw())
            .prop_map(|(session, by, key, size, expect)| Step::Put { session, by, key, size, expect }),
        2 => (session(), by(), key(), saw())
            .prop_map(|(session, by, key, expect)| Step::Take { session, by, key, expect }),
        3 => (session(), 0usize..2).prop_map(|(session, by)| Step::Claim { session, by }),
        1 => (session(), 0usize..2).prop_map(|(session, by)| Step::Release { session, by }),
        1 => (0usize..2).prop_map(|holder| Step::Die { holder }),
        1 => (session(), by()).prop_map(|(session, by)| Step::Remove { session, by }),
        1 => (0u32..40).prop_map(|minutes| Step::Purge { minutes }),
        2 => Just(Step::Look),
    ]
}

pub(super) fn story() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..60)
}

/// Running story: the store, the model, and the mapping between them.
struct Teller<'a> {
    store: &'a Arc<dyn Store>,
    model: Model,
    records: Vec<Record>,
    /// Every lease that was taken; the last one of each holder is alive.
    leases: Vec<Lease>,
    current: [usize; 2],
    now: Timestamp,
    /// Number of the current step.
    count: usize,
}

/// Runs a story on a store and on the model, and compares. Leaves the store empty.
pub(super) async fn tell(store: &Arc<dyn Store>, story: &[Step]) {
    empty(store).await;
    let mut leases = Vec::new();
    for _ in 0..2 {
        leases.push(store.acquire_lease(&Holder::unreachable(), MINUTE * 60).await.unwrap());
    }
    let mut teller = Teller {
        store,
        model: Model::default(),
        records: Vec::new(),
        leases,
        current: [0, 1],
        now: START,
        count: 0,
    };
    for step in story {
        teller.now = teller.now.after(MINUTE);
        teller.count += 1;
        teller.step(step).await;
    }
    teller.look().await;
    for lease in teller.leases {
        store.release_lease(lease).await.unwrap();
    }
}

/// Removes the remains of another story, which may have failed midway.
async fn empty(store: &Arc<dyn Store>) {
    for record in store.list(None, None, 1_000).await.unwrap() {
        store.remove(record.id, record.holder).await.unwrap();
    }
    store.purge(Timestamp::MAX, 1_000).await.unwrap();
}

impl Teller<'_> {
    fn at(&self, back: usize) -> Option<usize> {
        self.records.len().checked_sub(back + 1)
    }

    fn lease(&self, by: Option<usize>) -> (Option<usize>, Option<Lease>) {
        let number = by.map(|holder| self.current[holder]);
        (number, number.map(|number| self.leases[number]))
    }

    /// Converts an error of the store to one of the model.
    fn no(&self, error: &StoreError) -> ModelError {
        match error {
            StoreError::Taken { by } => {
                ModelError::Taken(self.records.iter().position(|record| record.id == *by).unwrap())
            }
            StoreError::Missing => ModelError::Missing,
            StoreError::Stale => ModelError::Stale,
            StoreError::NotHolder => ModelError::NotHolder,
            StoreError::HeldBy { holder } => ModelError::HeldBy(
                self.leases.iter().rposition(|lease| lease.holder == holder.id).unwrap(),
            ),
            StoreError::TooLarge { limit, size, .. } => ModelError::TooLarge(*limit, *size),
            other => panic!("no store should say {other:?} here"),
        }
    }

    fn agree<T: Copy, U>(
        &self,
        store: Result<T, StoreError>,
        model: Result<U, ModelError>,
    ) -> Option<T> {
        match (store, model) {
            (Ok(value), Ok(_)) => Some(value),
            (Err(error), Err(no)) => {
                assert_eq!(self.no(&error), no);
                None
            }
            (Ok(_), Err(no)) => panic!("the store did it, but the model says {no:?}"),
            (Err(error), Ok(_)) => panic!("the store says {error:?}, but the model did it"),
        }
    }

    async fn step(&mut self, step: &Step) {
        match *step {
            Step::Insert { owner, key, idle, held_by } => {
                self.insert((owner, key), idle, held_by).await;
            }
            Step::End { session, by, unused } => self.end(session, by, unused).await,
            Step::Revive { session, by } => self.revive(session, by).await,
            Step::Extend { session, by, idle, stale } => {
                self.extend(session, by, idle, stale).await;
            }
            Step::Touch { session, by, back } => self.touch(session, by, back).await,
            Step::Put { session, by, key, size, expect } => {
                self.put(session, by, (key, size), expect).await;
            }
            Step::Take { session, by, key, expect } => self.take(session, by, key, expect).await,
            Step::Claim { session, by } => self.claim(session, by).await,
            Step::Release { session, by } => self.release(session, by).await,
            Step::Die { holder } => self.die(holder).await,
            Step::Remove { session, by } => self.remove(session, by).await,
            Step::Purge { minutes } => self.purge(minutes).await,
            Step::Look => self.look().await,
        }
    }

    async fn insert(
        &mut self,
        name: (usize, Option<usize>),
        idle: Option<u32>,
        held_by: Option<usize>,
    ) {
        let expiry = idle.map_or(Expiry::NEVER, |minutes| Expiry::idle(MINUTE * minutes));
        let (holder, lease) = self.lease(held_by);
        let mut record = Record::new(owner(name.0), expiry, self.now);
        record.holder = lease;
        if let Some(key) = name.1 {
            record = record.with_key(Agent::none(), self::key(key));
        }
        self.records.push(record.clone());
        let said = self.store.insert(&record, None).await;
        let expected = self.model.insert(Session {
            there: true,
            key_since: self.count,
            name,
            expiry,
            created: self.now,
            last_used: self.now,
            ended: None,
            generation: Generation(0),
            revision: Revision(0),
            holder,
            state: std::collections::BTreeMap::new(),
            state_revision: Revision(0),
        });
        if let Some(generation) = self.agree(said, expected) {
            assert!(expected.unwrap().contains(&generation), "{generation} of {expected:?}");
            self.model.sessions.last_mut().unwrap().generation = generation;
        }
    }

    /// Returns the record in the store, if any.
    async fn read(&self, at: usize) -> Option<Record> {
        self.store.load(self.records[at].id).await.unwrap()
    }

    async fn end(&mut self, session: usize, by: Option<usize>, unused: bool) {
        let Some(at) = self.at(session) else { return };
        let Some(seen) = self.read(at).await else {
            return;
        };
        let (number, lease) = self.lease(by);
        let mut over = seen.clone();
        over.end(EndReason::Closed, self.now);
        let seen = if unused {
            ExpectedRevision::unused(&seen)
        } else {
            ExpectedRevision::revision(&seen)
        };
        let said = self.store.replace(&over, seen, lease).await;
        let now = self.now;
        let expected = self.model.write(at, number).map(|session| {
            session.ended = Some(now);
            session.holder = None;
            session.state.clear();
        });
        self.replaced(at, said, expected);
    }

    async fn revive(&mut self, session: usize, by: Option<usize>) {
        let Some(at) = self.at(session) else { return };
        let Some(seen) = self.read(at).await.filter(|record| !record.is_live()) else {
            return;
        };
        let (number, lease) = self.lease(by);
        let mut record = seen.clone();
        record.revive(self.now);
        let said = self.store.replace(&record, ExpectedRevision::revision(&seen), lease).await;
        let now = self.now;
        let (allowed, count) = (self.model.revivable(at), self.count);
        let expected = self.model.write(at, number).and_then(|session| {
            allowed?;
            (session.ended, session.created, session.last_used) = (None, now, now);
            session.generation = session.generation.next();
            session.holder = number;
            session.key_since = count;
            Ok(())
        });
        self.replaced(at, said, expected);
    }

    async fn extend(&mut self, session: usize, by: Option<usize>, idle: u32, stale: bool) {
        let Some(at) = self.at(session) else { return };
        let Some(mut record) = self.read(at).await.filter(Record::is_live) else {
            return;
        };
        let (number, lease) = self.lease(by);
        let mut seen = ExpectedRevision::revision(&record);
        if stale {
            seen.revision = Revision(seen.revision.0 + 1);
        }
        record.expiry = Expiry::idle(MINUTE * idle);
        let said = self.store.replace(&record, seen, lease).await;
        let expected = self.model.write(at, number).and_then(|session| {
            if stale {
                return Err(ModelError::Stale);
            }
            session.expiry = record.expiry;
            Ok(())
        });
        self.replaced(at, said, expected);
    }

    fn replaced(
        &mut self,
        at: usize,
        said: Result<Revision, StoreError>,
        expected: Result<(), ModelError>,
    ) {
        if let Some(revision) = self.agree(said, expected) {
            let session = &mut self.model.sessions[at];
            assert!(revision > session.revision);
            session.revision = revision;
        }
    }

    async fn touch(&mut self, session: usize, by: Option<usize>, back: u32) {
        let Some(at) = self.at(session) else { return };
        let (number, lease) = self.lease(by);
        let used = self.now.before(MINUTE * back);
        let touched = self.store.touch(&[(self.records[at].id, used)], lease).await.unwrap();
        let expected = self.model.write_live(at, number).map(|session| {
            session.last_used = session.last_used.max(used);
        });
        assert_eq!(touched == 1, expected.is_ok());
    }

    fn expect(&self, at: usize, key: usize, saw: WriterExpectation) -> (ExpectedValue, bool) {
        let found = self.model.sessions[at].state.get(&key).map(|(revision, _)| *revision);
        match (saw, found) {
            (WriterExpectation::Anything, _) => (ExpectedValue::Any, true),
            (WriterExpectation::Nothing, found) => (ExpectedValue::Absent, found.is_none()),
            (WriterExpectation::TheTruth, Some(revision)) => (ExpectedValue::At(revision), true),
            (WriterExpectation::TheTruth, None) => (ExpectedValue::Absent, true),
            (WriterExpectation::SomethingElse, found) => {
                (ExpectedValue::At(Revision(found.unwrap_or_default().0 + 1_000)), false)
            }
        }
    }

    async fn put(
        &mut self,
        session: usize,
        by: Option<usize>,
        (key, size): (usize, usize),
        saw: WriterExpectation,
    ) {
        let Some(at) = self.at(session) else { return };
        let (number, lease) = self.lease(by);
        let (expect, met) = self.expect(at, key, saw);
        let limits = StateLimits { session: STATE_LIMIT, ..StateLimits::default() };
        let (name, bytes) = (key.to_string(), vec![7; size]);
        let put = StateWrite { key: &name, bytes: &bytes, expected: expect, limits };
        let said = self.store.put_state(self.records[at].id, put, lease).await;
        let expected = match self.model.write_live(at, number) {
            Ok(_) if !met => Err(ModelError::Stale),
            Ok(_) => self.model.put(at, number, key, size).map(drop),
            Err(no) => Err(no),
        };
        if let Some(revision) = self.agree(said, expected) {
            let session = &mut self.model.sessions[at];
            assert!(
                revision > session.state_revision,
                "{revision} after {}",
                session.state_revision
            );
            session.state_revision = revision;
            session.state.insert(key, (revision, size));
        }
    }

    async fn take(
        &mut self,
        session: usize,
        by: Option<usize>,
        key: usize,
        saw: WriterExpectation,
    ) {
        let Some(at) = self.at(session) else { return };
        let (number, lease) = self.lease(by);
        let (expect, met) = self.expect(at, key, saw);
        let said =
            self.store.remove_state(self.records[at].id, &key.to_string(), expect, lease).await;
        let expected = self.model.write_live(at, number).and_then(|session| {
            if met { Ok(session.state.remove(&key)) } else { Err(ModelError::Stale) }
        });
        self.agree(said, expected);
    }

    async fn claim(&mut self, session: usize, by: usize) {
        let Some(at) = self.at(session) else { return };
        let current = self.current;
        let said = self.store.claim(self.records[at].id, self.leases[current[by]]).await.map(drop);
        let expected = self.model.claim(at, current[by], |lease| !current.contains(&lease));
        self.agree(said, expected);
    }

    async fn release(&mut self, session: usize, by: usize) {
        let Some(at) = self.at(session) else { return };
        let number = self.current[by];
        self.store.release_claim(self.records[at].id, self.leases[number]).await.unwrap();
        let session = &mut self.model.sessions[at];
        session.holder = session.holder.filter(|held| *held != number);
    }

    async fn die(&mut self, holder: usize) {
        self.store.release_lease(self.leases[self.current[holder]]).await.unwrap();
        self.current[holder] = self.leases.len();
        self.leases
            .push(self.store.acquire_lease(&Holder::unreachable(), MINUTE * 60).await.unwrap());
    }

    async fn remove(&mut self, session: usize, by: Option<usize>) {
        let Some(at) = self.at(session) else { return };
        let (number, lease) = self.lease(by);
        let said = self.store.remove(self.records[at].id, lease).await;
        let expected = match self.model.write(at, number) {
            Err(ModelError::Missing) => Ok(()),
            other => other.map(|session| session.there = false),
        };
        self.agree(said, expected);
    }

    async fn purge(&mut self, minutes: u32) {
        let before = self.now.before(MINUTE * minutes);
        let purged = self.store.purge(before, 1_000).await.unwrap();
        let mut expected = 0;
        for session in &mut self.model.sessions {
            if session.there && session.ended.is_some_and(|ended| ended < before) {
                session.there = false;
                expected += 1;
            }
        }
        assert_eq!(purged, expected);
    }

    /// Compares everything that is visible.
    async fn look(&self) {
        let mut live = Vec::new();
        for (at, session) in self.model.sessions.iter().enumerate() {
            let found = self.read(at).await;
            assert_eq!(found.is_some(), session.there, "session {at}");
            let Some(found) = found else { continue };
            let holder = session.holder.map(|lease| self.leases[lease]);
            let seen =
                (found.ended.map(|ended| ended.at), found.generation, found.revision, found.holder);
            assert_eq!(
                seen,
                (session.ended, session.generation, session.revision, holder),
                "session {at}"
            );
            assert_eq!(
                (found.last_used, found.expiry),
                (session.last_used, session.expiry),
                "session {at}"
            );
            let keys = self.store.list_state_keys(found.id).await.unwrap();
            let keys: Vec<_> =
                keys.into_iter().map(|it| (it.key, (it.revision, it.size))).collect();
            let expected: Vec<_> =
                session.state.iter().map(|(key, value)| (key.to_string(), *value)).collect();
            assert_eq!(keys, expected, "session {at}");
            if session.ended.is_none() {
                live.push(found.id);
            }
        }
        live.sort_unstable();
        let listed = self.store.list(None, None, 1_000).await.unwrap();
        assert_eq!(listed.iter().map(|record| record.id).collect::<Vec<_>>(), live);
        for (who, name) in (0..2).flat_map(|who| (0..2).map(move |name| (who, name))) {
            let found =
                self.store.find_by_key(&owner(who), &Agent::none(), &key(name)).await.unwrap();
            let expected = self.model.find((who, Some(name))).map(|at| self.records[at].id);
            assert_eq!(found.map(|record| record.id), expected);
        }
        let later = self.now.after(MINUTE * 10);
        let due = self.store.list_due(later, None, 1_000).await.unwrap();
        let mut expected: Vec<_> = self
            .model
            .due(later)
            .into_iter()
            .map(|(deadline, at)| (deadline, self.records[at].id))
            .collect();
        expected.sort_unstable();
        let mut seen: Vec<_> =
            due.iter().map(|record| (record.deadline().unwrap(), record.id)).collect();
        assert!(seen.is_sorted_by_key(|(deadline, _)| *deadline));
        seen.sort_unstable();
        assert_eq!(seen, expected);
    }
}

fn owner(number: usize) -> Owner {
    Owner::verified("https://id.example.com", &format!("owner-{number}")).unwrap()
}

fn key(number: usize) -> Key {
    Key::named(&format!("key-{number}")).unwrap()
}
