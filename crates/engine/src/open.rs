//! Opens the link of a session.

use std::sync::Arc;

use stayput_core::Session;
use stayput_upstream::{
    Attachment, AttachmentSink, ClientInfo, Isolation, LinkOpenError, LinkOpenOptions, LinkOwner,
    PooledLink, Server, ServerProtocol,
};

use crate::{Engine, attachment_sink::RecordSink};

impl Engine {
    /// Returns the link of a session to a server, and opens it if there is none. `client` is the client that the
    /// server is told of; on a link that several sessions share, it is told of none.
    ///
    /// # Errors
    /// If the link cannot be opened.
    pub async fn open_link(
        &self,
        (session, link_owner): (&Arc<Session>, &LinkOwner),
        server: &Server,
        client: ClientInfo,
    ) -> Result<PooledLink, Arc<LinkOpenError>> {
        self.open_link_with((session, link_owner), server, client, |sink| sink).await
    }

    /// Same as [`Engine::open_link`], with a sink of the caller around that of the session's record. A link that belongs to
    /// several sessions, or to a branch of one, has no sink.
    ///
    /// # Errors
    /// If the link cannot be opened.
    pub async fn open_link_with(
        &self,
        (session, link_owner): (&Arc<Session>, &LinkOwner),
        server: &Server,
        client: ClientInfo,
        wrap: impl FnOnce(Arc<dyn AttachmentSink>) -> Arc<dyn AttachmentSink>,
    ) -> Result<PooledLink, Arc<LinkOpenError>> {
        let mut asking = self.link_options(session, link_owner, server, client).await?;
        asking.sink = asking.sink.map(wrap);
        self.links.open(server, link_owner, &asking).await
    }

    /// Returns the link that all users of a scope share, and opens it if there is none. The record of `claim`, the session
    /// by which this process holds the state, has the attachment: so generations go on where another process has ended.
    ///
    /// # Errors
    /// If the link cannot be opened.
    pub async fn open_claimed_link(
        &self,
        (claim, link_owner): (&Arc<Session>, &LinkOwner),
        server: &Server,
        client_info: ClientInfo,
    ) -> Result<PooledLink, Arc<LinkOpenError>> {
        let generation = claim.record().generation;
        let sink: Arc<dyn AttachmentSink> = Arc::new(self.sink(claim, server));
        let options = LinkOpenOptions { sink: Some(sink), generation, client_info };
        self.links.open(server, link_owner, &options).await
    }

    /// Returns the sink for the attachment of a session's link to a server.
    fn sink(&self, session: &Arc<Session>, server: &Server) -> RecordSink {
        RecordSink {
            sessions: self.sessions.clone(),
            seal: self.seal.clone(),
            session: session.clone(),
            server: server.shared_name(),
        }
    }

    async fn link_options(
        &self,
        session: &Arc<Session>,
        link_owner: &LinkOwner,
        server: &Server,
        client_info: ClientInfo,
    ) -> Result<LinkOpenOptions, Arc<LinkOpenError>> {
        let record = session.record();
        let attachment = record.attachments.get(server.name());
        let attachment = attachment.map(|sealed| Attachment::open(sealed, &self.seal));
        // A stored attachment of a legacy link says the isolation, so the server need not be asked.
        let isolation = match &attachment {
            Some(Ok(attachment)) if attachment.protocol != ServerProtocol::Modern => {
                server.isolation(attachment.protocol.era())
            }
            _ => self.links.isolation_of(server, link_owner, &client_info).await?,
        };
        if isolation != Isolation::PerSession {
            // The link belongs to several sessions, so it is stored in none of their records.
            return Ok(LinkOpenOptions { client_info, ..LinkOpenOptions::default() });
        }
        if link_owner.branch != 0 {
            // The link ends with its branch, so it is never resumed.
            return Ok(LinkOpenOptions { client_info, sink: None, generation: record.generation });
        }
        // An unreadable attachment cannot be resumed, so the state behind it counts as lost.
        let is_unreadable = matches!(attachment, Some(Err(_)));
        if is_unreadable {
            let session = session.id();
            tracing::warn!(%session, server = server.name(), "the stored attachment cannot be read; its state is lost");
        }
        let generation = if is_unreadable { record.generation.next() } else { record.generation };
        let sink = self.sink(session, server);
        Ok(LinkOpenOptions { client_info, sink: Some(Arc::new(sink)), generation })
    }
}
