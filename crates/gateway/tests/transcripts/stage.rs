//! A gateway with scripted servers behind it, for one scenario.

use std::path::Path;

use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    cells::{Cell, Era, Transport},
    client::{Client, Http},
    server::Scripted,
    stdio::Process,
    support::{Gateway, gone},
    transcript::{self, Transcript},
};

/// A gateway, its servers and the recording of one scenario.
pub(crate) struct Stage {
    pub(crate) cell: Cell,
    pub(crate) transcript: Transcript,
    pub(crate) servers: Vec<Scripted>,
    program: Program,
    mark: String,
}

/// `stayput serve`, or the folder of `stayput stdio`, which each client starts.
enum Program {
    Serve(Gateway),
    Stdio(TempDir),
}

impl Stage {
    /// One server, named `test`.
    pub(crate) async fn new(cell: Cell) -> Self {
        Self::with(cell, &["test"], json!({})).await
    }

    /// Servers with these names, and settings of Stayput.
    pub(crate) async fn with(cell: Cell, names: &[&'static str], stayput: Value) -> Self {
        let mark =
            format!("transcript-{}-{}", cell.to_string().replace('/', "-"), std::process::id());
        let (mut servers, mut entries) = (Vec::new(), Map::new());
        for name in names {
            let server = Scripted::start(name, cell.server, &mark).await;
            entries.insert((*name).to_owned(), server.entry());
            servers.push(server);
        }
        let program = if cell.transport == Transport::Stdio {
            let folder = TempDir::new().unwrap();
            let config = json!({ "mcpServers": entries, "stayput": stayput }).to_string();
            std::fs::write(folder.path().join("stayput.json"), config).unwrap();
            Program::Stdio(folder)
        } else {
            Program::Serve(Gateway::with(entries.into(), stayput).await)
        };
        Self { cell, transcript: Transcript::default(), servers, program, mark }
    }

    /// Returns the only server.
    pub(crate) fn server(&mut self) -> &mut Scripted {
        &mut self.servers[0]
    }

    /// Connects a client to the server `test`, ready to call.
    pub(crate) async fn client(&self) -> Client {
        let mut client = self.connect("test", None).await;
        match self.cell.era {
            Era::Legacy => client.initialize(self.version(), "{}").await,
            Era::Modern => self.name(&mut client, "key:chat"),
        }
        client
    }

    /// Revision that a legacy client of this transport asks for.
    pub(crate) fn version(&self) -> &'static str {
        if self.cell.transport == Transport::Sse { "2024-11-05" } else { "2025-11-25" }
    }

    /// Names the session of a modern client over HTTP; over stdio the process is the session.
    pub(crate) fn name(&self, client: &mut Client, name: &str) {
        if self.cell.transport != Transport::Stdio {
            client.http_mut().name = Some(name.to_owned());
        }
    }

    /// Connects a client that has sent no message. An empty name is the path of all servers.
    pub(crate) async fn connect(&self, server: &str, token: Option<&str>) -> Client {
        let Cell { era, transport, .. } = self.cell;
        let gateway = match &self.program {
            Program::Serve(gateway) => gateway,
            Program::Stdio(folder) => {
                return Client::stdio(
                    era,
                    Process::start(&self.transcript, command(folder, server)),
                );
            }
        };
        let http = self.http(gateway, server, token);
        if transport == Transport::Sse { Client::old(http).await } else { Client::http(era, http) }
    }

    fn http(&self, gateway: &Gateway, server: &str, token: Option<&str>) -> Http {
        let transport = self.cell.transport;
        let front = if transport == Transport::Sse { "sse" } else { "mcp" };
        Http {
            transcript: self.transcript.clone(),
            base: gateway.url.clone(),
            path: format!("/{front}/{server}").trim_end_matches('/').to_owned(),
            transport,
            token: token.map(str::to_owned),
            id: None,
            name: None,
        }
    }

    /// Asks for an event stream that is refused.
    pub(crate) async fn refused_stream(&self, server: &str, token: Option<&str>) {
        let Program::Serve(gateway) = &self.program else { panic!("stdio has no streams") };
        self.http(gateway, server, token).get(None).await.finish().await;
    }

    /// Tells whether a client of this cell reads messages before the answer.
    pub(crate) fn streams(&self) -> bool {
        self.cell.transport != Transport::HttpJson
    }

    /// Tells whether all messages to the client come on one stream.
    pub(crate) fn has_one_stream(&self) -> bool {
        matches!(self.cell.transport, Transport::Stdio | Transport::Sse)
    }

    fn folder(&self) -> &Path {
        match &self.program {
            Program::Serve(gateway) => gateway.folder.path(),
            Program::Stdio(folder) => folder.path(),
        }
    }

    /// Compares the recording with its golden file, and waits until no process is left.
    pub(crate) async fn finish(self) {
        let recorded = self.transcript.render(self.cell, &self.servers, self.folder());
        let Self { cell, program, mark, servers, .. } = self;
        drop(program);
        gone(&mark).await;
        drop(servers);
        transcript::compare(cell, &recorded);
    }
}

fn command(folder: &TempDir, server: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    command.env("XDG_DATA_HOME", folder.path().join("data")).current_dir(folder.path());
    command.args(["stdio", "--no-daemon", "--config", "stayput.json"]);
    if !server.is_empty() {
        command.args(["--server", server]);
    }
    command
}
