//! A session that somebody has by its name.

use std::{fmt, sync::Arc, time::Duration};

use serde::Serialize;
use stayput_core::{Expiry, Generation, SessionId, Timestamp, scope::InSession as _};
use stayput_upstream::{LossReason, Place, Standing};

use crate::{Error, Handlers, Hub, ToolCall, ambient::Ambient, hold::Hold, visit::Visit};

/// A session, found or made by its name. A clone is the same session.
///
/// Dropped, a named session is released, not ended: the next request of a chat finds it again. One from
/// [`Hub::ephemeral`] ends with the last clone.
#[derive(Clone)]
pub struct Session {
    hub: Hub,
    pub(crate) hold: Arc<Hold>,
}

/// What is known of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// Its id, which is no secret.
    pub id: SessionId,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The agent in whose namespace the name is; empty for the hub itself.
    pub agent: String,
    /// When it was opened.
    pub created: Timestamp,
    /// When the last call on it ended.
    pub last_used: Timestamp,
    /// When it ends if it is not used again.
    pub expires: Option<Timestamp>,
    /// The highest generation that any of its links has reached.
    pub generation: Generation,
}

/// How a server stands in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// There is no link; the next call opens one.
    Unlinked,
    /// A link is being opened.
    Opening,
    /// There is a link.
    Live {
        /// Its generation.
        generation: Generation,
        /// How many calls are in flight on it.
        in_flight: usize,
    },
    /// The link is over, and the next call opens another one. Unless it was only let go of, that call is told of the
    /// loss first.
    Over {
        /// Why, in one word, see [`StateLost::reason`](crate::StateLost::reason).
        reason: &'static str,
    },
    /// The server failed, and is left alone for a while.
    Resting {
        /// How long.
        pause: Duration,
    },
}

impl Session {
    pub(crate) fn new(hub: &Hub, hold: Arc<Hold>) -> Self {
        Self { hub: hub.clone(), hold }
    }

    /// Its id, for logs: no secret, and no way in.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.hold.id
    }

    /// The hub it is of.
    #[must_use]
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Calls a tool in this session, whatever session the calling task belongs to.
    pub fn call(&self, server: &str, tool: &str, arguments: impl Serialize) -> ToolCall {
        ToolCall::new(&self.hub, Some(self.hold.clone()), (server, tool), arguments)
    }

    /// Runs a future in this session: calls in it that name no session belong to it. When the future is
    /// done, whatever was current before is so again.
    pub async fn run<F: Future>(&self, future: F) -> F::Output {
        future.in_session(Ambient::of(self.hold.clone()).scope()).await
    }

    /// Lets these answer what servers ask in this session, and those of the hub what there is none for here. It
    /// holds for this value and its clones; a server that was linked before knows only what it was told then.
    #[must_use]
    pub fn with_handlers(self, handlers: Handlers) -> Self {
        self.hold.set_handlers(handlers);
        self
    }

    /// Opens the link to a server ahead of the first call.
    ///
    /// # Errors
    /// If the server cannot be used, or the session was ended.
    pub async fn bind(&self, server: &str) -> Result<&Self, Error> {
        let ambient = self.hub.ambient_of(self.hold.clone());
        let hub = self.hub.clone();
        let binding = async { Visit::of(&hub, &ambient, server).await?.link().await.map(drop) };
        self.hub.inner.home.at_home(binding).await?;
        Ok(self)
    }

    /// What is known of it.
    ///
    /// # Errors
    /// If it was ended.
    pub async fn info(&self) -> Result<Info, Error> {
        let session = self.hub.inner.home.at_home(self.hold.enter()).await?;
        let record = session.record();
        let last_used = session.session().last_used();
        Ok(Info {
            id: record.id,
            name: record.key.as_ref().map(|key| key.value().to_owned()),
            agent: record.agent.as_str().to_owned(),
            created: record.created,
            last_used,
            expires: record.expiry.deadline(record.created, last_used),
            generation: record.generation,
        })
    }

    /// The servers it has links to, or is opening.
    #[must_use]
    pub fn servers(&self) -> Vec<String> {
        let linked = |server: &String| {
            matches!(self.status(server), Ok(Status::Live { .. } | Status::Opening))
        };
        self.hub.server_names().into_iter().filter(linked).collect()
    }

    /// How a server stands in this session.
    ///
    /// # Errors
    /// If there is no such server.
    pub fn status(&self, server: &str) -> Result<Status, Error> {
        let server = self.hub.server(server)?;
        let inner = &self.hub.inner;
        Ok(match inner.links.standing(&server, &self.place()) {
            Standing::Opening => Status::Opening,
            Standing::Live { generation, in_flight } => Status::Live { generation, in_flight },
            Standing::Over(loss) => {
                Status::Over { reason: loss.map_or("ended", |loss| loss.reason().as_str()) }
            }
            Standing::Resting(pause) => Status::Resting { pause },
            _ => Status::Unlinked,
        })
    }

    fn place(&self) -> Place {
        Place::new(self.hub.inner.owner.clone(), self.hold.id)
    }

    /// Ends the link to a server and lets the next call begin anew, on the next generation.
    ///
    /// # Errors
    /// If there is no such server.
    pub async fn restart(&self, server: &str) -> Result<(), Error> {
        self.hub.inner.check_here()?;
        let server = self.hub.server(server)?;
        let (links, place) = (self.hub.inner.links.clone(), self.place());
        let restart = async { links.restart(&server, &place, LossReason::Restarted).await };
        self.hub.inner.home.at_home(restart).await;
        Ok(())
    }

    /// Ends the links to all servers that it has links to, as [`Session::restart`].
    ///
    /// # Errors
    /// If a server is removed meanwhile.
    pub async fn restart_all(&self) -> Result<(), Error> {
        for server in self.servers() {
            self.restart(&server).await?;
        }
        Ok(())
    }

    /// Lets it live for `idle` after its last use from now on.
    ///
    /// # Errors
    /// If it was ended.
    pub async fn extend(&self, idle: Duration) -> Result<(), Error> {
        let inner = &self.hub.inner;
        let extending = async {
            let session = self.hold.enter().await?;
            let expiry = Expiry { idle: Some(idle), ..session.record().expiry };
            Ok(inner.sessions.extend(session.session(), expiry).await?)
        };
        inner.home.at_home(extending).await
    }

    /// Ends it and everything behind it, and waits until nothing is left. Further use is an error.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn end(&self) -> Result<(), Error> {
        self.hold.end().await
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({})", self.hold.id)
    }
}
