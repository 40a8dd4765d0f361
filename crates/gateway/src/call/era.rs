//! Protocol era of a call's client: the hooks in which the eras differ.
//!
//! | hook | legacy client | modern client |
//! |---|---|---|
//! | validate | – | [`validate`](crate::call::modern::validate): required fields and headers |
//! | edit | – | [`CallEra::edit`]: a legacy server gets no fields of the modern era |
//! | on disconnect | the call is detached; its answer goes to the event stream, if the client has one to resume | the call is cancelled |
//! | finish | a new handle or a loss is added to the answer | the session state is added, and fields are translated |

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;
use http::HeaderMap;
use stayput_core::Handle;
use stayput_upstream::{Answer, CallOptions, ClientInfo, Incoming, Link, Profile};
use stayput_wire::{Era, Message, Version, meta};

use super::{
    ClientCall,
    modern::{answer::AnswerEdits, bridge},
};
use crate::{
    config::ToolFilter,
    connections::connection::Connection,
    identify::{self, RequestContext, header_names},
    reply::{self, ReplyText},
};

/// Interval of keep-alive comments for modern clients. Proxies close connections without traffic, so an answer that
/// takes longer than this becomes a stream.
pub(super) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Returns the era of a message, by its `_meta` or else its version header. A message that names an unknown version
/// counts as modern, because only the modern era names the version in each message.
pub(crate) fn detect(headers: &HeaderMap, message: &Message<'_>) -> Era {
    let value = message.meta().and_then(|meta| meta.find(&[meta::PROTOCOL_VERSION]));
    let legacy = value.and_then(|value| value.text()).is_some_and(|value| {
        let version = Version::from(&*value);
        version.is_known() && version.era() == Era::Legacy
    });
    let by_meta = value.is_some() && !legacy;
    match by_meta || (message.method() != Some("initialize") && is_modern(headers)) {
        true => Era::Modern,
        false => Era::Legacy,
    }
}

/// Returns whether the version header names a modern version.
pub(crate) fn is_modern(headers: &HeaderMap) -> bool {
    let value = headers.get(&header_names::PROTOCOL_VERSION).and_then(|value| value.to_str().ok());
    value.is_some_and(|value| Version::from(value).era() == Era::Modern)
}

/// Returns whether a method subscribes a modern client to notifications. Such a request may last for hours.
pub(super) fn listens(method: &str) -> bool {
    method == "subscriptions/listen"
}

/// Era of the client of a call.
pub(super) enum CallEra {
    Legacy(Arc<Connection>),
    /// Boxed, because it is larger than the rest of a call.
    Modern(Box<ModernClient>),
}

/// Data of a modern request that is needed until the call ends.
pub(super) struct ModernClient {
    /// Whether the server speaks the era of the client.
    is_spoken: bool,
    /// Filter of `tools/list`.
    tools: Option<ToolFilter>,
    /// Lowest level of log messages that the client wants during this call.
    level: Option<String>,
}

/// Reaction to a client that disconnects during its call.
pub(super) enum OnDisconnect {
    /// The call goes on, and its answer goes to a stream of this connection.
    Detach(Arc<Connection>),
    Cancel,
}

impl CallEra {
    /// Collects the data of a modern request.
    pub(super) fn modern(context: &RequestContext<'_>, profile: &Profile) -> Self {
        let params = context.message.params();
        let level = params.and_then(|it| it.find(&[meta::META, meta::LOG_LEVEL])?.text());
        let tools = context.tools().filter(|_| context.request_ref().method == "tools/list");
        let level = level.map(Cow::into_owned);
        let is_spoken = profile.era() == Era::Modern;
        Self::Modern(Box::new(ModernClient { is_spoken, tools: tools.cloned(), level }))
    }

    /// Returns the connection of a legacy client.
    pub(super) fn connection(&self) -> Option<&Arc<Connection>> {
        match self {
            Self::Legacy(connection) => Some(connection),
            Self::Modern(_) => None,
        }
    }

    /// Returns the client information for a server.
    pub(super) fn client_info(&self, message: &Message<'_>) -> ClientInfo {
        match self {
            Self::Legacy(connection) => connection.client_info.clone(),
            Self::Modern(_) => bridge::client_info(message),
        }
    }

    pub(super) fn options(&self, method: &str) -> CallOptions {
        match self {
            Self::Legacy(connection) => {
                CallOptions { capabilities: connection.capabilities, ..CallOptions::default() }
            }
            Self::Modern(_) => {
                let limit = listens(method).then_some(Duration::MAX);
                CallOptions { limit, ..CallOptions::default() }
            }
        }
    }

