//! `stayput demo`: a tour of Stayput with the built-in server.
//!
//! Nothing is simulated. The servers, the gateway and the processes are real, and each line reports an observation. An
//! unexpected observation ends the tour with an error.
//!
//! | file | content |
//! |---|---|
//! | `report.rs` | output for people or as JSON |
//! | `steps.rs` | steps of the tour |
//! | `setup.rs` | servers, gateway and folder of the tour, and their cleanup |
//! | `chat.rs`, `gateway.rs`, `processes.rs` | a client; the gateway as a child process; the running processes |

mod chat;
mod gateway;
mod processes;
mod report;
mod setup;
mod steps;

use std::{io, time::Duration};

use tokio::signal::unix::{Signal, SignalKind, signal};

use self::steps::play;
use crate::commands::tour::{report::Reporter, setup::TourSetup};

/// Result of a step. The error says what was expected and what was observed.
type StepResult<T> = Result<T, String>;

/// Outcome of the tour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TourOutcome {
    /// All observations were as expected.
    Good,
    /// An observation was unexpected, and was reported.
    Bad,
    /// A signal interrupted the tour.
    Interrupted,
}

/// Runs the tour. It leaves no process and no file behind.
///
/// # Errors
/// If it cannot start.
pub(crate) async fn run(json: bool) -> io::Result<TourOutcome> {
    adopt_orphans();
    let mut stop = StopSignals::new()?;
    let mut reporter = Reporter::new(json);
    let mut setup = TourSetup::new().await?;
    let mut ending = tokio::select! {
        biased;
        () = stop.wanted() => TourOutcome::Interrupted,
        result = play(&mut setup, &mut reporter) => match result {
            // Ctrl-C ends the processes of the tour, too, and their end may be seen first.
            Err(_) if stop.is_near().await => TourOutcome::Interrupted,
            result => judged(result, &mut reporter),
        },
    };
    reporter.show_progress("ending all that was started");
    tokio::select! {
        result = setup.end() => if result.is_err() {
            ending = judged(result, &mut reporter);
        },
        // A second signal stops at once. The warden ends the remaining processes.
        () = stop.wanted() => return Ok(TourOutcome::Interrupted),
    }
    reporter.end(ending);
    Ok(ending)
}

/// Makes this process the parent of processes whose parent was killed, so that the end of the tour waits for them: a
/// gateway that is killed while it starts leaves its warden, which ends by itself a moment later.
fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

fn judged(seen: StepResult<()>, reporter: &mut Reporter) -> TourOutcome {
    match seen {
        Ok(()) => TourOutcome::Good,
        Err(problem) => {
            reporter.failed(&problem);
            TourOutcome::Bad
        }
    }
}

/// Time within which a signal to a process group is seen by all its processes.
const SIGNAL_SPREAD: Duration = Duration::from_millis(500);

/// Signals that end the tour.
struct StopSignals([Signal; 3]);

impl StopSignals {
    fn new() -> io::Result<Self> {
        let [interrupt, terminate, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        Ok(Self([signal(interrupt)?, signal(terminate)?, signal(hangup)?]))
    }

    /// Whether a signal comes at about this time.
    async fn is_near(&mut self) -> bool {
        tokio::time::timeout(SIGNAL_SPREAD, self.wanted()).await.is_ok()
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
