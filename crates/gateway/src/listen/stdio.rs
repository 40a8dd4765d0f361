//! Client that sends one message per line, over standard input and output or over a socket that stands for them.
//!
//! The process is the connection, in either era. Its session is created with it and ends with it, unless the session
//! has a key.

use std::{
    sync::{Arc, MutexGuard},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;
use stayput_core::{
    ActiveSession, Agent, Handle, Key, OpenOptions, OpenedSession, Origin, SessionOpenError,
};
use stayput_sync::Mutex;
use stayput_upstream::{ClientInfo, LinkOwner};
use stayput_wire::{Batch, Code, Era, Message, MessageKind, Version};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
    task::JoinSet,
};

use super::{
    batch,
    child_stderr::{self, StderrPieces},
    lines::Lines,
    message_forward::{self, Outcome, Sender},
};
use crate::{
    auth::Principal,
    call::{CallOutcome, era},
    config::target::Target,
    connections::{
        connection::{Connection, ConnectionGuard},
        event_stream::{EventStream, StreamReader},
    },
    identify::RequestContext,
    messages::notifications::handle_message,
    observe::session_stats::ConnectedSession,
    reply::{self, MessageBody as _},
    route::{
        admission::admit,
        initialize::{self, UnclaimedSession},
    },
    state::AppState,
};

/// Number of lines that are read ahead of the one in progress, so that the end of the input is noticed.
const AHEAD: usize = 16;

/// Identity of a stdio client and the target that it wants.
pub(crate) struct StdioClient {
    pub(crate) app: Arc<AppState>,
    pub(crate) target: Target,
    /// Secret name of the connection. It is never sent to a client.
    pub(crate) name: Handle,
    /// Key that finds the session when the client comes back.
    pub(crate) key: Option<Key>,
    /// The client was connected before, but its connection is not known any more: all of its state is lost.
    pub(crate) forgotten: bool,
    /// Time that requests in flight get after the end of the input.
    pub(crate) drain: Duration,
}

/// Conversation with one client, from its first line to its last.
pub(crate) struct StdioConversation {
    guest: StdioClient,
    principal: Principal,
    line: Arc<EventStream>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The guard keeps the connection in memory, also while it looks idle because the line is not read yet.
    connection: Option<ConnectionGuard>,
    /// The connection was made by `initialize`, not by a request that came without one.
    initialize: bool,
    /// Keeps the session from going idle while the client is connected.
    kept: Option<ConnectedSession>,
    /// Tasks that answer requests of this client.
    tasks: JoinSet<()>,
}

impl StdioConversation {
    pub(crate) fn new(guest: StdioClient) -> Arc<Self> {
        let (principal, line) = (Principal::local(), EventStream::line());
        Arc::new(Self { guest, principal, line, state: Mutex::default() })
    }

    /// Continues with a connection of an earlier process.
    pub(crate) async fn resume(&self, connection: ConnectionGuard) {
        connection.set_only_stream(self.line.clone(), &self.principal);
        self.hold(&connection).await;
        let mut state = self.state();
        (state.connection, state.initialize) = (Some(connection), true);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Application state at the time the client connected. Use [`StdioConversation::present`] for what a reload can
    /// change.
    fn app(&self) -> &Arc<AppState> {
        &self.guest.app
    }

    /// Application state of the current configuration.
    fn present(&self) -> Arc<AppState> {
        self.guest.app.now()
    }

    /// Reads lines and answers them until either side closes, or until `stop`. After `stop`, calls in flight are
    /// answered to their end, which the application state announces, and the client can reconnect. Returns whether
    /// the client left.
    pub(crate) async fn run<R, W>(
        self: &Arc<Self>,
        mut lines: Lines<R>,
        output: W,
        stderr: StderrPieces,
        stop: impl Future<Output = ()>,
    ) -> bool
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let (ahead, mut line) = mpsc::channel(AHEAD);
        let reading = async {
            while let Some(line) = lines.next().await {
                if ahead.send(line).await.is_err() {
                    break;
                }
            }
            if self.guest.drain.is_zero() {
                return;
            }
            drop(ahead);
            tokio::select! {
                () = tokio::time::sleep(self.guest.drain) => {}
                () = stdout_closed() => {}
            }
        };
        let handling = async {
            while let Some(line) = line.recv().await {
                // A client that does not read its answers cannot send more requests.
                self.line.room().await;
                match line {
                    Ok(text) => self.handle_line(text.into()).await,
                    Err(error) => self.say(unread(&error.to_string())),
                }
            }
            self.finish_requests().await;
            std::future::pending::<()>().await;
        };
        let writing = write(self.line.read_lines(), output, stderr);
        tokio::pin!(writing);
        tokio::select! {
            () = reading => return true,
            () = handling => return true,
            () = &mut writing => return true,
            () = stop => {}
        }
        if self.state().connection.is_none() {
            return false;
        }
        writing.await;
        false
    }

