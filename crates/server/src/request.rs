//! A request and the session that it belongs to.

pub(crate) mod parse;
pub(crate) mod scope;
mod session;

pub(crate) use self::{
    parse::RequestKind,
    session::{RequestInfo, RequestSession, SessionExtension},
};
