//! The program `stayput`: a gateway that keeps a session for each client in front of any MCP server.
//!
//! A call passes: listen → authenticate → route → identify → open → call → reply. The folders are layers, the
//! lowest first. Each may use only those before it in this table; this file may use all of them.
//!
//! | folder | content |
//! |---|---|
//! | `reply/` | response bodies, JSON-RPC results and errors, `Accept`, texts about losses |
//! | `auth/` | authentication: bearer tokens, JWT and JWKS, trusted proxy, claims; rate limit, limit of calls in flight |
//! | `observe/` | observers of calls and sessions: events, metrics, log, audit, `traceparent`, OTLP, statistics |
//! | `config/` | settings of the gateway: listeners, authentication, name sources, limits; servers that `stayput stdio` brings |
//! | `catalog/` | presentation of lists: list kinds, names, cursors, URI indexes, tool views |
//! | `connections/` | connections of clients: registry, calls in flight, questions of servers, preferences, event streams |
//! | `cluster/` | other gateways on the same store: their registry, signed requests to them, holders of sessions |
//! | `state/` | `AppState`: sessions, links, connections, the current snapshot of the configuration, visibility, health |
//! | `messages/` | messages outside of calls: notifications, subscriptions, messages of servers, disconnects |
//! | `identify/` | `RequestContext`; session of a request: names (read by `stayput-identify`), connection, cookie, policy without a name |
//! | `session_tools/` | tools of Stayput: start, info, list, switch and end of sessions |
//! | `call/` | one request on its link, in both eras: owner, link, sending, following; `era.rs` and `modern/` for what differs |
//! | `route/` | destination of a request: one server, all servers (`aggregate/`), an answer from the profile, `initialize` |
//! | `admin/` | admin API |
//! | `listen/` | listeners: HTTP/1.1, router, 2024-11-05 transport, stdio, Unix socket, RFC 9728 metadata |
//! | `app/` | start, run and drain of the gateway, reload, maintenance, instance lock, daemon, single process |
//! | `commands/` | command line (`cli/`) and subcommands: `check`, `install`, `sessions` and `call`, `stdio`, `demo`, `demo-server` |

mod admin;
mod app;
mod auth;
mod call;
mod catalog;
mod cluster;

mod commands;
mod config;
mod connections;
mod identify;
mod listen;
mod messages;
mod observe;
mod reply;
mod route;
mod session_tools;
mod state;

use std::{
    error::Error,
    io::{IsTerminal as _, Write as _},
    path::Path,
    process::ExitCode,
};

use clap::Parser as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    commands::tour::TourOutcome,
    observe::log::{self, LogFormat},
};
use commands::cli::{self, Cli, Command};

/// Allocator of the program. It returns the memory of large bodies to the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        // Runs before a runtime exists, because the warden has one thread only.
        Command::Warden => return stayput_process::warden_main(),
        Command::Demo(args) => return run_demo(&args),
        Command::Check(args) => return check(&args),
        Command::Install(args) => commands::install::run(&args),
        Command::Schema => {
            writeln!(std::io::stdout(), "{}", config::SCHEMA.trim_end()).map_err(Box::from)
        }
        Command::Completions(args) => {
            std::io::stdout().write_all(&args.script()).map_err(Box::from)
        }
        Command::DemoServer(args) => run_demo_server(&args),
        Command::Serve(args) => serve(&args),
        Command::Stdio(args) => stdio(args),
        Command::Sessions(args) => sessions(args),
        Command::Status(args) => status(&args),
        Command::Ui(args) => ui(&args),
        Command::Drain(args) => drain(&args),
        Command::Stop(args) => stop(&args),
        Command::Call(args) => call(&args),
        Command::Tools(args) => tools(&args),
        Command::Token(args) => token(&args),
        Command::Daemon { begun: false } => app::daemon::detach(),
        Command::Daemon { begun: true } => app::daemon::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &dyn std::fmt::Display) -> ExitCode {
    log::print_error(error);
    ExitCode::FAILURE
}

fn run_demo(args: &cli::Demo) -> ExitCode {
    let outcome = tokio::runtime::Runtime::new().and_then(|runtime| {
        let outcome = runtime.block_on(commands::tour::run(args.json));
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Ok(TourOutcome::Good) => ExitCode::SUCCESS,
        Ok(TourOutcome::Bad) => ExitCode::FAILURE,
        // Exit code of a shell for a program that Ctrl-C ended.
        Ok(TourOutcome::Interrupted) => ExitCode::from(130),
        Err(error) => failed(&error),
    }
}

fn check(args: &cli::Check) -> ExitCode {
    let outcome = tokio::runtime::Runtime::new().and_then(|runtime| {
        let outcome = runtime.block_on(commands::check::run(args));
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Ok(commands::check::CheckOutcome::Well) => ExitCode::SUCCESS,
        Ok(commands::check::CheckOutcome::Found) => ExitCode::FAILURE,
        Ok(commands::check::CheckOutcome::Unusable) => ExitCode::from(2),
        // Exit code of a shell for a program that Ctrl-C ended.
        Ok(commands::check::CheckOutcome::Interrupted) => ExitCode::from(130),
        Err(error) => failed(&error),
    }
}

type CommandResult = Result<(), Box<dyn Error>>;

fn run_demo_server(args: &cli::DemoServer) -> CommandResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(commands::demo_server::run(args.http, args.state.as_deref()));
    // A read of the standard input cannot be cancelled, so the runtime must not wait for it.
    runtime.shutdown_background();
    Ok(done?)
}

fn token(args: &cli::Token) -> CommandResult {
    let name = &args.name;
    stayput_core::Owner::verified("token", name)?;
    let token = auth::Token::generate()?;
    let (hash, token) = (token.hash().to_string(), token.expose());
    // Entry as it goes into the configuration.
    let entry = match args.admin {
        true => serde_json::json!({ "hash": hash, "admin": true }),
        false => serde_json::json!(hash),
    };
    let text = if args.json {
        serde_json::json!({ "name": name, "token": token, "hash": hash, "entry": entry })
            .to_string()
    } else {
        format!("token: {token}\nhash:  {}: {entry}", serde_json::json!(name))
    };
    writeln!(std::io::stdout(), "{text}")?;
    if !args.json {
        // Not to the standard output, which scripts read.
        let _ = writeln!(
            std::io::stderr(),
            "\nThe token is for {name}, and is not shown again. The line `hash` goes into the file of the gateway:\n    \
             \"stayput\": {{ \"auth\": {{ \"tokens\": {{ … }} }} }}"
        );
    }
    Ok(())
}

/// Runs a request to a running gateway on a single-threaded runtime.
fn asking<T>(asked: impl Future<Output = Result<T, Box<dyn Error>>>) -> Result<T, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(asked);
    runtime.shutdown_background();
    done
}

