//! Counters of a test server for the whole process.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use serde_json::{Map, Value};

/// Counters by name. A counter appears when it is first used; the ones below always exist.
#[derive(Debug)]
pub(super) struct Stats(Mutex<Counters>);

#[derive(Debug, Default)]
struct Counters {
    plain: BTreeMap<&'static str, u64>,
    methods: BTreeMap<String, u64>,
    tools: BTreeMap<String, u64>,
}

/// Counters that tests read, so that zero is a number and not an absence.
const ALWAYS: [&str; 10] = [
    "answers",
    "calls",
    "cancels",
    "connections",
    "deletes",
    "discover",
    "gets",
    "initialize",
    "initialized",
    "posts",
];

impl Stats {
    pub(super) fn new() -> Self {
        let plain = ALWAYS.map(|name| (name, 0)).into();
        Self(Mutex::new(Counters { plain, ..Counters::default() }))
    }

    pub(super) fn count(&self, name: &'static str) {
        *self.lock().plain.entry(name).or_default() += 1;
    }

    /// Counts a request or notification.
    pub(super) fn method(&self, method: &str) {
        *self.lock().methods.entry(method.to_owned()).or_default() += 1;
        match method {
            "initialize" => self.count("initialize"),
            "notifications/initialized" => self.count("initialized"),
            "server/discover" => self.count("discover"),
            "tools/call" => self.count("calls"),
            _ => {}
        }
    }

    /// Counts a tool call.
    pub(super) fn tool(&self, name: &str) {
        *self.lock().tools.entry(name.to_owned()).or_default() += 1;
    }

    /// Returns all counters: the plain ones, and `methods` and `tools` with a counter per name.
    pub(super) fn to_json(&self) -> Value {
        let counters = self.lock();
        let mut all = Map::new();
        all.extend(counters.plain.iter().map(|(name, n)| ((*name).to_owned(), Value::from(*n))));
        all.insert("methods".to_owned(), per_name(&counters.methods));
        all.insert("tools".to_owned(), per_name(&counters.tools));
        all.insert("pid".to_owned(), Value::from(std::process::id()));
        Value::Object(all)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn per_name(counters: &BTreeMap<String, u64>) -> Value {
    counters.iter().map(|(name, n)| (name.clone(), Value::from(*n))).collect::<Map<_, _>>().into()
}