    /// Waits for the requests in flight after the end of the input. The stream ends after their answers.
    async fn finish_requests(&self) {
        let next = |cx: &mut Context<'_>| self.state().tasks.poll_join_next(cx);
        while std::future::poll_fn(next).await.is_some() {}
        self.line.end();
    }

    /// Ends the connection of a client that left: cancels the calls in flight and ends the session, unless something
    /// else leads to it.
    pub(crate) async fn leave(&self) {
        let State { connection, kept, mut tasks, .. } = std::mem::take(&mut *self.state());
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
        drop(kept);
        let (app, Some(connection)) = (self.app(), connection) else { return };
        if let Err(error) = app.end_connection(&self.principal.owner, &self.guest.name).await {
            // The record in the store expires by itself; what runs in this process ends now.
            let session = connection.default_session();
            tracing::warn!(%session, "the end of session {session} was not kept: {error}");
            connection.close();
            if self.guest.key.is_none() {
                let _ = app.links.end(session).await;
            }
        }
    }

    fn say(&self, text: impl Into<Bytes>) {
        self.line.push(text.into());
    }

    /// Handles one line of the client.
    async fn handle_line(self: &Arc<Self>, text: Bytes) {
        if !Batch::is_batch(&text) {
            return self.handle_message(text).await;
        }
        let connection = self.state().connection.clone();
        match batch::split(connection.as_ref().map(|it| &it.version), &text) {
            Ok(batch) => {
                for message in batch.messages() {
                    self.handle_message(Bytes::copy_from_slice(message.as_bytes())).await;
                }
            }
            Err(answer) => self.say(answer),
        }
    }

    /// Handles one message of the client. A slow request continues in its own task.
    async fn handle_message(self: &Arc<Self>, text: Bytes) {
        let message = match Message::parse(&text) {
            Ok(message) => message,
            Err(error) => return self.say(error.answer()),
        };
        let (app, headers) = (self.present(), HeaderMap::new());
        let context = self.context(&app, &headers, &message);
        if let Err(refusal) = admit(&context) {
            return self.say(refusal.text);
        }
        if !matches!(message.kind(), MessageKind::Request { .. }) {
            return self.listen(&context);
        }
        match (message.method(), context.era) {
            (Some("initialize"), Era::Legacy) => {
                let answer = self.answer_initialize(context.request_ref().id, &message).await;
                return self.say(answer);
            }
            // A `ping` does not create a session.
            (Some("ping"), Era::Legacy) => return self.say(context.result("{}").text),
            _ => {}
        }
        let connection = match self.connection().await {
            Ok(connection) => connection,
            Err(error) => return self.say(context.failure(&error.to_string()).text),
        };
        let conversation = self.clone();
        let task = async move { conversation.answer(connection, &text).await };
        self.begin(task).await;
    }

