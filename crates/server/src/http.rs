//! Sessions over HTTP: the tower layer, and rmcp's service with session manager, session store and event log.

mod body;
mod body_reader;
mod event_log;
mod future;
mod layer;
mod service;
mod session_manager;
mod tool_list;

pub use self::{
    body::ResponseBody,
    future::ResponseFuture,
    layer::{SessionLayer, SessionService},
    service::HttpService,
    session_manager::{CountingTransport, HttpSessionManager},
};
