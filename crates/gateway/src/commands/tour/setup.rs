//! All that the story is played with.

use std::{
    fs::{self, DirBuilder},
    io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::DirBuilderExt as _,
    path::PathBuf,
    time::Duration,
};

use serde_json::json;
use stayput_upstream::{
    EraChoice, Folders, Http, Isolation, LinkSettings, Links, Options, Server, Stdio,
    process::{Processes, WardenCommand},
};
use tokio::{runtime::Handle, task::JoinHandle};

use super::{Seen, gateway::Gateway};
use crate::commands::{demo_server, tour::processes};

/// Any free port of this machine.
const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The name of the server that the gateway starts as a process.
pub(super) const NOTES: &str = "notes";

/// The name of the server that the gateway reaches over HTTP.
pub(super) const REMOTE: &str = "remote";

/// A folder of its own, a server over HTTP, whoever speaks for the chats, and the gateway once it runs.
pub(super) struct World {
    pub(super) links: Links,
    program: PathBuf,
    folders: Folders,
    remote: String,
    serving: JoinHandle<()>,
    gateway: Option<Gateway>,
}

impl World {
    pub(super) async fn new() -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let (remote, serve) = demo_server::listen(ANYWHERE).await.map_err(io::Error::other)?;
        let folders = Folders::temporary()?;
        DirBuilder::new().mode(0o700).create(folders.root())?;
        let warden = WardenCommand::new(&program, ["warden"]);
        let processes = Processes::wardened(warden, Handle::current());
        let settings = LinkSettings::new(processes, folders.clone());
        let links = Links::new(settings, Handle::current());
        let serving = Handle::current().spawn(async move {
            // It ends with us.
            let _ = serve.await;
        });
        Ok(Self { links, program, folders, remote, serving, gateway: None })
    }

    /// The built-in server as one process that all chats share, as a host without Stayput has it.
    pub(super) fn shared(&self) -> Seen<Server> {
        let notes = Stdio::new(self.program.to_string_lossy()).args(["demo-server"]);
        let options = Options { isolation: Some(Isolation::Shared), ..legacy() };
        Server::with(NOTES, notes, options).map_err(|error| error.to_string())
    }

    /// A server behind the gateway, as a client sees it.
    pub(super) fn behind(&self, name: &str) -> Seen<Server> {
        let address = self.gateway()?.address;
        let http = Http::new(format!("http://{address}/mcp/{name}"));
        Server::with(name, http, legacy()).map_err(|error| error.to_string())
    }

    pub(super) fn gateway(&self) -> Seen<&Gateway> {
        self.gateway.as_ref().ok_or_else(|| "there is no gateway".to_owned())
    }

    /// Starts the gateway: for the first time anywhere, then where its clients look for it.
    pub(super) async fn serve(&mut self) -> Seen<&Gateway> {
        let config = self.folders.root().join("stayput.json");
        let listen = match &self.gateway {
            Some(before) => before.address,
            None => {
                let written = fs::write(&config, self.config());
                written.map_err(|error| format!("no configuration can be written: {error}"))?;
                ANYWHERE
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

    /// Kills the gateway, and nothing else.
    pub(super) async fn kill(&mut self) -> Seen<()> {
        match &mut self.gateway {
            Some(gateway) => gateway.kill().await,
            None => Ok(()),
        }
    }

    /// Ends everything, removes what was written, and looks whether that is so.
    pub(super) async fn end(&mut self) -> Seen<()> {
        self.links.close(Duration::from_secs(10)).await;
        if let Some(gateway) = self.gateway.take() {
            gateway.stop().await;
        }
        self.serving.abort();
        // One that was just being started when the story stopped takes a moment more.
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

impl Drop for World {
    /// Somebody did not want to wait for the end.
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.folders.root());
    }
}

/// The chats know what they talk to, and need not ask.
fn legacy() -> Options {
    Options { era: EraChoice::Legacy, ..Options::default() }
}