    /// Returns the request in the form that its server understands, if it has to be changed.
    pub(super) fn edit<'m>(&self, message: &Message<'m>, link: &Link) -> Option<Cow<'m, str>> {
        match self {
            Self::Modern(_) if link.era() == Era::Legacy => {
                Some(bridge::to_legacy_request(message))
            }
            Self::Modern(_) | Self::Legacy(_) => None,
        }
    }

    /// Returns the sentence that refuses the method, if the link is of the legacy era and cannot serve it to a modern
    /// client.
    pub(super) fn refusal(&self, link: &Link, method: &str) -> Option<String> {
        match self {
            Self::Modern(_) => bridge::missing_method_error(link.initialize_result(), method),
            Self::Legacy(_) => None,
        }
    }

    pub(super) fn on_disconnect(&self) -> OnDisconnect {
        match self {
            Self::Legacy(connection) => OnDisconnect::Detach(connection.clone()),
            Self::Modern(_) => OnDisconnect::Cancel,
        }
    }
}

impl ModernClient {
    /// Returns a notification that the server sends before its answer, if the client should get it.
    fn filter_notification(&self, method: &str, server: Era, text: Bytes) -> Option<Bytes> {
        let message = Message::parse(&text).ok()?;
        let (legacy, listens) = (server == Era::Legacy, listens(method));
        let concerns = match message.method()? {
            "notifications/message" => {
                let wanted = self.level.as_deref().filter(|_| !listens);
                wanted.is_some_and(|wanted| !legacy || bridge::is_heard(&message, wanted))
            }
            "notifications/progress" => !listens,
            _ => !legacy,
        };
        concerns.then_some(text)
    }
}

impl ClientCall {
    /// Returns the time after which the answer becomes a stream.
    pub(super) fn stream_after(&self) -> Duration {
        match &self.era {
            CallEra::Legacy(_) => self.owner.app.rules.stream_after,
            CallEra::Modern(_) => KEEP_ALIVE_INTERVAL,
        }
    }

    /// Returns a message that the server sends before its answer, if the client should get it. Dropping a server request
    /// refuses it: a modern client cannot be asked.
    pub(super) fn filter_message(&self, incoming: Incoming) -> Option<Incoming> {
        match (&self.era, incoming) {
            (CallEra::Legacy(_), incoming) => Some(incoming),
            (CallEra::Modern(client), Incoming::Notification(text)) => client
                .filter_notification(&self.method, self.link.era(), text)
                .map(Incoming::Notification),
            (CallEra::Modern(_), _) => None,
        }
    }

    /// Returns whether the call is translated although the server speaks the era of the client, because a client of
    /// the other era opened the link.
    pub(super) fn is_in_other_era(&self) -> bool {
        match &self.era {
            CallEra::Legacy(_) => self.link.is_for_modern_clients(),
            CallEra::Modern(client) => client.is_spoken && self.link.era() == Era::Legacy,
        }
    }

    /// Logs, once per link, that a client is translated although the server speaks its era.
    pub(super) fn log_translation(&self) {
        if !self.is_in_other_era() || !self.link.is_first_translation() {
            return;
        }
        let (server, link) = (self.owner.server.name(), self.link.era().name());
        let session = self.owner.session().map(|session| tracing::field::display(session.id()));
        tracing::info!(
            server,
            session,
            link,
            "a client of the other era uses this link, which keeps the era of the client that opened it: the messages \
             are translated"
        );
    }

    /// Converts the answer of the server to the answer for the client.
    pub(super) fn finish(&self, answer: Answer) -> ReplyText {
        let given = self.owner.new_handle();
        match &self.era {
            CallEra::Legacy(_) => match self.lost {
                Some(generation) => self.owner.add_loss_to_result(answer.into_bytes(), generation),
                None if self.is_in_other_era() => {
                    ReplyText::new(note_translation(answer.into_bytes()))
                }
                None => ReplyText::new(giving(answer.into_bytes(), given)),
            },
            CallEra::Modern(client) => {
                if self.method == "tools/list"
                    && let Some(result) = answer.result()
                {
                    self.link.learn_tools(result);
                }
                let finish = AnswerEdits::new(self.request_ref(), self.link.initialize_result())
                    .in_other_era(self.is_in_other_era())
                    .passing(client.tools.as_ref())
                    .with_state(self.owner.state(&self.link, &self.method), given);
                let (text, code) = finish.answer(answer);
                let status = code.map(reply::status_of).unwrap_or_default();
                ReplyText { status, ..ReplyText::new(text) }
            }
        }
    }
}

/// Returns the answer of a modern link for a legacy client, with a note that it was translated.
fn note_translation(answer: Bytes) -> Bytes {
    let edited = Message::parse(&answer).ok().and_then(|message| {
        let result = message.result().filter(|result| result.is_object())?;
        let mut edits = message.edit();
        edits.set_in(result, &[meta::META, meta::ERA], r#""modern""#);
        Some(Bytes::from(edits.apply().ok()?.into_owned()))
    });
    edited.unwrap_or(answer)
}

/// Returns the answer, with the new handle added if there is one.
fn giving(answer: Bytes, given: Option<&Handle>) -> Bytes {
    let edited =
        given.and_then(|handle| identify::add_handle(str::from_utf8(&answer).ok()?, handle));
    edited.map_or(answer, Bytes::from)
}
