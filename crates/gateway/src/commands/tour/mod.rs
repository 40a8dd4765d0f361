//! `stayput demo`: what Stayput is for, played on the built-in server.
//!
//! Nothing is staged. The servers, the gateway and its processes are real, every line tells what was
//! just seen, and what was not seen as expected ends the story with a sentence.
//!
//! | file | what it is about |
//! |---|---|
//! | `teller.rs` | what is told, to people or to programs |
//! | `steps.rs` | what is played |
//! | `world.rs` | all that is needed for it, and its end |
//! | `chat.rs`, `gateway.rs`, `census.rs` | a client; the gateway as a child process; who runs |

mod chat;
mod gateway;
mod processes;
mod report;
mod setup;
mod steps;

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use self::steps::play;
use crate::commands::tour::{report::Reporter, setup::World};

/// Why a story does not go on: what was expected, and what was seen.
type Seen<T> = Result<T, String>;

/// How a story ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All was as it should be.
    Good,
    /// Something was not; it was told.
    Bad,
    /// Somebody wanted it to stop.
    Interrupted,
}

/// Tells the story, and leaves nothing behind: no process, no file.
///
/// # Errors
/// If it cannot begin.
pub(crate) async fn tell(json: bool) -> io::Result<Ending> {
    let mut stop = Stop::new()?;
    let mut teller = Reporter::new(json);
    let mut world = World::new().await?;
    let mut ending = tokio::select! {
        played = play(&mut world, &mut teller) => judged(played, &mut teller),
        () = stop.wanted() => Ending::Interrupted,
    };
    teller.waits("ending all that was started");
    tokio::select! {
        cleared = world.end() => if cleared.is_err() {
            ending = judged(cleared, &mut teller);
        },
        // Twice means now. Whoever watches over the processes ends what is left of them.
        () = stop.wanted() => return Ok(Ending::Interrupted),
    }
    teller.end(ending);
    Ok(ending)
}

fn judged(seen: Seen<()>, teller: &mut Reporter) -> Ending {
    match seen {
        Ok(()) => Ending::Good,
        Err(problem) => {
            teller.failed(&problem);
            Ending::Bad
        }
    }
}

/// The signals that mean an end.
struct Stop([Signal; 3]);

impl Stop {
    fn new() -> io::Result<Self> {
        let [interrupt, terminate, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        Ok(Self([signal(interrupt)?, signal(terminate)?, signal(hangup)?]))
    }

    async fn wanted(&mut self) {
        let Self([interrupt, terminate, hangup]) = self;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
