//! What can be chosen for one server: `stayput` in its entry.

use stayput_upstream::{EraChoice, Isolation, Options, Timeouts, Warm, process::Grace};

use crate::{
    admission::For,
    keys,
    spot::{Read, Spot, Table},
    tools::Tools,
};

/// What becomes of calls that a loss of state has hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// They fail, and the caller decides.
    #[default]
    Error,
    /// What surely did not run is sent again, once, on the new state.
    Restart,
}

/// Which clients get an argument for the handle of a session in a server's tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handles {
    /// Those whose connection is not a conversation.
    #[default]
    Auto,
    /// All.
    Always,
    /// None.
    Never,
}

/// What was read, with defaults for the rest.
#[derive(Default)]
pub(crate) struct Choices {
    pub(crate) options: Options,
    pub(crate) inherit: Vec<String>,
    pub(crate) on_loss: OnLoss,
    pub(crate) tools: Tools,
    pub(crate) handles: Handles,
    pub(crate) whom: For,
    /// Which keys have no effect on a server that is reached by URL, or on a process.
    pub(crate) only_process: Vec<&'static str>,
    pub(crate) only_url: Vec<&'static str>,
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

impl Choices {
    pub(crate) fn read(spot: &Spot<'_>) -> Read<Self> {
        let table = spot.known(keys::SERVER)?;
        let own = Options::default();
        let options = Options {
            era: table.read("era", |it| it.choice(&ERAS))?.unwrap_or(own.era),
            isolation: table.read("isolation", |it| it.choice(&ISOLATIONS))?,
            timeouts: timeouts(&table)?,
            grace: table.read("grace", grace)?.unwrap_or(own.grace),
            warm: table.read("warm", warm)?.unwrap_or(own.warm),
            delete_on_end: table.read("delete_on_end", Spot::boolean)?.unwrap_or(own.delete_on_end),
        };
        let there = |names: &[&'static str]| {
            names.iter().copied().filter(|name| table.get(name).is_some()).collect()
        };
        Ok(Self {
            options,
            inherit: table.read("inherit", Spot::texts)?.unwrap_or_default(),
            on_loss: table.read("on_loss", |it| it.choice(&ON_LOSS))?.unwrap_or_default(),
            tools: table.read("tools", tools)?.unwrap_or_default(),
            handles: table.read("handles", |it| it.choice(&HANDLES))?.unwrap_or_default(),
            whom: table.read("for", For::read)?.unwrap_or_default(),
            only_process: there(&["inherit", "grace"]),
            only_url: there(&["delete_on_end"]),
        })
    }
}

fn timeouts(table: &Table<'_>) -> Read<Timeouts> {
    let own = Timeouts::default();
    let call = table.read("timeout", Spot::duration)?.unwrap_or(own.call);
    Ok(Timeouts {
        open: table.read("startup_timeout", Spot::duration)?.unwrap_or(own.open),
        call,
        // A call that may take longer may also be silent for longer.
        first_byte: own.first_byte.max(call),
        idle: own.idle.max(call),
        ..own
    })
}

/// One span for each step: a server that tidies up does so at the end of its input or on TERM.
fn grace(spot: &Spot<'_>) -> Read<Grace> {
    let span = spot.duration()?;
    Ok(Grace { quit: span, term: span })
}

fn warm(spot: &Spot<'_>) -> Read<Warm> {
    let own = Warm::default();
    if !spot.is_object() {
        return Ok(Warm { count: spot.count()?, ..own });
    }
    let table = spot.known(keys::WARM)?;
    Ok(Warm {
        count: table.read("count", Spot::count)?.unwrap_or(own.count),
        max_age: table.read("max_age", Spot::duration)?.unwrap_or(own.max_age),
    })
}

fn tools(spot: &Spot<'_>) -> Read<Tools> {
    let table = spot.known(keys::TOOLS)?;
    Ok(Tools {
        allow: table.read("allow", Spot::texts)?,
        deny: table.read("deny", Spot::texts)?.unwrap_or_default(),
    })
}
