//! Requests that a client can answer.

use stayput_wire::Raw;

/// Requests of a server that the client of a call can answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientCapabilities {
    /// `roots/list`.
    pub roots: bool,
    /// `sampling/createMessage`.
    pub sampling: bool,
    /// `elicitation/create`.
    pub elicitation: bool,
}

impl ClientCapabilities {
    /// Parses the `capabilities` of a client. Unreadable text declares nothing.
    #[must_use]
    pub fn parse(capabilities: &str) -> Self {
        let Ok(raw) = Raw::parse(capabilities) else { return Self::default() };
        let has = |name| raw.find(&[name]).is_some_and(Raw::is_object);
        Self { roots: has("roots"), sampling: has("sampling"), elicitation: has("elicitation") }
    }

    /// Returns what a client has to declare to receive `method`. Empty for a method without a capability.
    pub(crate) fn needed(method: &str) -> Self {
        Self {
            roots: method == "roots/list",
            sampling: method == "sampling/createMessage",
            elicitation: method == "elicitation/create",
        }
    }

    /// Whether both have a capability in common.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        (self.roots && other.roots)
            || (self.sampling && other.sampling)
            || (self.elicitation && other.elicitation)
    }

    pub(crate) fn includes(self, needed: Self) -> bool {
        needed != Self::default()
            && (self.roots || !needed.roots)
            && (self.sampling || !needed.sampling)
            && (self.elicitation || !needed.elicitation)
    }
}
