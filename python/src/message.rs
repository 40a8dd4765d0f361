//! What the hub's thread tells whoever asked something of it.

use std::sync::Arc;

use crate::{op::Outcome, question::Asked};

/// Where what is told goes.
pub(crate) trait Sink: Send + Sync {
    /// Takes it, from any thread, without waiting.
    fn put(&self, message: Message);
}

/// Something that was told to one who asked.
pub(crate) struct Message {
    pub(crate) token: u64,
    pub(crate) what: What,
}

/// What was told.
pub(crate) enum What {
    /// That it is over, and how.
    Done(Outcome),
    /// A question that a server has meanwhile.
    Asked(Asked),
    /// What a server said meanwhile, a whole notification.
    Heard(String),
}

/// One who asked something.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) token: u64,
}

impl Caller {
    pub(crate) fn tell(&self, what: What) {
        self.sink.put(Message { token: self.token, what });
    }
}

tokio::task_local! {
    /// Who asked for what this task does.
    pub(crate) static CALLER: Caller;
}
