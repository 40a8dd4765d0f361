//! Names that somebody gave a session on purpose.

use std::{borrow::Cow, sync::Arc};

use stayput_core::{Agent, InvalidName, Name, SessionId};
use stayput_wire::{Message, meta as keys};

use super::{
    RequestContext, RequestEdit,
    argument::{self, Ours},
    header,
    meta::{self, Member},
    path,
    refusal::Refusal,
};
use crate::{
    catalog::tool_argument::ARGUMENT,
    identify::{custom, header_names},
    state::AppState,
};

/// A name, and where it stands.
pub(super) struct Placed {
    pub(super) name: Name,
    place: Cow<'static, str>,
}

/// All names of a request. Most have one at most, and no list.
#[derive(Default)]
pub(super) enum Said {
    #[default]
    Nothing,
    Once(Placed),
    More(Vec<Placed>),
}

impl Said {
    fn push(&mut self, said: Placed) {
        *self = match std::mem::take(self) {
            Self::Nothing => Self::Once(said),
            Self::Once(first) => Self::More(vec![first, said]),
            Self::More(mut all) => {
                all.push(said);
                Self::More(all)
            }
        };
    }

    pub(super) fn into_all(self) -> Vec<Placed> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Once(said) => vec![said],
            Self::More(all) => all,
        }
    }
}

/// All explicit names of a request.
#[derive(Default)]
pub(super) struct Explicit {
    pub(super) said: Said,
    /// Whether it is known that state is kept there.
    pub(super) kept: bool,
    /// The argument that is not for the tool.
    argument: Option<&'static str>,
    /// Whether `_meta` holds what is not for the server.
    meta: bool,
}

/// The names of a request, from every carrier that is on. `own` is set for a call of one of our tools.
///
/// # Errors
/// If something stands where a name is expected, and is none.
pub(super) async fn read(
    app: &Arc<AppState>,
    claim: &RequestContext<'_>,
    members: &[Member<'_>],
    own: bool,
) -> Result<Explicit, Refusal> {
    let carriers = &app.identify.configured.carriers;
    let mut found = Explicit::default();
    found.by_argument(app, claim, own).await?;
    if carriers.meta {
        for value in meta::session(members) {
            found.meta = true;
            let place = "`_meta[\"dev.stayput/session\"]`";
            found.must_name(place, value.text().as_deref())?;
        }
    }
    if carriers.header {
        for value in header::values(claim.headers, &header_names::STAYPUT_SESSION) {
            found.must_name("the header Stayput-Session", value.ok().as_deref())?;
        }
    }
    if let Some(key) = claim.path_key {
        found.add("the path".into(), path::read(key))?;
    }
    for place in &carriers.also {
        for (place, name) in custom::read(place, (claim.headers, claim.claims), members) {
            found.add(place.into(), name)?;
        }
    }
    Ok(found)
}

impl Explicit {
    /// E39: only what has the form of a name is ours; everything else is the tool's own.
    async fn by_argument(
        &mut self,
        app: &Arc<AppState>,
        claim: &RequestContext<'_>,
        own: bool,
    ) -> Result<(), Refusal> {
        if !(own || app.takes_argument(claim)) {
            return Ok(());
        }
        let Some(ours) = Ours::of(claim.message) else { return Ok(()) };
        let argument = match own {
            true => Some(ARGUMENT),
            // What everybody shares takes no handle.
            false => {
                let sight = match app.sight_as_known(claim) {
                    None => Box::pin(app.sight(claim)).await,
                    known => known,
                };
                let sight = sight.filter(|it| it.kept);
                self.kept = sight.is_some();
                sight.map(|it| it.argument.name())
            }
        };
        let Some(argument) = argument else { return Ok(()) };
        let Some(said) = ours.named(argument) else { return Ok(()) };
        if argument::is_empty(said) {
            // Models fill in what they have nothing for. No tool of this server asked for it.
            self.argument = Some(argument);
        } else if let Some(name) = said.text().as_deref().and_then(Name::parse) {
            self.argument = Some(argument);
            self.add(argument::place(argument).into(), name)?;
        }
        Ok(())
    }

    fn must_name(&mut self, place: &'static str, text: Option<&str>) -> Result<(), Refusal> {
        let Some(name) = text.and_then(Name::parse) else {
            let sentence = "must be a session id (`sp_…`) as it was given out, or `key:` and a name of your choice";
            return Err(Refusal::caller(format!("Nothing was run: {place} {sentence}.")));
        };
        self.add(place.into(), name)
    }

    fn add(
        &mut self,
        place: Cow<'static, str>,
        name: Result<Name, InvalidName>,
    ) -> Result<(), Refusal> {
        let told = |no: InvalidName| Refusal::caller(format!("Nothing was run: {place} {no}."));
        let name = name.map_err(told)?;
        self.said.push(Placed { name, place });
        Ok(())
    }

    /// The message without what only named the session; `None` if it is as it was.
    ///
    /// # Errors
    /// If what has to be taken out stands there in a way that readers do not agree on.
    pub(super) fn rest(&self, message: &Message<'_>) -> Result<Option<RequestEdit>, Refusal> {
        if self.argument.is_none() && !self.meta {
            return Ok(None);
        }
        // As it nearly always is: one argument, once.
        let alone = self.argument.filter(|_| !self.meta);
        if let Some(cut) = alone.and_then(|argument| message.without_argument(argument)) {
            return Ok(Some(RequestEdit::Cut(cut)));
        }
        let mut edits = message.edit();
        if let Some(argument) = self.argument {
            edits.remove(&["params", "arguments", argument]);
        }
        if self.meta {
            let alone = |(name, _): &Member<'_>| name == keys::SESSION;
            match meta::members(message).iter().all(alone) {
                true => edits.remove(&["params", keys::META]),
                false => edits.remove(&["params", keys::META, keys::SESSION]),
            };
        }
        let text =
            edits.apply().map_err(|error| Refusal::caller(format!("Nothing was run: {error}.")))?;
        Ok(Some(RequestEdit::Edited(text.into_owned())))
    }
}

/// The one session that all of them name.
///
/// # Errors
/// If they do not agree.
pub(super) async fn one(
    app: &AppState,
    claim: &RequestContext<'_>,
    said: &[Placed],
) -> Result<Name, Refusal> {
    let Some((first, others)) = said.split_first() else {
        return Err(Refusal::caller("Nothing names a session."));
    };
    for other in others.iter().filter(|other| !other.name.is_same(&first.name)) {
        let led = led_to(app, claim, &first.name).await;
        if led.is_none() || led != led_to(app, claim, &other.name).await {
            let (one, other) = (&first.place, &other.place);
            return Err(Refusal::caller(format!(
                "Nothing was run: {one} and {other} name two different sessions. Name one of them."
            )));
        }
    }
    Ok(first.name.clone())
}

/// The session that a name leads to, if there is one already.
async fn led_to(app: &AppState, claim: &RequestContext<'_>, name: &Name) -> Option<SessionId> {
    let found = match name {
        Name::Handle(handle) => app.sessions.find_by_handle(claim.owner, handle).await,
        Name::Key(key) => app.sessions.find_by_key(claim.owner, &Agent::none(), key).await,
    };
    found.ok().map(|session| session.id())
}
