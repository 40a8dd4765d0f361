//! State of `/mcp`, where all servers are behind one path.

use crate::{
    catalog::{index::Indexes, names::Names},
    state::roster::Absences,
};

/// State of all servers together.
#[derive(Debug, Default)]
pub(crate) struct Aggregate {
    pub(crate) names: Names,
    pub(crate) indexes: Indexes,
    pub(crate) absences: Absences,
}

impl Aggregate {
    pub(crate) fn new<'a>(servers: impl IntoIterator<Item = &'a str>) -> Self {
        Self { names: Names::new(servers), ..Self::default() }
    }
}
