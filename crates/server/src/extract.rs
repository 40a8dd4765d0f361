//! `State` as a parameter of handlers.

use rmcp::{
    ErrorData, RoleServer,
    handler::server::common::{AsRequestContext, FromContextPart},
    model::Extensions,
    service::RequestContext,
};

use crate::{Error, State, request::SessionExtension};

impl State {
    /// Returns the state of the request that belongs to `context`. For resources and other handlers without extracted
    /// parameters.
    ///
    /// # Errors
    /// Returns [`Error::LayerMissing`] if the handler runs outside of
    /// [`ServerSessions::layer`](crate::ServerSessions::layer) and
    /// [`ServerSessions::wrap_transport`](crate::ServerSessions::wrap_transport).
    pub fn from_context(context: &RequestContext<RoleServer>) -> Result<Self, Error> {
        session_extension(&context.extensions)
            .map(|it| Self::new(it.0.clone()))
            .ok_or(Error::LayerMissing)
    }
}

/// Finds the session extension of a request: in the HTTP request parts, or else in the extensions themselves.
pub(crate) fn session_extension(extensions: &Extensions) -> Option<&SessionExtension> {
    match extensions.get::<http::request::Parts>() {
        Some(parts) => parts.extensions.get::<SessionExtension>(),
        None => extensions.get::<SessionExtension>(),
    }
}

impl<C: AsRequestContext> FromContextPart<C> for State {
    fn from_context_part(context: &mut C) -> Result<Self, ErrorData> {
        Ok(Self::from_context(context.as_request_context())?)
    }
}

/// State of the session if the request names one. For handlers that also work without a session.
///
/// In axum, use `Option<State>`. rmcp has one trait for all parameters and none for optional ones, and the orphan
/// rule forbids other crates to implement it for `Option`. So this is a type of its own: `MaybeState(state):
/// MaybeState`.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs)]
pub struct MaybeState(pub Option<State>);

impl<C: AsRequestContext> FromContextPart<C> for MaybeState {
    fn from_context_part(context: &mut C) -> Result<Self, ErrorData> {
        let state = State::from_context(context.as_request_context()).ok();
        Ok(Self(state.filter(State::is_identified)))
    }
}

#[cfg(feature = "axum")]
mod axum {
    use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
    use http::request::Parts;

    use super::{Error, SessionExtension, State};

    impl<S: Sync> FromRequestParts<S> for State {
        type Rejection = Error;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Error> {
            let carried = parts.extensions.get::<SessionExtension>().ok_or(Error::LayerMissing)?;
            Ok(Self::new(carried.0.clone()))
        }
    }

    impl<S: Sync> OptionalFromRequestParts<S> for State {
        type Rejection = Error;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Error> {
            let carried = parts.extensions.get::<SessionExtension>().ok_or(Error::LayerMissing)?;
            Ok(Some(Self::new(carried.0.clone())).filter(Self::is_identified))
        }
    }
}

/// Only rmcp can make an `Option` a parameter: neither for one context nor for all, whatever type is inside.
///
/// ```compile_fail,E0117
/// use rmcp::{ErrorData, handler::server::{common::FromContextPart, tool::ToolCallContext}};
/// struct Ours;
/// impl<S> FromContextPart<ToolCallContext<'_, S>> for Option<Ours> {
///     fn from_context_part(_: &mut ToolCallContext<'_, S>) -> Result<Self, ErrorData> { Ok(None) }
/// }
/// ```
///
/// ```compile_fail,E0210
/// use rmcp::{ErrorData, handler::server::common::FromContextPart};
/// struct Ours;
/// impl<C> FromContextPart<C> for Option<Ours> {
///     fn from_context_part(_: &mut C) -> Result<Self, ErrorData> { Ok(None) }
/// }
/// ```
///
/// The compiler refuses the `Option` only:
///
/// ```
/// use rmcp::{ErrorData, handler::server::common::FromContextPart};
/// struct Ours;
/// impl<C> FromContextPart<C> for Ours {
///     fn from_context_part(_: &mut C) -> Result<Self, ErrorData> { Ok(Ours) }
/// }
/// ```
#[cfg(doctest)]
struct NoOption;
