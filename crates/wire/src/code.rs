//! Codes of JSON-RPC errors.

use std::{fmt, ops::RangeInclusive};

use crate::Era;

/// Code of a JSON-RPC error.
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
    /// The JSON is no message, or a message that is not allowed now.
    pub const INVALID_REQUEST: Self = Self(-32600);
    /// The method is unknown.
    pub const METHOD_NOT_FOUND: Self = Self(-32601);
    /// The parameters are invalid: unknown tool, bad cursor, missing required `_meta`, and for modern clients an
    /// unknown resource.
    pub const INVALID_PARAMS: Self = Self(-32602);
    /// Internal failure.
    pub const INTERNAL_ERROR: Self = Self(-32603);

    /// Legacy: the resource is unknown. Never sent to a modern client.
    pub const RESOURCE_NOT_FOUND: Self = Self(-32002);
    /// Legacy: the user has to visit a URL first. Never sent to a modern client.
    pub const URL_ELICITATION_REQUIRED: Self = Self(-32042);

    /// Modern: a header is missing, malformed, or contradicts the body.
    pub const HEADER_MISMATCH: Self = Self(-32020);
    /// Modern: the request needs a capability that its client did not declare.
    pub const MISSING_CAPABILITY: Self = Self(-32021);
    /// Modern: the revision of the request is not supported.
    pub const UNSUPPORTED_VERSION: Self = Self(-32022);

    /// Stayput: the state of the session was lost, and the call did not run. Its data are `{server, generation,
    /// may_have_run, reason}`.
    pub const STATE_LOST: Self = Self(-31001);

    /// Codes reserved by JSON-RPC. Applications must not use them.
    pub const RESERVED: RangeInclusive<i64> = -32768..=-32000;

    /// Codes reserved by the MCP specification.
    pub const SPECIFIED: RangeInclusive<i64> = -32099..=-32020;

    /// Returns whether the code identifies a modern server. No legacy server uses it.
    #[must_use]
    pub fn is_modern(self) -> bool {
        [Self::HEADER_MISMATCH, Self::MISSING_CAPABILITY, Self::UNSUPPORTED_VERSION].contains(&self)
    }

    /// Returns the HTTP status of an error with this code.
    ///
    /// The modern specification requires 400 for missing `_meta` and otherwise leaves the status of
    /// [`Code::INVALID_PARAMS`] open. It is 200 here, because the error is the method's response.
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

    /// Invariant 9: Stayput's own code is not reserved.
    #[test]
    fn own_code_is_not_reserved() {
        assert!(!Code::RESERVED.contains(&Code::STATE_LOST.0));
        assert!(Code::SPECIFIED.contains(&Code::HEADER_MISMATCH.0));
        assert!(Code::RESERVED.contains(Code::SPECIFIED.start()));
    }

    #[test]
    fn http_status_follows_the_specification() {
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
