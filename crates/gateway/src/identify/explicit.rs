//! Explicit names of sessions in a request.

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

/// Name with its place in the request.
pub(super) struct Placed {
    pub(super) name: Name,
    place: Cow<'static, str>,
}

/// All names of a request. Most requests have at most one, so no list is allocated.
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

/// Result of reading all explicit names of a request.
#[derive(Default)]
pub(super) struct Explicit {
    pub(super) said: Said,
    /// Whether the target is known to keep state.
    pub(super) kept: bool,
    /// Argument that must be removed before the tool gets the call.
    argument: Option<&'static str>,
    /// Whether `_meta` holds a session name that must be removed.
    meta: bool,
}

/// Reads the names of a request from every name source that is enabled. `own` is set for a call of a session tool.
///
/// # Errors
/// If a value in the place of a name is not a valid name.
pub(super) async fn read(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
    members: &[Member<'_>],
    own: bool,
) -> Result<Explicit, Refusal> {
    let carriers = &app.identify.configured.carriers;
    let mut found = Explicit::default();
    found.by_argument(app, context, own).await?;
    if carriers.meta {
        for value in meta::session(members) {
            found.meta = true;
            let place = "`_meta[\"dev.stayput/session\"]`";
            found.must_name(place, value.text().as_deref())?;
        }
    }
    if carriers.header {
        for value in header::values(context.headers, &header_names::STAYPUT_SESSION) {
            found.must_name("the header Stayput-Session", value.ok().as_deref())?;
        }
    }
    if let Some(key) = context.path_key {
        found.add("the path".into(), path::read(key))?;
    }
    for place in &carriers.also {
        for (place, name) in custom::read(place, (context.headers, context.claims), members) {
            found.add(place.into(), name)?;
        }
    }
    Ok(found)
}

impl Explicit {
    /// E39: only a value with the form of a name belongs to Stayput; every other value belongs to the tool.
    async fn by_argument(
        &mut self,
        app: &Arc<AppState>,
        context: &RequestContext<'_>,
        own: bool,
    ) -> Result<(), Refusal> {
        if !(own || app.takes_argument(context)) {
            return Ok(());
        }
        let Some(ours) = Ours::of(context.message) else { return Ok(()) };
        let argument = match own {
            true => Some(ARGUMENT),
            // Tools of a shared server take no handle.
            false => {
                let tool_view = match app.known_tool_view(context) {
                    None => Box::pin(app.tool_view(context)).await,
                    known => known,
                };
                let tool_view = tool_view.filter(|it| it.kept);
                self.kept = tool_view.is_some();
                tool_view.map(|it| it.argument.name())
            }
        };
        let Some(argument) = argument else { return Ok(()) };
        let Some(said) = ours.named(argument) else { return Ok(()) };
        if argument::is_empty(said) {
            // Models fill in arguments that they have no value for. No tool of this server has asked for this one.
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
        let refuse = |no: InvalidName| Refusal::caller(format!("Nothing was run: {place} {no}."));
        let name = name.map_err(refuse)?;
        self.said.push(Placed { name, place });
        Ok(())
    }

    /// Returns the message without the session name; `None` if it is unchanged.
    ///
    /// # Errors
    /// If the part to remove is ambiguous, so that JSON parsers do not agree on it.
    pub(super) fn rest(&self, message: &Message<'_>) -> Result<Option<RequestEdit>, Refusal> {
        if self.argument.is_none() && !self.meta {
            return Ok(None);
        }
        // The usual case: one argument, which occurs once.
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

/// Returns the one session that all names refer to.
///
/// # Errors
/// If they refer to different sessions.
pub(super) async fn one(
    app: &AppState,
    context: &RequestContext<'_>,
    said: &[Placed],
) -> Result<Name, Refusal> {
    let Some((first, others)) = said.split_first() else {
        return Err(Refusal::caller("Nothing names a session."));
    };
    for other in others.iter().filter(|other| !other.name.is_same(&first.name)) {
        let led = led_to(app, context, &first.name).await;
        if led.is_none() || led != led_to(app, context, &other.name).await {
            let (one, other) = (&first.place, &other.place);
            return Err(Refusal::caller(format!(
                "Nothing was run: {one} and {other} name two different sessions. Name one of them."
            )));
        }
    }
    Ok(first.name.clone())
}

/// Session that a name leads to, if it exists.
async fn led_to(app: &AppState, context: &RequestContext<'_>, name: &Name) -> Option<SessionId> {
    let found = match name {
        Name::Handle(handle) => app.sessions.find_by_handle(context.owner, handle).await,
        Name::Key(key) => app.sessions.find_by_key(context.owner, &Agent::none(), key).await,
    };
    found.ok().map(|session| session.id())
}
