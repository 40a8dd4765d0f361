//! The grid of recordings: eras, transports and scenarios, and the cells that the protocol does not have.

use std::fmt;

/// Era of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// 2025-11-25 and older: `initialize`, protocol sessions.
    Legacy,
    /// 2026-07-28: each request stands alone.
    Modern,
}

/// Transport between the client and the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Streamable HTTP, answers as JSON documents.
    HttpJson,
    /// Streamable HTTP, answers as event streams.
    HttpSse,
    /// `stayput stdio --no-daemon`.
    Stdio,
    /// `/sse/NAME`, the transport of 2024-11-05.
    Sse,
}

/// One recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) era: Era,
    pub(crate) transport: Transport,
    pub(crate) scenario: &'static str,
    /// Era of the server. The grid is recorded with legacy servers, a part of it with modern ones, too.
    pub(crate) server: Era,
}

pub(crate) const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

pub(crate) const TRANSPORTS: [Transport; 4] =
    [Transport::HttpJson, Transport::HttpSse, Transport::Stdio, Transport::Sse];

pub(crate) const SCENARIOS: [&str; 10] = [
    "call",
    "progress",
    "cancel",
    "disconnect",
    "resume",
    "question",
    "loss",
    "batch",
    "aggregate",
    "refused_owner",
];

/// Cells that do not exist, with the reason. `*` stands for every scenario.
pub(crate) const ABSENT: [(Era, Transport, &str, &str); 15] = [
    (Era::Modern, Transport::Sse, "*", "HTTP+SSE ended with 2024-11-05"),
    (Era::Modern, Transport::HttpJson, "progress", "an answer with progress is an event stream"),
    (Era::Modern, Transport::HttpJson, "resume", "2026-07-28 has no Last-Event-ID"),
    (Era::Modern, Transport::HttpSse, "resume", "2026-07-28 has no Last-Event-ID"),
    (Era::Modern, Transport::Stdio, "resume", "stdio has no Last-Event-ID"),
    (Era::Modern, Transport::HttpJson, "batch", "2026-07-28 has no batches"),
    (Era::Modern, Transport::HttpSse, "batch", "2026-07-28 has no batches"),
    (Era::Modern, Transport::Stdio, "batch", "2026-07-28 has no batches"),
    (Era::Modern, Transport::Stdio, "refused_owner", "the user of the process is the only owner"),
    (Era::Legacy, Transport::HttpJson, "resume", "a JSON document has no event ids"),
    (Era::Legacy, Transport::Stdio, "resume", "stdio has no Last-Event-ID"),
    (Era::Legacy, Transport::Stdio, "refused_owner", "the user of the process is the only owner"),
    (Era::Legacy, Transport::Sse, "resume", "2024-11-05 has no event ids"),
    (Era::Legacy, Transport::Sse, "aggregate", "`/sse/NAME` names one server"),
    (Era::Legacy, Transport::HttpSse, "batch", "a batch is answered as one JSON document"),
];

impl Era {
    fn folder(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

impl Transport {
    fn folder(self) -> &'static str {
        match self {
            Self::HttpJson => "http-json",
            Self::HttpSse => "http-sse",
            Self::Stdio => "stdio",
            Self::Sse => "sse-2024-11-05",
        }
    }
}

/// Path of the recording below the golden folder.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = if self.server == Era::Modern { "-on-modern-server" } else { "" };
        let (era, transport) = (self.era.folder(), self.transport.folder());
        write!(f, "{era}/{transport}/{}{on}.txt", self.scenario)
    }
}

/// Every cell of the grid.
pub(crate) fn all() -> impl Iterator<Item = Cell> {
    ERAS.into_iter().flat_map(|era| {
        TRANSPORTS.into_iter().flat_map(move |transport| {
            let server = Era::Legacy;
            SCENARIOS.into_iter().map(move |scenario| Cell { era, transport, scenario, server })
        })
    })
}

/// Tells whether the cell is listed as one that does not exist.
pub(crate) fn is_absent(cell: Cell) -> bool {
    ABSENT.iter().any(|(era, transport, scenario, _)| {
        (*era, *transport) == (cell.era, cell.transport) && ["*", cell.scenario].contains(scenario)
    })
}
