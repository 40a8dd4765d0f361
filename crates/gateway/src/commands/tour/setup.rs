//! Servers, gateway and folder of the tour.

use std::{
    fs::{self, DirBuilder},
    io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::DirBuilderExt as _,
    path::PathBuf,
    time::Duration,
};

use serde_json::json;
use stayput_process::{Processes, WardenCommand};
use stayput_upstream::{
    EraChoice, Http, Isolation, LinkSettings, Links, Options, Server, SessionDirs, Stdio,
};
use tokio::{runtime::Handle, task::JoinHandle};

use super::{StepResult, gateway::Gateway};
use crate::commands::{demo_server, tour::processes};

/// Any free port of this machine.
const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Name of the server that the gateway starts as a process.
pub(super) const NOTES: &str = "notes";

/// Name of the server that the gateway reaches over HTTP.
pub(super) const REMOTE: &str = "remote";

/// Environment of the tour: a temporary folder, a server over HTTP, the links of the chats, and the gateway once it
/// runs.
pub(super) struct TourSetup {
    pub(super) links: Links,
    program: PathBuf,
    folders: SessionDirs,
    remote: String,
    serving: JoinHandle<()>,
    gateway: Option<Gateway>,
}

impl TourSetup {
    pub(super) async fn new() -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let (remote, serve) = demo_server::listen(ANY_PORT).await.map_err(io::Error::other)?;
        let folders = SessionDirs::temporary()?;
        DirBuilder::new().mode(0o700).create(folders.root())?;
        let warden = WardenCommand::new(&program, ["warden"]);
        let processes = Processes::wardened(warden, Handle::current());
        let settings = LinkSettings::new(processes, folders.clone());
        let links = Links::new(settings, Handle::current());
        let serving = Handle::current().spawn(async move {
            // The server is stopped with this process, so its result is ignored.
            let _ = serve.await;
        });
        Ok(Self { links, program, folders, remote, serving, gateway: None })
    }

    /// Returns the built-in server as one process that all chats share, as in a host without Stayput.
    pub(super) fn shared(&self) -> StepResult<Server> {
        let notes = Stdio::new(self.program.to_string_lossy()).args(["demo-server"]);
        let options = Options { isolation: Some(Isolation::Shared), ..legacy() };
        Server::with(NOTES, notes, options).map_err(|error| error.to_string())
    }

    /// Returns a server behind the gateway, as a client sees it.
    pub(super) fn server_behind_gateway(&self, name: &str) -> StepResult<Server> {
        let address = self.gateway()?.address;
        let http = Http::new(format!("http://{address}/mcp/{name}"));
        Server::with(name, http, legacy()).map_err(|error| error.to_string())
    }

    pub(super) fn gateway(&self) -> StepResult<&Gateway> {
        self.gateway.as_ref().ok_or_else(|| "there is no gateway".to_owned())
    }

    /// Starts the gateway: the first time on any free port, later on the same port, where its clients expect it.
    pub(super) async fn serve(&mut self) -> StepResult<&Gateway> {
        let config = self.folders.root().join("stayput.json");
        let listen = match &self.gateway {
            Some(before) => before.address,
            None => {
                let written = fs::write(&config, self.config());
                written.map_err(|error| format!("no configuration can be written: {error}"))?;
                ANY_PORT
            }
        };
        let started = Gateway::start(&self.program, &config, listen).await?;
        Ok(self.gateway.insert(started))
    }

    fn config(&self) -> String {
        let store = format!("sqlite:{}", self.folders.root().join("store.db").display());
        let config = json!({
            "mcpServers": {
                NOTES: { "command": self.program.to_string_lossy(), "args": ["demo-server"] },
                REMOTE: { "url": self.remote },
            },
            "stayput": { "store": store },
        });
        config.to_string()
    }

    /// Kills only the gateway process.
    pub(super) async fn kill(&mut self) -> StepResult<()> {
        match &mut self.gateway {
            Some(gateway) => gateway.kill().await,
            None => Ok(()),
        }
    }

    /// Ends all processes, removes the folder, and checks that no process is left.
    pub(super) async fn end(&mut self) -> StepResult<()> {
        self.links.close(Duration::from_secs(10)).await;
        if let Some(gateway) = self.gateway.take() {
            gateway.stop().await;
        }
        self.serving.abort();
        // A process that was just being started when the tour stopped needs a moment to end.
        let mut left = processes::below(std::process::id()).len();
        for _ in 0..100 {
            if left == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            left = processes::below(std::process::id()).len();
        }
        let removed = fs::remove_dir_all(self.folders.root());
        removed.map_err(|error| format!("the temporary folder cannot be removed: {error}"))?;
        if left == 0 { Ok(()) } else { Err(format!("{left} processes are left")) }
    }
}

impl Drop for TourSetup {
    /// Removes the folder also if the user did not wait for the end.
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.folders.root());
    }
}

/// Options of a legacy server, so that the chats need no probe of the era.
fn legacy() -> Options {
    Options { era: EraChoice::Legacy, ..Options::default() }
}
