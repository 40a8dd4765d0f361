//! The program `stayput`: a session for each client, in front of any MCP server.
//!
//! | room | where |
//! |---|---|
//! | listen | `front/`: what clients send over HTTP |
//! | identify | `identify.rs`, `identify/`, `handles.rs`, `session_tools/`, `handshake.rs`, `connection.rs`, `connections.rs`: who it is, and which session that leads to |
//! | open | `house.rs`, `visit.rs`, `keeper.rs`: the session, its link, and what is needed to come back to its servers |
//! | route | `target.rs`, `request.rs`, `transparent.rs`, `heed.rs`: to which server, under which name |
//! | send | `forward.rs`, `listening.rs`: to the server, and what comes back |
//! | reply | `reply.rs`, `stream.rs`, `lists.rs`, `tools.rs`, `sight.rs`, `losses.rs`, `moment.rs`: as the client expects it |
//!
//! `serve.rs` opens and closes the house, `config.rs` reads what users write, `demo.rs` is a small server
//! to try it with.

mod cli;
mod config;
mod connection;
mod connections;
mod demo;
mod forward;
mod front;
mod handles;
mod handshake;
mod heed;
mod house;
mod identify;
mod keeper;
mod listening;
mod lists;
mod log;
mod losses;
mod moment;
mod reply;
mod request;
mod serve;
mod session_tools;
mod sight;
mod stream;
mod target;
mod tools;
mod transparent;
mod visit;

use std::{error::Error, path::Path, process::ExitCode};

use clap::Parser as _;
use cli::{Cli, Command, LogFormat};
use log::Log;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        // Before there is a runtime: a warden has one thread.
        Command::Warden => return stayput_upstream::process::warden_main(),
        Command::DemoServer(args) => demo(&args),
        Command::Serve(args) => serve(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            Log::default().line(&format!("stayput: {error}"));
            ExitCode::FAILURE
        }
    }
}

type Done = Result<(), Box<dyn Error>>;

fn demo(args: &cli::DemoServer) -> Done {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(demo::run(args.http, args.state.as_deref()));
    // A read of standard input cannot be cancelled; whoever waits for it waits for ever.
    runtime.shutdown_background();
    Ok(done?)
}

fn serve(args: &cli::Serve) -> Done {
    let config = args.configuration(Path::new("."))?;
    let log = Log { json: args.log_format == LogFormat::Json };
    for warning in &config.warnings {
        log.warn(warning);
    }
    for configured in config.servers.iter().filter(|it| it.on_loss == config::OnLoss::Restart) {
        let name = configured.server.name();
        log.warn(&format!("on_loss of {name} has no effect yet: calls that a loss has hit fail"));
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let done = runtime.block_on(async {
        let mut stop = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let gateway = serve::Gateway::start(serve::Plan::of(config)?, log).await?;
        gateway.announce()?;
        let (tell, told) = tokio::sync::oneshot::channel();
        let signals = async {
            tokio::select! {
                _ = stop.recv() => {}
                _ = interrupt.recv() => {}
            }
            let _ = tell.send(());
            tokio::select! {
                _ = stop.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let stopped = async {
            let _ = told.await;
        };
        tokio::select! {
            () = gateway.run(stopped) => {}
            // Twice means now. The warden ends what is left of the children.
            () = signals => log.warn("stopped without waiting for calls"),
        }
        Ok(())
    });
    runtime.shutdown_background();
    done
}
