//! `stayput stdio`: passes lines between a client and the process that holds the sessions. It survives a restart of
//! that process.

mod holder;
mod in_flight;

use std::{error::Error, sync::MutexGuard, time::Duration};

use stayput_core::{Handle, Key};
use stayput_sync::Mutex;
use stayput_wire::LineTooLong;
use tokio::{
    io::{AsyncWriteExt as _, Stdin, Stdout},
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
    sync::{Notify, watch},
    time::Instant,
};

use crate::{
    app::{instance_lock, standalone::Signals},
    commands::stdio_proxy::{
        holder::{Holder, HolderAddress},
        in_flight::InFlightRequests,
    },
    config::command_server::{self, Definition},
    listen::{
        child_stderr::{self, StderrWriter},
        lines::Lines,
        proxy_handshake::{FORM, HandshakeRequest},
        stdio::{INPUT_END_GRACE, stdout_closed},
    },
};

/// Time that the holder gets to notice that the client has disconnected.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A holder that dies sooner than this counts as unstable.
const MIN_STABLE_TIME: Duration = Duration::from_secs(10);

/// Maximum number of unstable holders in a row.
const MAX_UNSTABLE_HOLDERS: u32 = 5;

/// Line of the client, or the error that it was too long.
type Line = Result<Vec<u8>, LineTooLong>;

/// Client connection, and its requests in flight.
struct StdioProxy {
    client: Lines<Stdin>,
    output: Stdout,
    /// Line that waits for a holder.
    waiting: Option<Line>,
    in_flight: Mutex<InFlightRequests>,
    /// Notified for each line of the holder.
    answered: Notify,
    stderr: StderrWriter,
}

/// Reason why the connection to a holder ended.
#[derive(PartialEq, Eq)]
enum Disconnect {
    /// The client disconnected.
    Left,
    /// The holder died.
    Lost,
}

/// Passes lines until the client disconnects or a signal arrives.
///
/// # Errors
/// If no process holds the sessions and none can be started, or there is no such server.
pub(crate) async fn run(
    definition: Definition,
    server: Option<String>,
    key: Option<Key>,
) -> Result<(), Box<dyn Error>> {
    let config = definition.config()?;
    for warning in config.all_warnings() {
        tracing::warn!("{warning}");
    }
    if definition.has_servers() {
        let known = config.servers.iter().map(|it| it.server.name());
        command_server::choose(known, server.as_deref())?;
    }
    let hello = HandshakeRequest {
        stayput: FORM,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        name: Handle::generate().expose().to_owned(),
        again: false,
        definition,
        server,
        session: key.map(|key| key.value().to_owned()),
    };
    let way = HolderAddress {
        data: instance_lock::data_folder(config.data.as_deref(), &config.store)?,
        hello,
        lasting: false,
        wanted: watch::Sender::new(true),
    };
    let mut signals = Signals::new()?;
    let mut proxy = StdioProxy {
        client: Lines::new(tokio::io::stdin()),
        output: tokio::io::stdout(),
        waiting: None,
        in_flight: Mutex::default(),
        answered: Notify::new(),
        stderr: StderrWriter::start(),
    };
    tokio::select! {
        done = proxy.pass(way) => done,
        () = signals.next() => Ok(()),
    }
}

