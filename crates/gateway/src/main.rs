//! The program `stayput`.

mod connection;
mod connections;
mod forward;
mod front;
mod house;
mod keeper;
mod listening;
mod lists;
mod log;
mod losses;
mod reply;
mod serve;
mod stream;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("warden") {
        return stayput_upstream::process::warden_main();
    }
    let runtime = match tokio::runtime::Runtime::new() { Ok(r) => r, Err(_) => return ExitCode::FAILURE };
    runtime.block_on(async {
        let rest: Vec<String> = std::env::args().skip(2).collect();
        let server = stayput_upstream::Server::new("test", stayput_upstream::Stdio::new(rest[0].clone()).args(rest[1..].to_vec())).unwrap();
        let plan = serve::Plan { listen: "127.0.0.1:7337".parse().unwrap(), store: "sqlite:/tmp/gwdata/s.db".into(), servers: vec![server], rules: Default::default(), limits: Default::default(), expiry: Default::default(), sessions_per_owner: None, data: "/tmp/gwdata".into() };
        let log = log::Log::default();
        match serve::Gateway::start(plan, log).await {
            Ok(gateway) => { log.info(&format!("listening on {:?}", gateway.address())); gateway.run(async { let _ = tokio::signal::ctrl_c().await; }).await; ExitCode::SUCCESS }
            Err(error) => { log.warn(&error.to_string()); ExitCode::FAILURE }
        }
    })
}
