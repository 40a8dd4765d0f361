//! What a client can be asked.

use stayput_wire::Raw;

/// What the client behind a call can be asked by the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Declares {
    /// `roots/list`.
    pub roots: bool,
    /// `sampling/createMessage`.
    pub sampling: bool,
    /// `elicitation/create`.
    pub elicitation: bool,
}

impl Declares {
    /// What the `capabilities` of a client declare. What cannot be read declares nothing.
    #[must_use]
    pub fn of(capabilities: &str) -> Self {
        let Ok(raw) = Raw::parse(capabilities) else { return Self::default() };
        let has = |name| raw.find(&[name]).is_some_and(Raw::is_object);
        Self { roots: has("roots"), sampling: has("sampling"), elicitation: has("elicitation") }
    }

    /// What a client has to declare to be asked for `method`; nothing for a method that no
    /// capability speaks of.
    pub(crate) fn needed(method: &str) -> Self {
        Self {
            roots: method == "roots/list",
            sampling: method == "sampling/createMessage",
            elicitation: method == "elicitation/create",
        }
    }

    pub(crate) fn includes(self, needed: Self) -> bool {
        needed != Self::default()
            && (self.roots || !needed.roots)
            && (self.sampling || !needed.sampling)
            && (self.elicitation || !needed.elicitation)
    }
}
