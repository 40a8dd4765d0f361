//! Options of one server: `stayput` in its entry.

use std::path::PathBuf;

use stayput_upstream::{EraChoice, Grace, Isolation, Options, SpareOptions, Timeouts, Trust};

use crate::{
    claim_filter::ClaimFilter,
    error::Problem,
    keys,
    tool_filter::ToolFilter,
    value::{ConfigObject, ConfigValue, ReadResult},
};

/// Reaction to calls that a loss of state affects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// The call fails, and the caller decides.
    #[default]
    Error,
    /// A call that certainly did not run is sent again, once, on the new state.
    Restart,
}

/// Clients for which a server's tools get an argument for the session handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handles {
    /// Clients whose connection is not a conversation.
    #[default]
    Auto,
    /// All clients.
    Always,
    /// No clients.
    Never,
}

/// Options of a server, with defaults.
#[derive(Default)]
pub(crate) struct ServerOptions {
    pub(crate) upstream: Options,
    pub(crate) inherit: Vec<String>,
    /// Authorities that are trusted beside those of the system.
    pub(crate) trust: Trust,
    pub(crate) on_loss: OnLoss,
    pub(crate) tools: ToolFilter,
    pub(crate) handles: Handles,
    pub(crate) claims: ClaimFilter,
    /// Keys that have no effect on a server with a URL, and on a process.
    pub(crate) only_process: Vec<&'static str>,
    pub(crate) only_url: Vec<&'static str>,
    /// Whether `warm` is given, even if it asks for no process.
    pub(crate) has_warm: bool,
}

const ISOLATIONS: [(&str, Isolation); 3] = [
    ("per-session", Isolation::PerSession),
    ("per-owner", Isolation::PerOwner),
    ("shared", Isolation::Shared),
];

const ERAS: [(&str, EraChoice); 3] =
    [("auto", EraChoice::Auto), ("legacy", EraChoice::Legacy), ("modern", EraChoice::Modern)];

const ON_LOSS: [(&str, OnLoss); 2] = [("error", OnLoss::Error), ("restart", OnLoss::Restart)];

const HANDLES: [(&str, Handles); 3] =
    [("auto", Handles::Auto), ("always", Handles::Always), ("never", Handles::Never)];

impl ServerOptions {
    pub(crate) fn read(value: &ConfigValue<'_>) -> ReadResult<Self> {
        let object = value.object_with_keys(keys::SERVER)?;
        let defaults = Options::default();
        let upstream = Options {
            era: object.read("era", |it| it.choice(&ERAS))?.unwrap_or(defaults.era),
            isolation: object.read("isolation", |it| it.choice(&ISOLATIONS))?,
            timeouts: timeouts(&object)?,
            grace: object.read("grace", grace)?.unwrap_or(defaults.grace),
            warm: object.read("warm", warm)?.unwrap_or(defaults.warm),
            delete_on_end: object
                .read("delete_on_end", ConfigValue::boolean)?
                .unwrap_or(defaults.delete_on_end),
        };
        let present = |names: &[&'static str]| {
            names.iter().copied().filter(|name| object.get(name).is_some()).collect()
        };
        Ok(Self {
            upstream,
            inherit: object.read("inherit", ConfigValue::texts)?.unwrap_or_default(),
            trust: object.read("ca_file", trust)?.unwrap_or_default(),
            on_loss: object.read("on_loss", |it| it.choice(&ON_LOSS))?.unwrap_or_default(),
            tools: object.read("tools", tools)?.unwrap_or_default(),
            handles: object.read("handles", |it| it.choice(&HANDLES))?.unwrap_or_default(),
            claims: object.read("for", ClaimFilter::read)?.unwrap_or_default(),
            only_process: present(&["inherit", "grace"]),
            only_url: present(&["delete_on_end", "ca_file"]),
            has_warm: object.get("warm").is_some(),
        })
    }
}

/// Reads a file of authorities, so that an unusable one is reported at its place.
fn trust(value: &ConfigValue<'_>) -> ReadResult<Trust> {
    let path: PathBuf =
        value.context.path(&value.text()?).map_err(|problem| value.error(problem))?;
    let trust = Trust { ca_files: vec![path], ..Trust::default() };
    trust.check().map_err(|error| {
        value.error(Problem::Other(format!("{error}; name a file of certificates in PEM form")))
    })?;
    Ok(trust)
}

fn timeouts(object: &ConfigObject<'_>) -> ReadResult<Timeouts> {
    let defaults = Timeouts::default();
    let call = object.read("timeout", ConfigValue::duration)?.unwrap_or(defaults.call);
    Ok(Timeouts {
        open: object.read("startup_timeout", ConfigValue::duration)?.unwrap_or(defaults.open),
        call,
        // A call with a longer timeout may also be silent for longer.
        first_byte: defaults.first_byte.max(call),
        idle: defaults.idle.max(call),
        ..defaults
    })
}

/// Reads `grace`, the time of both steps of an end: after the end of the input, and after TERM. A server cleans up in one
/// of them.
fn grace(value: &ConfigValue<'_>) -> ReadResult<Grace> {
    let span = value.duration()?;
    Ok(Grace { quit: span, term: span })
}

fn warm(value: &ConfigValue<'_>) -> ReadResult<SpareOptions> {
    let defaults = SpareOptions::default();
    if !value.is_object() {
        return Ok(SpareOptions { count: value.count()?, ..defaults });
    }
    let object = value.object_with_keys(keys::WARM)?;
    Ok(SpareOptions {
        count: object.read("count", ConfigValue::count)?.unwrap_or(defaults.count),
        max_age: object.read("max_age", ConfigValue::duration)?.unwrap_or(defaults.max_age),
    })
}

fn tools(value: &ConfigValue<'_>) -> ReadResult<ToolFilter> {
    let object = value.object_with_keys(keys::TOOLS)?;
    Ok(ToolFilter {
        allow: object.read("allow", ConfigValue::texts)?,
        deny: object.read("deny", ConfigValue::texts)?.unwrap_or_default(),
    })
}
