//! `stayput daemon`: holds sessions for `stayput stdio` if no `stayput serve` runs. The first `stayput stdio` starts
//! it, and it ends after the last one.

use std::{
    error::Error,
    io::{BufRead as _, Write as _},
    process::Command,
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    app::{Gateway, Plan, ServeError, standalone::Signals},
    config::command_server::Definition,
    observe::log::{self, LogFormat},
};

/// Line on the standard output that says that the daemon accepts clients.
pub(crate) const READY: &str = "ready";

/// Time that the daemon stays after its last client has disconnected and its last session has ended.
const IDLE_EXIT_DELAY: Duration = Duration::from_secs(10);

/// Time to wait for an earlier daemon that is about to exit.
const PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(25);

/// Starts the daemon as a detached process: killing the process tree of an IDE must not end the sessions of other
/// clients.
pub(crate) fn detach() -> Result<(), Box<dyn Error>> {
    Command::new(std::env::current_exe()?).args(["daemon", "--begun"]).spawn()?;
    Ok(())
}

/// Holds sessions until none is needed. Reads its definition from the first line of the standard input, and writes
/// `READY` or an error to the standard output.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    // Signals to the terminal or the process group must not reach the daemon. The call fails only if the process leads
    // a session already.
    let _ = rustix::process::setsid();
    // `daemon.log` is a file that a person opens.
    log::install(None, LogFormat::Text);
    let mut first = String::new();
    std::io::stdin().lock().read_line(&mut first)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let done = runtime.block_on(async {
        match start(&first).await {
            Ok(gateway) => {
                let mut signals = Signals::new()?;
                write_line(READY);
                let idle = gateway.idle(IDLE_EXIT_DELAY);
                gateway
                    .run(async {
                        tokio::select! {
                            () = idle => {}
                            () = signals.next() => {}
                        }
                    })
                    .await;
                Ok(())
            }
            Err(error) => {
                write_line(&error.to_string().replace('\n', " "));
                Err(error)
            }
        }
    });
    runtime.shutdown_background();
    done
}

async fn start(first: &str) -> Result<Gateway, Box<dyn Error>> {
    let definition: Definition = serde_json::from_str(first)
        .map_err(|_| "stayput starts this by itself; there is nothing to start it with by hand")?;
    let until = Instant::now() + PREDECESSOR_TIMEOUT;
    loop {
        let config = definition.config()?;
        let plan = Plan { listen: None, servers: Vec::new(), ..Plan::new(config)? };
        match Gateway::start(plan).await {
            Err(ServeError::Taken { .. }) if Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            started => return Ok(started?),
        }
    }
}

/// Writes a line for the process that started the daemon. A write error is ignored: that process has exited.
fn write_line(line: &str) {
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}
