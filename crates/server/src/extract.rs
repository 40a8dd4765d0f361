//! State as a parameter of handlers.

use rmcp::{
    ErrorData, RoleServer,
    handler::server::common::{AsRequestContext, FromContextPart},
    model::Extensions,
    service::RequestContext,
};

use crate::{Error, State, visit::Carried};

impl State {
    /// The state of the request that a handler was given the context of: for resources and whatever else gets no
    /// parameters of its own.
    ///
    /// # Errors
    /// [`Error::NotKept`] where neither the layer nor the transport of a keeper is around the handler.
    pub fn of(context: &RequestContext<RoleServer>) -> Result<Self, Error> {
        carried(&context.extensions).map(|it| Self::new(it.0.clone())).ok_or(Error::NotKept)
    }
}

/// What came with a request: beside it, or in what came over HTTP.
pub(crate) fn carried(extensions: &Extensions) -> Option<&Carried> {
    let over_http = || extensions.get::<http::request::Parts>()?.extensions.get::<Carried>();
    extensions.get::<Carried>().or_else(over_http)
}

impl<C: AsRequestContext> FromContextPart<C> for State {
    fn from_context_part(context: &mut C) -> Result<Self, ErrorData> {
        Ok(Self::of(context.as_request_context())?)
    }
}

/// The state of a session, if the request names one: for handlers that can do without. (An `Option` cannot be
/// it, because neither that nor the trait for parameters is ours.)
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs)]
pub struct MaybeState(pub Option<State>);

impl<C: AsRequestContext> FromContextPart<C> for MaybeState {
    fn from_context_part(context: &mut C) -> Result<Self, ErrorData> {
        let state = State::of(context.as_request_context()).ok();
        Ok(Self(state.filter(State::is_named)))
    }
}

#[cfg(feature = "axum")]
mod axum {
    use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
    use http::request::Parts;

    use super::{Carried, Error, State};

    impl<S: Sync> FromRequestParts<S> for State {
        type Rejection = Error;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Error> {
            let carried = parts.extensions.get::<Carried>().ok_or(Error::NotKept)?;
            Ok(Self::new(carried.0.clone()))
        }
    }

    impl<S: Sync> OptionalFromRequestParts<S> for State {
        type Rejection = Error;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Error> {
            let carried = parts.extensions.get::<Carried>().ok_or(Error::NotKept)?;
            Ok(Some(Self::new(carried.0.clone())).filter(Self::is_named))
        }
    }
}
