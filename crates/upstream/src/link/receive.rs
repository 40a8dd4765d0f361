//! What a server says, and to whom.

use std::{
    borrow::Cow,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use stayput_wire::{Batch, Code, Kind, Message, meta};

use super::{
    Answer, Asked, Core, Declares,
    answer::Places,
    asked::{NOBODY, refusal},
    core::expiry,
    inbox::{Overflow, Worth},
    pending::Entry,
    prepare,
};
use crate::{CallError, Delivery, lock::lock, verdict};

/// How a message came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// On a stream that belongs to the whole link.
    Link,
    /// On the stream of this call: nothing there concerns another one.
    Call(u64),
}

impl Core {
    /// Takes in what the server sent. What cannot be read is counted and passed over: one server that
    /// prints to its output must not cost anybody a session.
    pub(crate) fn receive<'a>(self: &Arc<Self>, bytes: impl Into<Cow<'a, [u8]>>, via: Via) {
        let bytes = bytes.into();
        if Batch::is_batch(&bytes) {
            match Batch::split(&bytes) {
                Ok(batch) => {
                    let messages = batch.messages();
                    messages.for_each(|one| self.receive_one(one.as_bytes().into(), via));
                }
                Err(_) => self.count_rubbish(),
            }
        } else {
            self.receive_one(bytes, via);
        }
    }

    fn receive_one(self: &Arc<Self>, bytes: Cow<'_, [u8]>, via: Via) {
        let Ok(message) = Message::parse(&bytes) else { return self.count_rubbish() };
        match message.kind() {
            Kind::Response { .. } | Kind::Error { .. } => {
                let Some((number, entry)) = self.answered(&message, via) else { return };
                let id = entry.id.unwrap_or_else(|| number.into());
                // One without an id is small; any other goes on in the bytes it came in.
                let places = Places::of(&message).filter(|places| places.id.is_some());
                let answer = match places {
                    Some(places) => Some(Answer::spliced(bytes, places, id.as_str())),
                    None => Answer::under(&message, id.as_str()),
                };
                let nonsense = || CallError::failed("the answer cannot be read", Delivery::Unknown);
                entry.inbox.end(answer.ok_or_else(nonsense));
            }
            Kind::Notification { method, .. } => self.receive_notification(method, &message, via),
            Kind::Request { method, .. } => self.receive_request(method, &message, via),
        }
    }

    fn count_rubbish(&self) {
        self.counts.rubbish.fetch_add(1, Ordering::Relaxed);
    }

    /// The call that this answers. If the answer is that its session is gone, the call has ended.
    fn answered(&self, message: &Message<'_>, via: Via) -> Option<(u64, Entry)> {
        let number = match (message.id(), via) {
            (Some(id), Via::Link) => id.number(),
            (Some(id), Via::Call(own)) => id.number().filter(|number| *number == own),
            // An error for what could not be read. If there is but one call, it is about that.
            (None, Via::Link) => lock(&self.pending).only(),
            (None, Via::Call(own)) => Some(own),
        };
        let entry = number.and_then(|number| self.take(number));
        let Some((number, entry)) = number.zip(entry) else {
            self.counts.late.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let attached = self.carrier.session().is_some();
        if attached && message.error().is_some_and(verdict::of_error) {
            let loss = self.condemn("it answered that it does not know the session");
            // Who told something about the call had begun with it.
            let begun = entry.inbox.has_begun();
            let delivery = if begun { Delivery::Unknown } else { Delivery::Refused };
            entry.inbox.end(Err(CallError::Lost { loss, delivery }));
            return None;
        }
        Some((number, entry))
    }

    fn receive_notification(self: &Arc<Self>, method: &str, message: &Message<'_>, via: Via) {
        match method {
            "notifications/progress" => self.receive_progress(message, via),
            "notifications/cancelled" => self.receive_withdrawal(message),
            "notifications/message" => self.deliver(message, via, Worth::Log),
            _ => {
                if method.ends_with("/list_changed") {
                    self.counts.lists_changed.fetch_add(1, Ordering::Relaxed);
                }
                if self.receive_subscribed(message, via) {
                    return;
                }
                match via {
                    Via::Call(_) => self.deliver(message, via, Worth::Full),
                    Via::Link => self.tell_listeners(message, Worth::Full),
                }
            }
        }
    }

    /// A notification to the call it came with; one that came with none to the only call in flight, or
    /// to whoever listens.
    fn deliver(self: &Arc<Self>, message: &Message<'_>, via: Via, worth: Worth) {
        let (number, inbox) = {
            let mut pending = lock(&self.pending);
            let number = match via {
                Via::Call(number) => Some(number),
                Via::Link => pending.only(),
            };
            let inbox = number.and_then(|n| Some(pending.get_mut(n)?.inbox.clone()));
            (number, inbox)
        };
        match (number, inbox) {
            (Some(number), Some(inbox)) => {
                if inbox.notify(worth, copy(message.text())) == Err(Overflow) {
                    self.give_up(number, CallError::SlowReader);
                }
            }
            _ => self.tell_listeners(message, worth),
        }
    }

    /// In the modern era a notification names the request that it was asked for with. Says whether it
    /// did.
    fn receive_subscribed(self: &Arc<Self>, message: &Message<'_>, via: Via) -> bool {
        let id = message.params().and_then(|it| it.find(&[meta::META, meta::SUBSCRIPTION_ID]));
        let number = id.and_then(stayput_wire::Raw::integer);
        let number = number.and_then(|number| u64::try_from(number).ok());
        let Some((id, number)) = id.zip(number) else { return false };
        if matches!(via, Via::Call(own) if own != number) {
            return false;
        }
        let found = lock(&self.pending).get_mut(number).map(|it| (it.inbox.clone(), it.id.clone()));
        let Some((inbox, theirs)) = found else { return false };
        let mut edits = message.edit();
        if let Some(theirs) = &theirs {
            edits.replace(id, theirs.as_str());
        }
        let Ok(text) = edits.apply() else { return false };
        if inbox.notify(Worth::Full, copy(&text)) == Err(Overflow) {
            self.give_up(number, CallError::SlowReader);
        }
        true
    }

    fn receive_progress(self: &Arc<Self>, message: &Message<'_>, via: Via) {
        let Some(token) = message.params().and_then(|it| it.find(&[meta::PROGRESS_TOKEN])) else {
            return self.count_rubbish();
        };
        let number = token.integer().and_then(|number| u64::try_from(number).ok());
        let number = number.filter(|n| matches!(via, Via::Link) || via == Via::Call(*n));
        let found = number.and_then(|number| {
            let mut pending = lock(&self.pending);
            let entry = pending.get_mut(number)?;
            entry.expires = expiry(entry.limit);
            Some((number, entry.token.clone()?, entry.inbox.clone()))
        });
        let Some((number, theirs, inbox)) = found else {
            self.counts.late.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let mut edits = message.edit();
        edits.replace(token, &theirs);
        // The token was found in this very text.
        let Ok(text) = edits.apply() else { return self.count_rubbish() };
        if inbox.notify(Worth::Progress, copy(&text)) == Err(Overflow) {
            self.give_up(number, CallError::SlowReader);
        }
    }

    /// The server takes a question back. Whoever got it is told, under the server's id.
    fn receive_withdrawal(self: &Arc<Self>, message: &Message<'_>) {
        let id = message.params().and_then(|params| params.find(&["requestId"]));
        let Some(call) = id.and_then(|id| lock(&self.pending).answered(id.as_str())) else {
            self.counts.late.fetch_add(1, Ordering::Relaxed);
            return;
        };
        match call {
            Some(number) => self.deliver(message, Via::Call(number), Worth::Full),
            None => self.tell_listeners(message, Worth::Full),
        }
    }

    fn receive_request(self: &Arc<Self>, method: &str, message: &Message<'_>, via: Via) {
        let Some(id) = message.id().map(stayput_wire::Id::to_buf) else { return };
        if method == "ping" {
            let pong = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, id.as_str());
            return self.tell(prepare::one_line(&pong));
        }
        let needed = Declares::needed(method);
        let (number, inbox) = {
            let mut pending = lock(&self.pending);
            let listener = || lock(&self.listeners).answerer(needed);
            let number = match via {
                Via::Call(number) => Some(number),
                Via::Link => match pending.able(needed) {
                    Some(number) => Some(number),
                    None if listener().is_some() => None,
                    None => pending.only(),
                },
            };
            let inbox = number.and_then(|n| Some(pending.get_mut(n)?.inbox.clone()));
            let inbox = inbox.or_else(listener);
            if inbox.is_some() {
                pending.ask(id.clone(), number);
            }
            (number, inbox)
        };
        let Some(inbox) = inbox else {
            self.counts.unanswerable.fetch_add(1, Ordering::Relaxed);
            let text = refusal(&id, Code::METHOD_NOT_FOUND, NOBODY);
            return self.tell(prepare::one_line(&text));
        };
        let asked = Asked {
            text: copy(message.text()),
            id,
            method: method.into(),
            core: Arc::downgrade(self),
            answered: false,
        };
        if inbox.ask(asked) == Err(Overflow)
            && let Some(number) = number
        {
            self.give_up(number, CallError::SlowReader);
        }
    }

    fn tell_listeners(&self, message: &Message<'_>, worth: Worth) {
        let heard = lock(&self.listeners).tell(worth, &copy(message.text()));
        if !heard {
            self.counts.unheard.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn copy(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.trim().as_bytes())
}