impl StdioProxy {
    fn in_flight(in_flight: &Mutex<InFlightRequests>) -> MutexGuard<'_, InFlightRequests> {
        in_flight.lock()
    }

    async fn pass(&mut self, mut way: HolderAddress) -> Result<(), Box<dyn Error>> {
        let mut unsound = 0;
        loop {
            let Some(holder) = self.reach(&way).await? else { return Ok(()) };
            let since = Instant::now();
            way.lasting = holder.welcome.lasting;
            if self.relay(holder).await == Disconnect::Left {
                return Ok(());
            }
            unsound = if since.elapsed() < MIN_STABLE_TIME { unsound + 1 } else { 1 };
            if unsound > MAX_UNSTABLE_HOLDERS {
                return Err("the process that holds the sessions dies again and again".into());
            }
            tracing::warn!("the process that holds the sessions is gone; looking for the next one");
            way.hello.again = true;
            way.wanted.send_replace(self.waiting.is_some());
            if self.tell_losses().await.is_err() {
                return Ok(());
            }
        }
    }

    /// Connects to the holder. Returns `None` if the client disconnects first.
    async fn reach(&mut self, way: &HolderAddress) -> Result<Option<Holder>, holder::ReachError> {
        let reaching = way.reach();
        tokio::pin!(reaching);
        loop {
            tokio::select! {
                reached = &mut reaching => return reached.map(Some),
                line = self.client.next(), if self.waiting.is_none() => match line {
                    Some(line) => {
                        self.waiting = Some(line);
                        way.wanted.send_replace(true);
                    }
                    None => return Ok(None),
                },
            }
        }
    }

    /// Passes lines in both directions until one side disconnects. Neither direction waits for the other.
    async fn relay(&mut self, holder: Holder) -> Disconnect {
        let Holder { mut said, mut to, welcome } = holder;
        let Self { client, output, waiting, in_flight, answered, stderr } = self;
        let again = Self::in_flight(in_flight).again(welcome.known);
        let to_client = ToClient { in_flight, answered, stderr };
        let forward_to_client = to_client.forward(&mut said, output);
        tokio::pin!(forward_to_client);
        let ended = {
            let up = async {
                if let Some(mut line) = again {
                    line.push(b'\n');
                    if to.write_all(&line).await.is_err() {
                        return Disconnect::Lost;
                    }
                }
                forward_to_holder(client, waiting, &mut to, in_flight).await
            };
            tokio::select! {
                ended = &mut forward_to_client => return ended,
                ended = up => ended,
            }
        };
        match ended {
            // Lines that the holder has already written are still passed on.
            Disconnect::Lost => forward_to_client.await,
            Disconnect::Left => {
                tokio::select! {
                    ended = &mut forward_to_client => return ended,
                    () = last_answers(in_flight, answered) => {}
                }
                drop(to);
                let _ = tokio::time::timeout(DISCONNECT_TIMEOUT, forward_to_client).await;
                Disconnect::Left
            }
        }
    }

    /// Sends the failures of the requests that were in flight when the holder died.
    async fn tell_losses(&mut self) -> std::io::Result<()> {
        let lost = Self::in_flight(&self.in_flight).lost();
        for line in lost {
            self.output.write_all(line.as_bytes()).await?;
            self.output.write_all(b"\n").await?;
        }
        self.output.flush().await
    }
}

/// Passes lines from the client to the holder. A line of which no byte was written surely did not run. It stays in
/// `waiting` for the next holder, also if this future is dropped.
async fn forward_to_holder(
    client: &mut Lines<Stdin>,
    waiting: &mut Option<Line>,
    to: &mut OwnedWriteHalf,
    in_flight: &Mutex<InFlightRequests>,
) -> Disconnect {
    loop {
        if waiting.is_none() {
            *waiting = client.next().await;
        }
        let mut line = match waiting {
            Some(Ok(line)) => line.clone(),
            // A line that was too long is replaced by its error text. That is not JSON, so the holder answers with an
            // error.
            Some(Err(error)) => error.to_string().into_bytes(),
            None => return Disconnect::Left,
        };
        line.push(b'\n');
        let Ok(taken) = to.write(&line).await else { return Disconnect::Lost };
        StdioProxy::in_flight(in_flight).sent(&line);
        *waiting = None;
        if to.write_all(line.get(taken..).unwrap_or_default()).await.is_err() {
            return Disconnect::Lost;
        }
    }
}

/// Waits until all requests are answered after the end of the input, as `echo … | stayput stdio` expects. A host that
/// closed the output, or has waited long enough, does not want the answers.
async fn last_answers(in_flight: &Mutex<InFlightRequests>, answered: &Notify) {
    let all = async {
        while StdioProxy::in_flight(in_flight).has_requests() {
            answered.notified().await;
        }
    };
    tokio::select! {
        () = all => {}
        () = stdout_closed() => {}
        () = tokio::time::sleep(INPUT_END_GRACE) => {}
    }
}

/// Direction from the holder to the client.
struct ToClient<'a> {
    in_flight: &'a Mutex<InFlightRequests>,
    answered: &'a Notify,
    stderr: &'a StderrWriter,
}

impl ToClient<'_> {
    /// Passes lines from the holder to the client, and the stderr of servers to the stderr of this process.
    async fn forward(&self, said: &mut Lines<OwnedReadHalf>, output: &mut Stdout) -> Disconnect {
        while let Some(line) = said.next().await {
            let Ok(mut line) = line else { continue };
            if let Some(piece) = child_stderr::decode(&line) {
                self.stderr.write(piece);
                continue;
            }
            let wanted = StdioProxy::in_flight(self.in_flight).record_from_holder(&line);
            line.push(b'\n');
            if wanted && (output.write_all(&line).await.is_err() || output.flush().await.is_err()) {
                return Disconnect::Left;
            }
            self.answered.notify_one();
        }
        Disconnect::Lost
    }
}
