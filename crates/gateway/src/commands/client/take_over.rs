//! Start of `stayput serve` on a store that the background process of `stayput stdio` holds.

use std::{fs, io, path::Path, time::Duration};

use tokio::time::Instant;

use super::{
    GatewayAddress, RemoteError,
    stop::{self, HeldSessions},
};
use crate::app::instance_lock;

/// Time to wait for a window that starts a background process.
const START_TIMEOUT: Duration = Duration::from_secs(30);

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Lock that keeps windows from starting another background process. They join the gateway once it runs.
pub(crate) struct TakeOver(Option<fs::File>);

/// Reason why the sessions are not taken over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeOverError {
    #[error(
        "the sessions in {data} are held by the background process of `stayput stdio` (process {pid}), which an editor \
         started. `stayput stop` ends it; then these sessions lose their state:\n{sessions}\nSessions on HTTP servers go \
         on. Or choose another store with --store"
    )]
    Busy { data: String, pid: i32, sessions: String },
    #[error("the background process of `stayput stdio` does not hand its sessions over: {0}")]
    Remote(#[from] RemoteError),
    #[error("the folder {data} cannot be used: {error}")]
    Data { data: String, error: io::Error },
}

/// Ends the background process of `stayput stdio`, if one holds the sessions of this data folder and no session would
/// lose its state by that. Its sessions on HTTP servers go on in this process.
///
/// # Errors
/// If sessions would lose their state, or the process does not end.
pub(crate) async fn run(data: &Path) -> Result<TakeOver, TakeOverError> {
    let way = GatewayAddress::Socket(data.to_owned());
    // Other holders are reported when the lock is taken.
    let is_background = async || HeldSessions::find(&way).await.is_ok_and(|it| it.is_background());
    if !is_background().await {
        return Ok(TakeOver(None));
    }
    let failed = |error| TakeOverError::Data { data: data.display().to_string(), error };
    let lock = starting(data).await.map_err(failed)?;
    let held = match HeldSessions::find(&way).await {
        Ok(held) if held.is_background() => held,
        _ => return Ok(TakeOver(Some(lock))),
    };
    let pid = held.pid().unwrap_or_default();
    if !held.loses_nothing() {
        let (data, sessions) = (data.display().to_string(), held.describe());
        return Err(TakeOverError::Busy { data, pid, sessions });
    }
    stop::end(data, &held).await?;
    tracing::info!(
        "took over from the background process of `stayput stdio` (process {pid}): {} sessions go on here",
        held.kept()
    );
    Ok(TakeOver(Some(lock)))
}

/// Takes the lock of a process that starts the holder.
async fn starting(data: &Path) -> io::Result<fs::File> {
    let lock = instance_lock::lockable(&data.join(instance_lock::STARTING))?;
    let until = Instant::now() + START_TIMEOUT;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(fs::TryLockError::WouldBlock) if Instant::now() < until => {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

impl TakeOver {
    /// Lets windows look for the holder again.
    pub(crate) fn finish(self) {
        drop(self.0);
    }
}
