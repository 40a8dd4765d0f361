//! `stayput stdio`: passes lines between a client and whoever holds the sessions, and outlives the latter.

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

/// How long the holder may take to notice that the client is gone.
const FAREWELL: Duration = Duration::from_secs(5);

/// A holder that dies sooner is not worth much.
const SOUND: Duration = Duration::from_secs(10);

/// How many such in a row are enough.
const ENOUGH: u32 = 5;

/// A line of the client, or that it was too long.
type Line = Result<Vec<u8>, LineTooLong>;

/// The client, and what is under way for it.
struct StdioProxy {
    client: Lines<Stdin>,
    output: Stdout,
    /// A line that no holder was there for.
    waiting: Option<Line>,
    flights: Mutex<Flights>,
}

/// How it ended with a holder.
#[derive(PartialEq, Eq)]
enum Ended {
    /// The client is gone.
    Left,
    /// The holder is.
    Lost,
}

/// Passes lines until the client leaves, or a signal comes.
///
/// # Errors
/// If nobody holds the sessions and nobody can be started, or there is no such server.
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
    let mut pipe = StdioProxy {
        client: Lines::new(tokio::io::stdin()),
        output: tokio::io::stdout(),
        waiting: None,
        flights: Mutex::default(),
    };
    tokio::select! {
        done = pipe.pass(way, log) => done,
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

    /// The holder; none if the client leaves before there is one.
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

    /// Passes lines both ways until one side is gone. Neither way waits for the other.
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
            // What it has still said comes to its end.
            Ended::Lost => down.await,
            Ended::Left => {
                drop(to);
                let _ = tokio::time::timeout(FAREWELL, down).await;
                Ended::Left
            }
        }
    }

    /// Answers what the holder took along.
    async fn tell_losses(&mut self) -> std::io::Result<()> {
        let lost = Self::flights(&self.flights).lost();
        for line in lost {
            self.output.write_all(line.as_bytes()).await?;
            self.output.write_all(b"\n").await?;
        }
        self.output.flush().await
    }
}

/// From the client to the holder. A line that no byte was taken of surely did not run: it goes on waiting, for
/// the next holder, also if this is dropped.
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
            // What was too long to be passed on is rubbish to the holder, which answers it.
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

/// From the holder to the client.
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