    /// Builds the context of a message. A stdio client has no headers.
    fn context<'a>(
        &'a self,
        app: &'a Arc<AppState>,
        headers: &'a HeaderMap,
        message: &'a Message<'a>,
    ) -> RequestContext<'a> {
        let whom = (&self.principal, &self.guest.target);
        RequestContext::new(app, whom, headers, (message, era::detect(headers, message)))
    }

    /// Polls a task once before the next message is read, so that later messages find it started. If it is not
    /// finished, spawns it.
    async fn begin(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut task = Box::pin(task);
        let begun = std::future::poll_fn(|cx| Poll::Ready(task.as_mut().poll(cx))).await;
        if begun.is_pending() {
            let tasks = &mut self.state().tasks;
            while tasks.try_join_next().is_some() {}
            tasks.spawn_on(task, &tokio::runtime::Handle::current());
        }
    }

    /// Handles a notification or a response of the client.
    fn listen(&self, context: &RequestContext<'_>) {
        // Other notifications of a modern client concern no server.
        let concerns = context.era == Era::Legacy
            || context.message.method() == Some("notifications/cancelled");
        let connection = self.state().connection.clone();
        if let Some(connection) = connection.filter(|_| concerns)
            && let Some(concerned) = handle_message(context.app, &connection, context.message)
        {
            message_forward::pass_on(context, self.sender(), concerned);
        }
    }

    /// Answers a request on the line.
    async fn answer(&self, connection: ConnectionGuard, text: &Bytes) {
        let Ok(message) = Message::parse(text) else { return };
        let (app, headers) = (self.present(), HeaderMap::new());
        let context = self.context(&app, &headers, &message);
        let context = RequestContext { connection: Some(&connection), ..context };
        match message_forward::answer(&context, self.sender()).await {
            Outcome::Here(CallOutcome::Done(done)) => {
                self.line.room().await;
                self.line.push_then(done.text, done.then);
            }
            Outcome::Elsewhere(response) => {
                message_forward::write_answer(&context, response, &self.line).await;
            }
            Outcome::Here(CallOutcome::Call(mut call)) => {
                while let Some(text) = std::future::poll_fn(|cx| call.poll_message(cx)).await {
                    self.line.room().await;
                    self.line.push(text);
                }
            }
            // The stream of the call is the line.
            Outcome::Here(
                CallOutcome::Stream(_) | CallOutcome::Cancelled | CallOutcome::WithCookie(_),
            ) => {}
        }
        self.hold(&connection).await;
    }

    fn sender(&self) -> Sender<'_> {
        let (principal, connection) = (&self.principal, Some(&self.guest.name));
        Sender { principal, connection, streams: true }
    }

    /// Keeps the current session of the connection from going idle.
    async fn hold(&self, connection: &Connection) {
        let session = connection.default_session();
        if self.state().kept.as_ref().is_some_and(|kept| kept.id() == session) {
            return;
        }
        let kept = self.app().sessions.find_by_id(&self.principal.owner, session).await.ok();
        let before = std::mem::replace(&mut self.state().kept, kept.map(ConnectedSession::from));
        drop(before);
    }

    /// Opens the session of the client: a new one, or the one that its key finds.
    async fn session(&self) -> Result<(ActiveSession, UnclaimedSession<'_>), SessionOpenError> {
        let app = self.app();
        let opts = match &self.guest.key {
            Some(key) => {
                OpenOptions::with_key(self.principal.owner.clone(), Agent::none(), key.clone())
            }
            None => OpenOptions::new(self.principal.owner.clone()),
        };
        let opts = opts.expiry(app.identify.expiry);
        let OpenedSession { session, origin } = app.open(&opts, self.guest.target.label()).await?;
        if self.guest.forgotten && origin == Origin::New {
            let lost = |record: &mut stayput_core::Record| {
                record.generation = record.generation.next();
            };
            app.sessions.change(&session, lost).await?;
        }
        let unclaimed = match self.guest.key {
            Some(_) => UnclaimedSession::empty(app, &self.guest.target),
            None => UnclaimedSession::new(app, &self.guest.target, &session),
        };
        Ok((session, unclaimed))
    }

    /// Returns the connection. R052: a request before `initialize` creates one.
    async fn connection(&self) -> Result<ConnectionGuard, SessionOpenError> {
        let known = self.state().connection.clone();
        if let Some(connection) = known {
            return Ok(connection);
        }
        let (session, unclaimed) = self.session().await?;
        let client_info = (Version::LATEST_LEGACY, ClientInfo::default());
        let connection = self.connect(&session, client_info, false).await?;
        unclaimed.claim();
        Ok(connection)
    }

    /// Makes a connection to this session and replaces the previous one.
    async fn connect(
        &self,
        session: &ActiveSession,
        said: (Version, ClientInfo),
        initialize: bool,
    ) -> Result<ConnectionGuard, SessionOpenError> {
        let named = (self.principal.owner.clone(), self.guest.name.clone());
        let target = self.guest.target.clone();
        let connection = Connection::new(named, session.id(), target, said).over_stdio();
        let (app, name) = (self.app(), &self.guest.name);
        app.sessions.put_connection(session, name, &connection.to_bytes()).await?;
        connection.set_only_stream(self.line.clone(), &self.principal);
        let connection = app.connections.replace(Arc::new(connection));
        {
            let mut state = self.state();
            (state.connection, state.initialize) = (Some(connection.clone()), initialize);
        }
        self.hold(&connection).await;
        Ok(connection)
    }

    /// Answers `initialize`. R053: a second one starts over.
    async fn answer_initialize(&self, id: &str, message: &Message<'_>) -> String {
        let said = match initialize::parse_request(message) {
            Ok(said) => said,
            Err(sentence) => return reply::error(id, Code::INVALID_PARAMS, &sentence),
        };
        match self.initialize(said).await {
            Ok(initialize_result) => reply::result(id, &initialize_result),
            Err(sentence) => {
                self.app().count_refused("no_session");
                reply::error(id, Code::INTERNAL_ERROR, &sentence)
            }
        }
    }

    async fn initialize(
        &self,
        (version, client_info): (Version, ClientInfo),
    ) -> Result<String, String> {
        let (app, target) = (self.app(), &self.guest.target);
        let to_text = |error: SessionOpenError| error.to_string();
        let (before, initialize) = {
            let state = self.state();
            (state.connection.clone(), state.initialize)
        };
        let (session, unclaimed) = match before {
            // A request before `initialize` created the connection and its session: `initialize` takes over that
            // session.
            Some(before) if !initialize => {
                let session = app.session(&self.principal.owner, before.default_session()).await;
                (session.map_err(to_text)?, UnclaimedSession::empty(app, &self.guest.target))
            }
            Some(before) => {
                self.begin_anew(&before).await.map_err(to_text)?;
                self.session().await.map_err(to_text)?
            }
            None => self.session().await.map_err(to_text)?,
        };
        let link_owner = LinkOwner::new(self.principal.owner.clone(), session.id());
        let present = self.present();
        let initialize_result =
            initialize::initialize_result(&present, target, &link_owner, (&version, &client_info))
                .await?;
        self.connect(&session, (version, client_info), true).await.map_err(to_text)?;
        unclaimed.claim();
        Ok(initialize_result)
    }

    /// Ends the previous connection, as if the client had left and come back.
    async fn begin_anew(&self, before: &Connection) -> Result<(), SessionOpenError> {
        before.detach_stream();
        let State { kept, .. } = std::mem::take(&mut *self.state());
        drop(kept);
        self.app().end_connection(&self.principal.owner, &self.guest.name).await.map(|_| ())
    }
}