fn sessions(args: cli::SessionsArgs) -> CommandResult {
    asking(async {
        let way = args.at.way(&std::env::current_dir()?)?;
        Ok(commands::client::sessions::run(&way, args).await?)
    })
}

fn status(args: &cli::StatusArgs) -> CommandResult {
    asking(async {
        let way = args.at.way(&std::env::current_dir()?)?;
        Ok(commands::client::status::run(&way, args.at.json).await?)
    })
}

fn drain(args: &cli::DrainArgs) -> CommandResult {
    asking(async {
        let way = args.at.way(&std::env::current_dir()?)?;
        Ok(commands::client::drain::run(&way, args.at.json).await?)
    })
}

fn ui(args: &cli::UiArgs) -> CommandResult {
    asking(async {
        let way = args.at.way(&std::env::current_dir()?)?;
        Ok(commands::client::ui::run(way, args).await?)
    })
}

fn stop(args: &cli::StopArgs) -> CommandResult {
    asking(async {
        let way = args.to_gateway_args().way(&std::env::current_dir()?)?;
        Ok(commands::client::stop::run(&way, args).await?)
    })
}

fn call(args: &cli::CallArgs) -> CommandResult {
    asking(async {
        let way = args.at.way(&std::env::current_dir()?)?;
        Ok(commands::client::call::run(&way, args).await?)
    })
}

fn tools(args: &cli::ToolsArgs) -> CommandResult {
    asking(async {
        let way = args.at.way(&std::env::current_dir()?)?;
        Ok(commands::client::tools::run(&way, args).await?)
    })
}

fn stdio(args: cli::Stdio) -> CommandResult {
    // A person reads it in the window of an IDE.
    log::install(None, LogFormat::Text);
    for name in args.unexpanded_variables() {
        tracing::warn!(
            "the variable {name} is passed on with its ${{…}}, which is expanded in arguments and in --env only: write --env \
             {name}=VALUE before the --"
        );
    }
    let definition = args.definition(&std::env::current_dir()?)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let done = match args.no_daemon {
        true => runtime.block_on(app::standalone::run(
            &definition,
            args.server.as_deref(),
            args.session,
        )),
        false => {
            runtime.block_on(commands::stdio_proxy::run(definition, args.server, args.session))
        }
    };
    // A read of the standard input cannot be cancelled, so the runtime must not wait for it.
    runtime.shutdown_background();
    done
}

fn serve(args: &cli::Serve) -> CommandResult {
    log::install(args.log, args.log_format);
    let (config, reading) = app::reload::ConfigReader::begin(args.source(Path::new("."))?)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let broken = config.broken.clone();
    let runtime = tokio::runtime::Runtime::new()?;
    let done = runtime.block_on(async {
        let mut stop = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let hung_up = hung_up(signal(SignalKind::hangup())?);
        let plan = app::Plan { open_to_all: args.open_to_all, ..app::Plan::new(config)? };
        let take_over = commands::client::take_over::run(&plan.data).await?;
        let gateway = app::Gateway::start(plan).await?.reading(reading);
        take_over.finish();
        gateway.announce(&broken)?;
        if args.probe.is_now() {
            gateway.probe_servers();
        }
        let (tell, told) = tokio::sync::oneshot::channel();
        let signals = async {
            tokio::select! {
                _ = stop.recv() => {}
                _ = interrupt.recv() => {}
                () = hung_up => {}
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
            // A second signal stops at once. The warden ends the remaining child processes.
            () = signals => tracing::warn!("stopped without waiting for calls"),
        }
        Ok(())
    });
    runtime.shutdown_background();
    done
}

/// Waits until the terminal of the process is closed. Without a terminal a SIGHUP only means a reload of the
/// configuration.
async fn hung_up(mut signals: Signal) {
    let on_terminal = || std::io::stdin().is_terminal() || std::io::stderr().is_terminal();
    let begun = on_terminal();
    loop {
        if signals.recv().await.is_none() {
            return std::future::pending().await;
        }
        if begun && !on_terminal() {
            return;
        }
    }
}

/// Waits for the end of the standard input, and ignores its content.
async fn input_ended() {
    let _ = tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await;
}
