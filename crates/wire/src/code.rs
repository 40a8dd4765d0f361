//! Codes of JSON-RPC errors.

use std::{fmt, ops::RangeInclusive};

use crate::Era;

/// The code of a JSON-RPC error.
///
/// ```
/// use stayput_wire::{Code, Era};
///
/// assert_eq!(Code::METHOD_NOT_FOUND.http_status(Era::Modern), 404);
/// assert_eq!(Code::STATE_LOST.to_string(), "-31001");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub i64);

impl Code {
    /// The bytes are not JSON.
    pub const PARSE_ERROR: Self = Self(-32700);
    /// It is JSON but not a message, or not one that may come now.
    pub const INVALID_REQUEST: Self = Self(-32600);
    /// Nobody here knows that method.
    pub const METHOD_NOT_FOUND: Self = Self(-32601);
    /// The method is known and cannot be called so: an unknown tool, a bad cursor, required `_meta`
    /// that is missing, and for modern clients a resource that is not there.
    pub const INVALID_PARAMS: Self = Self(-32602);
    /// Something broke on the way.
    pub const INTERNAL_ERROR: Self = Self(-32603);

    /// Legacy: the resource is not there. Never sent to a modern client.
    pub const RESOURCE_NOT_FOUND: Self = Self(-32002);
    /// Legacy: the user has to visit a URL first. Never sent to a modern client.
    pub const URL_ELICITATION_REQUIRED: Self = Self(-32042);

    /// Modern: a header is missing, malformed, or says something else than the body.
    pub const HEADER_MISMATCH: Self = Self(-32020);
    /// Modern: the request needs a capability that its client did not declare.
    pub const MISSING_CAPABILITY: Self = Self(-32021);
    /// Modern: the revision of the request is not served here.
    pub const UNSUPPORTED_VERSION: Self = Self(-32022);

    /// Ours: the state behind the session was lost, so the call did not run on what the caller
    /// believes is there. Its data are `{server, generation, may_have_run, reason}`.
    pub const STATE_LOST: Self = Self(-31001);

    /// What JSON-RPC keeps for itself; codes of an application stay out of it.
    pub const RESERVED: RangeInclusive<i64> = -32768..=-32000;

    /// What only the specification of MCP may give a meaning to.
    pub const SPECIFIED: RangeInclusive<i64> = -32099..=-32020;

    /// Whether the code tells that a server is of the modern era: no older one answers so.
    #[must_use]
    pub fn is_modern(self) -> bool {
        [Self::HEADER_MISMATCH, Self::MISSING_CAPABILITY, Self::UNSUPPORTED_VERSION].contains(&self)
    }

    /// The HTTP status that an error with this code is answered with.
    ///
    /// The modern specification leaves [`Code::INVALID_PARAMS`] open but for `_meta` that is missing,
    /// where whoever finds that says 400; here it is 200, as the error is the method's answer.
    #[must_use]
    pub fn http_status(self, era: Era) -> u16 {
        match self {
            Self::PARSE_ERROR | Self::INVALID_REQUEST => 400,
            Self::METHOD_NOT_FOUND if era == Era::Modern => 404,
            _ if self.is_modern() => 400,
            _ => 200,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant 9: no reserved code is used for something of our own.
    #[test]
    fn our_code_is_nobody_elses() {
        assert!(!Code::RESERVED.contains(&Code::STATE_LOST.0));
        assert!(Code::SPECIFIED.contains(&Code::HEADER_MISMATCH.0));
        assert!(Code::RESERVED.contains(Code::SPECIFIED.start()));
    }

    #[test]
    fn the_status_map_is_that_of_the_specification() {
        for (code, modern, legacy) in [
            (Code::PARSE_ERROR, 400, 400),
            (Code::INVALID_REQUEST, 400, 400),
            (Code::METHOD_NOT_FOUND, 404, 200),
            (Code::INVALID_PARAMS, 200, 200),
            (Code::INTERNAL_ERROR, 200, 200),
            (Code::HEADER_MISMATCH, 400, 400),
            (Code::MISSING_CAPABILITY, 400, 400),
            (Code::UNSUPPORTED_VERSION, 400, 400),
            (Code::STATE_LOST, 200, 200),
            (Code(-32050), 200, 200),
        ] {
            let status = (code.http_status(Era::Modern), code.http_status(Era::Legacy));
            assert_eq!(status, (modern, legacy), "{code}");
        }
    }
}
