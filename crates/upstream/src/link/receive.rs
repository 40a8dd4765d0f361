//! Dispatch of messages from a server to calls and listeners.

use bytes::Bytes;
use stayput_wire::{Batch, Code, IdBuf, Message, MessageError, MessageKind, meta};
use std::{
    borrow::Cow,
    sync::{Arc, atomic::Ordering},
};

use super::{
    Answer, ClientCapabilities, Core, PendingCall, ServerRequest,
    answer::AnswerRanges,
    inbox::{Inbox, MessagePriority, Overflow},
    pending::Pending,
    prepare,
};
use crate::{
    CallError, Delivery,
    link::server_request::{NO_CLIENT_CAN_ANSWER, refusal},
    loss::session_unknown,
};

/// Stream on which a message came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageSource {
    /// Stream of the whole link.
    Link,
    /// Stream of this call: its messages concern no other call.
    Call(u64),
}

/// Outcome of the messages that were received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceiveOutcome {
    /// Number of calls that got their answer.
    pub(crate) answers: usize,
    /// Whether the stream of a call carried an answer with the id of another request. Then its connection is
    /// not reused, because it carries data that was not requested there.
    pub(crate) foreign: bool,
}

impl Core {
    /// Processes bytes from the server. Unreadable input is counted and skipped, so that a server that prints
    /// to stdout does not lose its sessions.
    pub(crate) fn receive<'a>(
        self: &Arc<Self>,
        bytes: impl Into<Cow<'a, [u8]>>,
        via: MessageSource,
    ) -> ReceiveOutcome {
        let (bytes, mut received) = (bytes.into(), ReceiveOutcome::default());
        if !Batch::is_batch(&bytes) {
            self.receive_one(bytes, via, &mut received);
            return received;
        }
        let Ok(batch) = Batch::split(&bytes) else {
            self.count_invalid();
            return received;
        };
        for one in batch.messages() {
            self.receive_one(one.as_bytes().into(), via, &mut received);
        }
        received
    }

    fn receive_one(
        self: &Arc<Self>,
        bytes: Cow<'_, [u8]>,
        via: MessageSource,
        received: &mut ReceiveOutcome,
    ) {
        let message = match Message::parse(&bytes) {
            Ok(message) => message,
            Err(error) => return self.receive_invalid(&error, via, received),
        };
        match message.kind() {
            MessageKind::Response { .. } | MessageKind::Error { .. } => {
                received.foreign |= is_foreign(&message, via);
                let Some(pending_call) = self.answered(&message, via) else { return };
                if let Some(hidden) = self.redacted(&message) {
                    // The redaction replaced only strings, so that the text is still a message.
                    let message = Message::parse(hidden.as_bytes()).ok();
                    let answer = message.and_then(|it| Answer::under(&it, &pending_call.id_back()));
                    pending_call.inbox.end(answer.ok_or_else(unreadable));
                    received.answers += 1;
                    return;
                }
                // Answers without an id are small; all others reuse the received bytes.
                let places = AnswerRanges::find(&message).filter(|places| places.id.is_some());
                let answer = match places {
                    Some(places) => Some(Answer::spliced(
                        bytes,
                        places,
                        pending_call.id.as_ref().map(IdBuf::as_str),
                    )),
                    None => Answer::under(&message, &pending_call.id_back()),
                };
                pending_call.inbox.end(answer.ok_or_else(unreadable));
                received.answers += 1;
            }
            MessageKind::Notification { method, .. } => {
                self.receive_notification(method, &message, via);
            }
            MessageKind::Request { method, .. } => self.receive_request(method, &message, via),
        }
    }

    /// Ends the call that an invalid message names: its client would wait for another answer until the timeout.
    fn receive_invalid(
        self: &Arc<Self>,
        error: &MessageError,
        via: MessageSource,
        received: &mut ReceiveOutcome,
    ) {
        self.count_invalid();
        let number = error.id().and_then(|id| id.as_str().parse().ok());
        let number: Option<u64> = number.filter(|number| {
            matches!(via, MessageSource::Link) || via == MessageSource::Call(*number)
        });
        let Some(number) = number else { return };
        let Some(pending_call) = self.take_call(number) else {
            // The server is not working any more on a call that was given up.
            self.pending.lock().settle(number);
            return;
        };
        let what = format_args!(
            "the server sent an invalid answer, and it may have carried out the request: {}",
            error.problem()
        );
        pending_call.inbox.end(Err(CallError::failed(what, Delivery::Unknown)));
        received.answers += 1;
    }

    /// Returns the message without secrets, if it is an error that contains one. Results are not searched.
    fn redacted(&self, message: &Message<'_>) -> Option<String> {
        let error = message.error()?;
        let Cow::Owned(hidden) = self.server.redactor().redact_json(error.as_str()) else {
            return None;
        };
        let mut edits = message.edit();
        edits.replace(error, &hidden);
        edits.apply().ok().map(Cow::into_owned)
    }

    fn count_invalid(&self) {
        self.counts().invalid_lines.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the call that this message answers. If the answer says that the session is unknown, ends the
    /// call instead.
    fn answered(
        self: &Arc<Self>,
        message: &Message<'_>,
        via: MessageSource,
    ) -> Option<Arc<PendingCall>> {
        let number = match (message.id(), via) {
            (Some(id), MessageSource::Link) => id.number(),
            (Some(id), MessageSource::Call(own)) => id.number().filter(|number| *number == own),
            // Error for a message that the server could not read. It is assigned to the only call in flight, but not on a
            // shared link, where another client may have sent that message.
            (None, MessageSource::Link) if self.is_shared() => None,
            (None, MessageSource::Link) => self.pending.lock().only(),
            (None, MessageSource::Call(own)) => Some(own),
        };
        let Some(pending_call) = number.and_then(|number| self.take_call(number)) else {
            if let Some(number) = number {
                self.pending.lock().settle(number);
            }
            self.counts().late.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let attached = self.transport.session().is_some();
        if attached && message.error().is_some_and(session_unknown::of_error) {
            let loss = self.end_unknown_session("it answered that it does not know the session");
            // Earlier messages about the call show that the server had started it.
            let begun = pending_call.inbox.has_begun();
            let delivery = if begun { Delivery::Unknown } else { Delivery::Refused };
            pending_call.inbox.end(Err(CallError::Lost { loss, delivery }));
            return None;
        }
        Some(pending_call)
    }

    fn receive_notification(
        self: &Arc<Self>,
        method: &str,
        message: &Message<'_>,
        via: MessageSource,
    ) {
        match method {
            "notifications/progress" => self.receive_progress(message, via),
            "notifications/cancelled" => self.receive_withdrawal(message),
            "notifications/message" => self.deliver(message, via, MessagePriority::Log),
            _ => {
                let changed = method.ends_with("/list_changed");
                if changed {
                    self.list_changed();
                }
                if self.receive_subscribed(message, via) {
                    return;
                }
                // List changes concern all clients. Listeners know which client subscribed to a resource.
                let for_all = changed || method == "notifications/resources/updated";
                match via {
                    MessageSource::Link if for_all || !self.is_shared() => {
                        self.tell_listeners(message, MessagePriority::Full);
                    }
                    MessageSource::Call(_) if for_all && self.is_shared() => {
                        self.deliver(message, via, MessagePriority::Full);
                        self.tell_listeners(message, MessagePriority::Full);
                    }
                    _ => self.deliver(message, via, MessagePriority::Full),
                }
            }
        }
    }

    /// Delivers a notification to the call on whose stream it arrived, else to the only call that it can belong
    /// to, else to the listeners. A shared link skips its listeners, because the notification may concern the
    /// call of another client.
    fn deliver(
        self: &Arc<Self>,
        message: &Message<'_>,
        via: MessageSource,
        worth: MessagePriority,
    ) {
        let pending_call = {
            let mut pending = self.pending.lock();
            let number = match via {
                MessageSource::Call(number) => Some(number),
                MessageSource::Link if !self.is_shared() => pending.only(),
                // With one stream per call, messages on the stream of the link belong to no call.
                MessageSource::Link if self.transport.is_read_by_callers() => None,
                MessageSource::Link => pending.only_possible_call(),
            };
            number.and_then(|number| pending.get(number).cloned())
        };
        match pending_call {
            Some(pending_call) => self.notify(&pending_call, worth, copy(message.text())),
            None if self.is_shared() => self.count_unanswerable(),
            None => self.tell_listeners(message, worth),
        }
    }

    fn notify(self: &Arc<Self>, pending_call: &PendingCall, worth: MessagePriority, text: Bytes) {
        if pending_call.inbox.notify(worth, text) == Err(Overflow) {
            self.give_up(pending_call.number, CallError::SlowReader);
        }
    }

    /// Delivers a notification of the modern era to the subscription that it names. Returns whether it named one.
    fn receive_subscribed(self: &Arc<Self>, message: &Message<'_>, via: MessageSource) -> bool {
        let id = message.params().and_then(|it| it.find(&[meta::META, meta::SUBSCRIPTION_ID]));
        let number = id.and_then(stayput_wire::Raw::integer);
        let number = number.and_then(|number| u64::try_from(number).ok());
        let Some((id, number)) = id.zip(number) else { return false };
        if matches!(via, MessageSource::Call(own) if own != number) {
            return false;
        }
        let found = self.pending.lock().get(number).cloned();
        let Some(pending_call) = found else { return false };
        let mut edits = message.edit();
        if let Some(theirs) = &pending_call.id {
            edits.replace(id, theirs.as_str());
        }
        let Ok(text) = edits.apply() else { return false };
        self.notify(&pending_call, MessagePriority::Full, copy(&text));
        true
    }

    fn receive_progress(self: &Arc<Self>, message: &Message<'_>, via: MessageSource) {
        let Some(token) = message.params().and_then(|it| it.find(&[meta::PROGRESS_TOKEN])) else {
            return self.count_invalid();
        };
        let number = token.integer().and_then(|number| u64::try_from(number).ok());
        let number =
            number.filter(|n| matches!(via, MessageSource::Link) || via == MessageSource::Call(*n));
        let pending_call = number.and_then(|number| self.pending.lock().get(number).cloned());
        let pending_call = pending_call.inspect(|pending_call| pending_call.progress());
        let Some((pending_call, theirs)) =
            pending_call.as_ref().and_then(|it| Some((it, it.token.as_ref()?)))
        else {
            self.counts().late.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let mut edits = message.edit();
        edits.replace(token, theirs);
        // Cannot fail: the token was found in this text.
        let Ok(text) = edits.apply() else { return self.count_invalid() };
        self.notify(pending_call, MessagePriority::Progress, copy(&text));
    }

    /// Forwards the cancellation of a server's request to its recipient, with the server's id.
    fn receive_withdrawal(self: &Arc<Self>, message: &Message<'_>) {
        let id = message.params().and_then(|params| params.find(&["requestId"]));
        let Some(call) = id.and_then(|id| self.pending.lock().withdrawn(id.as_str())) else {
            self.counts().late.fetch_add(1, Ordering::Relaxed);
            return;
        };
        match call {
            Some(number) => {
                self.deliver(message, MessageSource::Call(number), MessagePriority::Full);
            }
            None => self.tell_listeners(message, MessagePriority::Full),
        }
    }

    fn receive_request(self: &Arc<Self>, method: &str, message: &Message<'_>, via: MessageSource) {
        let Some(id) = message.id().map(stayput_wire::Id::to_buf) else { return };
        if method == "ping" {
            let pong = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, id.as_str());
            return self.tell(prepare::one_line(&pong));
        }
        let (number, recipient) = {
            let mut pending = self.pending.lock();
            let (call, recipient) = match self.is_shared() {
                true => shared_recipient(&mut pending, method, via),
                false => self.recipient(&pending, ClientCapabilities::needed(method), via),
            };
            (call, recipient.map(|recipient| (recipient, pending.ask(id.clone(), call))))
        };
        let Some((recipient, question)) = recipient else {
            self.counts().unanswerable.fetch_add(1, Ordering::Relaxed);
            let text = refusal(&id, Code::METHOD_NOT_FOUND, NO_CLIENT_CAN_ANSWER);
            return self.tell(prepare::one_line(&text));
        };
        let asked = ServerRequest {
            text: copy(message.text()),
            id,
            method: method.into(),
            number: question,
            core: Arc::downgrade(self),
            answered: false,
        };
        let asked = match &recipient {
            RequestRecipient::Call(pending_call) => pending_call.inbox.ask(asked),
            RequestRecipient::Listener(inbox) => inbox.ask(asked),
            RequestRecipient::FirstClient => {
                // Dropped after the lock is released: that refuses the request.
                let refused = self.listeners.lock().hold(asked);
                drop(refused);
                Ok(())
            }
        };
        if asked == Err(Overflow)
            && let Some(number) = number
        {
            self.give_up(number, CallError::SlowReader);
        }
    }

    /// Returns the call that gets the server's request, or else a listener that can answer it.
    fn recipient(
        &self,
        pending: &Pending,
        needed: ClientCapabilities,
        via: MessageSource,
    ) -> (Option<u64>, Option<RequestRecipient>) {
        let listener = || self.listeners.lock().find_answerer(needed);
        let number = match via {
            MessageSource::Call(number) => Some(number),
            MessageSource::Link => match pending.only_call_that_can_answer(needed) {
                Some(number) => Some(number),
                None if listener().is_some() => None,
                None if self.listeners.lock().holds(needed) => {
                    return (None, Some(RequestRecipient::FirstClient));
                }
                None => pending.only(),
            },
        };
        let call =
            number.and_then(|number| Some(RequestRecipient::Call(pending.get(number)?.clone())));
        (number, call.or_else(|| listener().map(RequestRecipient::Listener)))
    }

    fn tell_listeners(&self, message: &Message<'_>, worth: MessagePriority) {
        let heard = self.listeners.lock().tell(worth, &copy(message.text()));
        if !heard {
            self.count_unanswerable();
        }
    }

    fn count_unanswerable(&self) {
        self.counts().unheard.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the call that gets the server's request on a shared link: the only one that the server can be
/// working on. The server does not say for which call it asks, so with several calls the recipient is
/// unknown, and without a call there is none.
fn shared_recipient(
    pending: &mut Pending,
    method: &str,
    via: MessageSource,
) -> (Option<u64>, Option<RequestRecipient>) {
    let number = match via {
        // Roots apply to the whole link. A server would use the roots of one client in the calls of all
        // others, so a shared link declares none, and such a request is refused.
        _ if method == "roots/list" => None,
        MessageSource::Call(number) => pending.only_call().filter(|only_call| *only_call == number),
        MessageSource::Link => pending.only_possible_call(),
    };
    let call = number.and_then(|number| Some(RequestRecipient::Call(pending.get(number)?.clone())));
    (number, call)
}

/// Recipient of a server's request.
enum RequestRecipient {
    Call(Arc<PendingCall>),
    Listener(Arc<Inbox>),
    /// First call or listener of the client that the server was told of.
    FirstClient,
}

fn unreadable() -> CallError {
    CallError::failed("the answer cannot be read", Delivery::Unknown)
}

/// Whether an answer on the stream of a call has an id other than the call's. An error without an id concerns
/// the call.
fn is_foreign(message: &Message<'_>, via: MessageSource) -> bool {
    match (message.id(), via) {
        (Some(id), MessageSource::Call(own)) => id.number() != Some(own),
        (None, MessageSource::Call(_)) | (_, MessageSource::Link) => false,
    }
}

fn copy(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.trim().as_bytes())
}
