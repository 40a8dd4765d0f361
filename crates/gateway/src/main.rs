//! The program `stayput`: a session for each client, in front of any MCP server.
//!
//! | room | where |
//! |---|---|
//! | listen | `front/`: what clients send over HTTP, or a line each |
//! | identify | `identify.rs`, `identify/`, `handles.rs`, `session_tools/`, `handshake.rs`, `connection.rs`, `connections.rs`: who it is, and which session that leads to |
//! | open | `house.rs`, `visit.rs`, `shared.rs`, `keeper.rs`: the session, its link, and what is needed to come back to its servers |
//! | route | `target.rs`, `request.rs`, `transparent.rs`, `aggregate.rs`, `heed.rs`: to which server, under which name |
//! | send | `forward.rs`, `listening.rs`: to the server, and what comes back |
//! | modern | `modern/`: the same for clients whose protocol has no session |
//! | reply | `reply.rs`, `stream.rs`, `streams.rs`, `lists.rs`, `tools.rs`, `sight.rs`, `losses.rs`, `moment.rs`, `patience.rs`: as the client expects it |
//!
//! `event.rs`, `metrics.rs`, `health.rs` and `log.rs` tell whoever runs it how it goes.
//! `serve.rs` opens and closes the house, `daemon.rs` for as long as somebody needs it, `alone.rs` for one
//! client, and `pipe.rs` leads to it from `stayput stdio`. `config.rs` reads what users write, `demo.rs` is a
//! small server to try it with, and `story.rs` shows on that server what all of this is for.

mod aggregate;
mod alone;
mod cli;
mod config;
mod connection;
mod connections;
mod daemon;
mod definition;
mod demo;
mod event;
mod forward;
mod front;
mod handles;
mod handshake;
mod health;
mod heed;
mod hello;
mod holding;
mod house;
mod identify;
mod keeper;
mod listening;
mod lists;
mod log;
mod losses;
mod metrics;
mod modern;
mod moment;
mod nobody;
mod owners;
mod patience;
mod pipe;
mod reply;
mod request;
mod serve;
mod session_tools;
mod shared;
mod sight;
mod story;
mod stream;
mod streams;
mod target;
mod transparent;
mod visit;

use std::{error::Error, io::Write as _, path::Path, process::ExitCode};

use clap::Parser as _;
use cli::{Cli, Command, LogFormat};
use log::Log;
use story::Ending;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        // Before there is a runtime: a warden has one thread.
        Command::Warden => return stayput_upstream::process::warden_main(),
        Command::Demo(args) => return story(&args),
        Command::DemoServer(args) => demo(&args),
        Command::Serve(args) => serve(&args),
        Command::Stdio(args) => stdio(args),
        Command::Token(args) => token(&args),
        Command::Daemon { begun: false } => daemon::detach(),
        Command::Daemon { begun: true } => daemon::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&*error),
    }
}

fn failed(error: &dyn Error) -> ExitCode {
    Log::default().line(&format!("stayput: {error}"));
    ExitCode::FAILURE
}

fn story(args: &cli::Demo) -> ExitCode {
    let told = tokio::runtime::Runtime::new().and_then(|runtime| {
        let told = runtime.block_on(story::tell(args.json));
        runtime.shutdown_background();
        told
    });
    match told {
        Ok(Ending::Good) => ExitCode::SUCCESS,
        Ok(Ending::Bad) => ExitCode::FAILURE,
        // As a shell says it of a program that Ctrl-C ended.
        Ok(Ending::Interrupted) => ExitCode::from(130),
        Err(error) => failed(&error),
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

fn token(args: &cli::Token) -> Done {
    let name = &args.name;
    stayput_core::Owner::verified("token", name)?;
    let token = owners::Token::generate()?;
    let (hash, token) = (token.hash().to_string(), token.expose());
    let text = if args.json {
        serde_json::json!({ "name": name, "token": token, "hash": hash }).to_string()
    } else {
        format!("token: {token}\nhash:  {}: {}", serde_json::json!(name), serde_json::json!(hash))
    };
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}

fn stdio(args: cli::Stdio) -> Done {
    let definition = args.definition(&std::env::current_dir()?)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let done = match args.no_daemon {
        true => runtime.block_on(alone::run(&definition, args.server.as_deref(), args.session)),
        false => runtime.block_on(pipe::run(definition, args.server, args.session)),
    };
    // A read of standard input cannot be cancelled; whoever waits for it waits for ever.
    runtime.shutdown_background();
    done
}

fn serve(args: &cli::Serve) -> Done {
    let config = args.configuration(Path::new("."))?;
    let log = Log { json: args.log_format == LogFormat::Json };
    for warning in &config.warnings {
        log.warn(warning);
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let done = runtime.block_on(async {
        let mut stop = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let plan = serve::Plan { open_to_all: args.open_to_all, ..serve::Plan::of(config)? };
        let gateway = serve::Gateway::start(plan, log).await?;
        gateway.announce()?;
        let (tell, told) = tokio::sync::oneshot::channel();
        let signals = async {
            tokio::select! {
                _ = stop.recv() => {}
                _ = interrupt.recv() => {}
                () = input_ended(), if args.stop_with_stdin => {}
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

/// Waits for the end of the standard input; what comes before it is not for us.
async fn input_ended() {
    let _ = tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await;
}