/// Time that requests in flight get after the end of the standard input, so that `echo … | stayput stdio` is answered.
/// A package that is downloaded first takes most of it.
pub(crate) const INPUT_END_GRACE: Duration = Duration::from_secs(30);

/// Interval at which the standard output is examined after the end of the input.
const STDOUT_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Waits until no process reads the standard output any more, as after the death of the host.
pub(crate) async fn stdout_closed() {
    loop {
        let stdout = std::io::stdout();
        let mut fds = [rustix::event::PollFd::new(&stdout, rustix::event::PollFlags::empty())];
        let polled = rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default()));
        if polled.is_ok_and(|ready| ready > 0) {
            return;
        }
        tokio::time::sleep(STDOUT_POLL_INTERVAL).await;
    }
}

/// Error for a line that was too long to read.
pub(crate) fn unread(sentence: &str) -> String {
    reply::error("null", Code::PARSE_ERROR, sentence)
}

/// Writes lines, and between them the stderr of child processes, until the stream ends or the output is closed.
async fn write(
    mut lines: StreamReader,
    mut output: impl AsyncWrite + Unpin,
    mut stderr: StderrPieces,
) {
    let mut is_line_next = false;
    let mut next = |cx: &mut Context<'_>| {
        // Stderr comes first: the reason of an error is before the error. A line that waits comes after one piece, so that
        // a server which writes much to stderr does not hold up its own answers.
        if !is_line_next && let Poll::Ready(Some(piece)) = stderr.poll_recv(cx) {
            is_line_next = true;
            return Poll::Ready(Some(child_stderr::encode(&piece).into()));
        }
        is_line_next = false;
        if let Poll::Ready(line) = lines.next(cx) {
            return Poll::Ready(line);
        }
        match stderr.poll_recv(cx) {
            Poll::Ready(Some(piece)) => Poll::Ready(Some(child_stderr::encode(&piece).into())),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    };
    while let Some(line) = std::future::poll_fn(&mut next).await {
        if output.write_all(&line).await.is_err() || output.flush().await.is_err() {
            return;
        }
    }
}
