//! `stayput stdio`: passes lines between a client and the process that holds the sessions. It survives a restart of
//! that process.

mod holder;
mod in_flight;

use std::{
    error::Error,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use stayput_core::{Handle, Key};
use stayput_wire::LineTooLong;
use tokio::{
    io::{AsyncWriteExt as _, Stdin, Stdout},
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
    time::Instant,
};

use crate::{
    app::{instance_lock, standalone::Signals},
    commands::stdio_proxy::{
        holder::{Holder, Way},
        in_flight::Flights,
    },
    config::command_server::{self, Definition},
    listen::{
        lines::Lines,
        proxy_handshake::{FORM, ProxyHello},
    },
    observe::log::Log,
};

/// Time that the holder gets to notice that the client has disconnected.
const FAREWELL: Duration = Duration::from_secs(5);

/// A holder that dies sooner than this counts as unstable.
const SOUND: Duration = Duration::from_secs(10);

/// Maximum number of unstable holders in a row.
const ENOUGH: u32 = 5;

/// Line of the client, or the error that it was too long.
type Line = Result<Vec<u8>, LineTooLong>;

/// Client connection, and its requests in flight.
struct StdioProxy {
    client: Lines<Stdin>,
    output: Stdout,
    /// Line that waits for a holder.
    waiting: Option<Line>,
    flights: Mutex<Flights>,
}

/// Reason why the connection to a holder ended.
#[derive(PartialEq, Eq)]
enum Ended {
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
    let log = Log::default();
    for warning in &config.warnings {
        log.warn(warning);
    }
    if definition.has_servers() {
        let known = config.servers.iter().map(|it| it.server.name());
        command_server::choose(known, server.as_deref())?;
    }
    let hello = ProxyHello {
        stayput: FORM,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        name: Handle::generate().expose().to_owned(),
        again: false,
        definition,
        server,
        session: key.map(|key| key.value().to_owned()),
    };
    let way = Way { data: instance_lock::folder(&config.store)?, hello, lasting: false };
    let mut signals = Signals::new()?;
    let mut proxy = StdioProxy {
        client: Lines::new(tokio::io::stdin()),
        output: tokio::io::stdout(),
        waiting: None,
        flights: Mutex::default(),
    };
    tokio::select! {
        done = proxy.pass(way, log) => done,
        () = signals.next() => Ok(()),
    }
}

impl StdioProxy {
    fn flights(flights: &Mutex<Flights>) -> MutexGuard<'_, Flights> {
        flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn pass(&mut self, mut way: Way, log: Log) -> Result<(), Box<dyn Error>> {
        let mut unsound = 0;
        loop {
            let Some(holder) = self.reach(&way).await? else { return Ok(()) };
            let since = Instant::now();
            way.lasting = holder.welcome.lasting;
            if self.relay(holder).await == Ended::Left {
                return Ok(());
            }
            unsound = if since.elapsed() < SOUND { unsound + 1 } else { 1 };
            if unsound > ENOUGH {
                return Err("the process that holds the sessions dies again and again".into());
            }
            log.warn("the process that holds the sessions is gone; looking for the next one");
            way.hello.again = true;
            if self.tell_losses().await.is_err() {
                return Ok(());
            }
        }
    }

    /// Connects to the holder. Returns `None` if the client disconnects first.
    async fn reach(&mut self, way: &Way) -> Result<Option<Holder>, holder::ReachError> {
        let reaching = way.reach();
        tokio::pin!(reaching);
        loop {
            tokio::select! {
                reached = &mut reaching => return reached.map(Some),
                line = self.client.next(), if self.waiting.is_none() => match line {
                    Some(line) => self.waiting = Some(line),
                    None => return Ok(None),
                },
            }
        }
    }

    /// Passes lines in both directions until one side disconnects. Neither direction waits for the other.
    async fn relay(&mut self, holder: Holder) -> Ended {
        let Holder { mut said, mut to, welcome } = holder;
        let Self { client, output, waiting, flights } = self;
        let again = Self::flights(flights).again(welcome.known);
        let down = down(&mut said, output, flights);
        tokio::pin!(down);
        let ended = {
            let up = async {
                if let Some(mut line) = again {
                    line.push(b'\n');
                    if to.write_all(&line).await.is_err() {
                        return Ended::Lost;
                    }
                }
                up(client, waiting, &mut to, flights).await
            };
            tokio::select! {
                ended = &mut down => return ended,
                ended = up => ended,
            }
        };
        match ended {
            // Lines that the holder has already written are still passed on.
            Ended::Lost => down.await,
            Ended::Left => {
                drop(to);
                let _ = tokio::time::timeout(FAREWELL, down).await;
                Ended::Left
            }
        }
    }

    /// Sends the failures of the requests that were in flight when the holder died.
    async fn tell_losses(&mut self) -> std::io::Result<()> {
        let lost = Self::flights(&self.flights).lost();
        for line in lost {
            self.output.write_all(line.as_bytes()).await?;
            self.output.write_all(b"\n").await?;
        }
        self.output.flush().await
    }
}

/// Passes lines from the client to the holder. A line of which no byte was written surely did not run. It stays in
/// `waiting` for the next holder, also if this future is dropped.
async fn up(
    client: &mut Lines<Stdin>,
    waiting: &mut Option<Line>,
    to: &mut OwnedWriteHalf,
    flights: &Mutex<Flights>,
) -> Ended {
    loop {
        if waiting.is_none() {
            *waiting = client.next().await;
        }
        let mut line = match waiting {
            Some(Ok(line)) => line.clone(),
            // A line that was too long is replaced by its error text. That is not JSON, so the holder answers with an
            // error.
            Some(Err(error)) => error.to_string().into_bytes(),
            None => return Ended::Left,
        };
        line.push(b'\n');
        let Ok(taken) = to.write(&line).await else { return Ended::Lost };
        StdioProxy::flights(flights).sent(&line);
        *waiting = None;
        if to.write_all(line.get(taken..).unwrap_or_default()).await.is_err() {
            return Ended::Lost;
        }
    }
}

/// Passes lines from the holder to the client.
async fn down(
    said: &mut Lines<OwnedReadHalf>,
    output: &mut Stdout,
    flights: &Mutex<Flights>,
) -> Ended {
    while let Some(line) = said.next().await {
        let Ok(mut line) = line else { continue };
        if !StdioProxy::flights(flights).came(&line) {
            continue;
        }
        line.push(b'\n');
        if output.write_all(&line).await.is_err() || output.flush().await.is_err() {
            return Ended::Left;
        }
    }
    Ended::Lost
}
