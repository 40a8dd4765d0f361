//! How requests are told apart: `identify`, `hints`, `unidentified` and `session_tools`.

use http::HeaderName;
use stayput_config::{ConfigObject, ConfigValue, Problem, ReadResult};

use super::keys;

/// How a request says which session it means, and what becomes of one that does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identify {
    /// Where names of sessions are looked for.
    pub(crate) carriers: Carriers,
    /// The hosts whose conversation ids count.
    pub(crate) hints: Hints,
    /// What becomes of a call that names no session.
    pub(crate) unidentified: Unidentified,
    /// Which tools of our own stand beside those of a server.
    pub(crate) session_tools: SessionTools,
}

/// Where names of sessions are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Carriers {
    /// The argument of a tool.
    pub(crate) argument: bool,
    /// `_meta["dev.stayput/session"]`.
    pub(crate) meta: bool,
    /// The header `Stayput-Session`.
    pub(crate) header: bool,
    /// The path, behind `/~`.
    pub(crate) path: bool,
    /// The connection has a session by itself.
    pub(crate) connection: bool,
    /// The cookie `mcp_session_id`.
    pub(crate) cookie: bool,
    /// Places of others that hold the id of a conversation.
    pub(crate) also: Vec<CustomSource>,
}

impl Default for Carriers {
    fn default() -> Self {
        Self {
            argument: true,
            meta: true,
            header: true,
            path: true,
            connection: true,
            cookie: false,
            also: Vec::new(),
        }
    }
}

/// A place that holds the id of a conversation because its operator says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CustomSource {
    /// A header of the request.
    Header(HeaderName),
    /// A member of `_meta`.
    Meta(String),
    /// A claim of the caller's token. There are none without authentication.
    RequestContext(String),
}

/// The hosts whose conversation ids count, by the source of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hints(pub(crate) Vec<&'static str>);

/// All hosts whose conversation ids are known.
pub(crate) const HINTS: [&str; 6] = ["openai", "vscode", "codex", "opencode", "goose", "otel"];

impl Default for Hints {
    fn default() -> Self {
        Self(HINTS.to_vec())
    }
}

/// What becomes of a call that names no session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Unidentified {
    /// It is not run, and its answer carries a handle to repeat it with.
    #[default]
    Offer,
    /// It is run on a new session, and its answer carries the handle.
    Mint,
    /// It is run on the one session of its owner.
    Owner,
    /// It is not run.
    Refuse,
}

/// Which tools of our own stand beside those of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SessionTools {
    /// To start, look at and end a session, where tools take a handle.
    #[default]
    Basic,
    /// Also to list sessions and to switch between them, wherever sessions are kept.
    All,
    /// None.
    Off,
}

const UNIDENTIFIED: [(&str, Unidentified); 4] = [
    ("offer", Unidentified::Offer),
    ("mint", Unidentified::Mint),
    ("owner", Unidentified::Owner),
    ("refuse", Unidentified::Refuse),
];

const SESSION_TOOLS: [(&str, SessionTools); 3] =
    [("basic", SessionTools::Basic), ("all", SessionTools::All), ("off", SessionTools::Off)];

impl Identify {
    pub(super) fn read(table: &ConfigObject<'_>) -> ReadResult<Self> {
        let policy = table.read("unidentified", |it| it.choice(&UNIDENTIFIED))?;
        let tools = table.read("session_tools", |it| it.choice(&SESSION_TOOLS))?;
        Ok(Self {
            carriers: table.read("identify", carriers)?.unwrap_or_default(),
            hints: table.read("hints", hints)?.unwrap_or_default(),
            unidentified: policy.unwrap_or_default(),
            session_tools: tools.unwrap_or_default(),
        })
    }
}

fn carriers(spot: &ConfigValue<'_>) -> ReadResult<Carriers> {
    let table = spot.object_with_keys(keys::IDENTIFY)?;
    let own = Carriers::default();
    let on = |name, own| Ok(table.read(name, ConfigValue::boolean)?.unwrap_or(own));
    Ok(Carriers {
        argument: on("argument", own.argument)?,
        meta: on("meta", own.meta)?,
        header: on("header", own.header)?,
        path: on("path", own.path)?,
        connection: on("connection", own.connection)?,
        cookie: on("cookie", own.cookie)?,
        also: table.read("also", also)?.unwrap_or_default(),
    })
}

fn also(spot: &ConfigValue<'_>) -> ReadResult<Vec<CustomSource>> {
    let expected =
        "\"header:NAME\", \"meta:NAME\" or \"claim:NAME\", with a name of at most 64 characters";
    let one = |spot: &ConfigValue<'_>| {
        let text = spot.text()?;
        let wrong = || spot.error(Problem::Form { expected });
        let (kind, name) = text.split_once(':').ok_or_else(wrong)?;
        let printable = name.chars().all(|letter| !letter.is_control());
        if name.is_empty() || name.len() > 64 || !printable {
            return Err(wrong());
        }
        match kind {
            "header" => name.parse().map(CustomSource::Header).map_err(|_| wrong()),
            "meta" => Ok(CustomSource::Meta(name.to_owned())),
            "claim" => Ok(CustomSource::RequestContext(name.to_owned())),
            _ => Err(wrong()),
        }
    };
    spot.list()?.iter().map(one).collect()
}

fn hints(spot: &ConfigValue<'_>) -> ReadResult<Hints> {
    let known = HINTS.map(|hint| (hint, hint));
    Ok(Hints(spot.list()?.iter().map(|it| it.choice(&known)).collect::<ReadResult<_>>()?))
}
