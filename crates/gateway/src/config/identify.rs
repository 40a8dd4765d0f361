//! Session identification: `identify`, `hints`, `unidentified` and `session_tools`.

use stayput_config::{ConfigObject, ConfigValue, Problem, ReadResult};
use stayput_identify::{CustomSource, HINT_SOURCES};

use super::keys;

/// Rules that find the session of a request, and the policy for requests without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identify {
    /// Name sources: places of a request that can name its session.
    pub(crate) name_sources: NameSources,
    /// Hosts whose conversation ids are used.
    pub(crate) hints: Hints,
    /// Policy for calls without a session.
    pub(crate) unidentified: UnidentifiedPolicy,
    /// Session tools that are listed with those of a server.
    pub(crate) session_tools: SessionTools,
}

/// Name sources: places of a request that can name its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameSources {
    /// Argument of a tool.
    pub(crate) argument: bool,
    /// `_meta["dev.stayput/session"]`.
    pub(crate) meta: bool,
    /// Header `Stayput-Session`.
    pub(crate) header: bool,
    /// Path, after `/~`.
    pub(crate) path: bool,
    /// Default session of the connection.
    pub(crate) connection: bool,
    /// Cookie `mcp_session_id`.
    pub(crate) cookie: bool,
    /// Custom sources that hold a conversation id.
    pub(crate) custom: Vec<CustomSource>,
}

impl Default for NameSources {
    fn default() -> Self {
        Self {
            argument: true,
            meta: true,
            header: true,
            path: true,
            connection: true,
            cookie: false,
            custom: Vec::new(),
        }
    }
}

/// Hosts whose conversation ids are used, by the source of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hints(pub(crate) Vec<&'static str>);

impl Default for Hints {
    fn default() -> Self {
        Self(HINT_SOURCES.to_vec())
    }
}

/// Policy for a call without a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum UnidentifiedPolicy {
    /// The call is not run. Its answer offers a handle to repeat it with.
    #[default]
    Offer,
    /// The call runs on a new session. Its answer contains the handle.
    Mint,
    /// The call runs on the one session of its owner.
    Owner,
    /// The call is not run.
    Refuse,
}

/// Session tools that are listed with those of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SessionTools {
    /// Tools to start, inspect and end a session, where tools take a handle.
    #[default]
    Basic,
    /// Tools to list and switch sessions as well, on every stateful server.
    All,
    /// No tools.
    Off,
}

const UNIDENTIFIED: [(&str, UnidentifiedPolicy); 4] = [
    ("offer", UnidentifiedPolicy::Offer),
    ("mint", UnidentifiedPolicy::Mint),
    ("owner", UnidentifiedPolicy::Owner),
    ("refuse", UnidentifiedPolicy::Refuse),
];

const SESSION_TOOLS: [(&str, SessionTools); 3] =
    [("basic", SessionTools::Basic), ("all", SessionTools::All), ("off", SessionTools::Off)];

impl Identify {
    pub(super) fn read(table: &ConfigObject<'_>) -> ReadResult<Self> {
        let policy = table.read("unidentified", |it| it.choice(&UNIDENTIFIED))?;
        let tools = table.read("session_tools", |it| it.choice(&SESSION_TOOLS))?;
        Ok(Self {
            name_sources: table.read("identify", name_sources)?.unwrap_or_default(),
            hints: table.read("hints", hints)?.unwrap_or_default(),
            unidentified: policy.unwrap_or_default(),
            session_tools: tools.unwrap_or_default(),
        })
    }
}

fn name_sources(setting: &ConfigValue<'_>) -> ReadResult<NameSources> {
    let table = setting.object_with_keys(keys::IDENTIFY)?;
    let own = NameSources::default();
    let on = |name, own| Ok(table.read(name, ConfigValue::boolean)?.unwrap_or(own));
    Ok(NameSources {
        argument: on("argument", own.argument)?,
        meta: on("meta", own.meta)?,
        header: on("header", own.header)?,
        path: on("path", own.path)?,
        connection: on("connection", own.connection)?,
        cookie: on("cookie", own.cookie)?,
        custom: table.read("custom", custom)?.unwrap_or_default(),
    })
}

fn custom(setting: &ConfigValue<'_>) -> ReadResult<Vec<CustomSource>> {
    let expected =
        "\"header:NAME\", \"meta:NAME\" or \"claim:NAME\", with a name of at most 64 characters";
    let one = |setting: &ConfigValue<'_>| {
        let source = CustomSource::parse(&setting.text()?);
        source.ok_or_else(|| setting.error(Problem::Form { expected }))
    };
    setting.list()?.iter().map(one).collect()
}

fn hints(setting: &ConfigValue<'_>) -> ReadResult<Hints> {
    let known = HINT_SOURCES.map(|hint| (hint, hint));
    Ok(Hints(setting.list()?.iter().map(|it| it.choice(&known)).collect::<ReadResult<_>>()?))
}
