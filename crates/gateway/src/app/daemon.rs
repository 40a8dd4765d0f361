//! `stayput daemon`: holds sessions for `stayput stdio` where nobody runs `stayput serve`. It is started by
//! the first and goes with the last of them.

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
    observe::log::Log,
};

/// What it says when it can be reached.
pub(crate) const READY: &str = "ready";

/// How long it stays when nobody is there any more.
const GRACE: Duration = Duration::from_secs(10);

/// How long it waits for one before it that is about to go.
const SUCCESSION: Duration = Duration::from_secs(25);

/// Starts it, as a child of nobody: whoever ends the process tree of an IDE does not mean the sessions of all.
pub(crate) fn detach() -> Result<(), Box<dyn Error>> {
    Command::new(std::env::current_exe()?).args(["daemon", "--begun"]).spawn()?;
    Ok(())
}

/// Holds sessions until nobody needs them. What it is started with comes on the standard input, and that it
/// can be reached, or why not, is said on the standard output.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    // What is sent to a terminal, or to a group, is not for it. In a session of its own it is already if
    // this fails.
    let _ = rustix::process::setsid();
    let mut first = String::new();
    std::io::stdin().lock().read_line(&mut first)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let done = runtime.block_on(async {
        match start(&first).await {
            Ok(gateway) => {
                let mut signals = Signals::new()?;
                tell(READY);
                let idle = gateway.idle(GRACE);
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
                tell(&error.to_string().replace('\n', " "));
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
    let until = Instant::now() + SUCCESSION;
    loop {
        let config = definition.config()?;
        let plan = Plan { listen: None, servers: Vec::new(), ..Plan::of(config)? };
        match Gateway::start(plan, Log::default()).await {
            Err(ServeError::Taken { .. }) if Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            started => return Ok(started?),
        }
    }
}

/// Says a line to whoever started it. Who is gone does not want to know.
fn tell(line: &str) {
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}
