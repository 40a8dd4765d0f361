//! State of `/mcp`, where all servers are behind one path.

use crate::{
    catalog::{index::Indexes, names::Names},
    state::roster::ServerOutages,
};

/// State of all servers together.
#[derive(Debug, Default)]
pub(crate) struct Aggregate {
    pub(crate) names: Names,
    pub(crate) indexes: Indexes,
    pub(crate) absences: ServerOutages,
}

impl Aggregate {
    pub(crate) fn new<'a>(servers: impl IntoIterator<Item = &'a str>) -> Self {
        Self { names: Names::new(servers), ..Self::default() }
    }
}
