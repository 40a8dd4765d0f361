//! Keys of `_meta`.

/// Member with metadata of params, results and other objects.
pub const META: &str = "_meta";

// Keys of the protocol, on requests.

/// Protocol version of a modern request. Required; over HTTP equal to the version header.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Capabilities of the client of a modern request. Required, and never remembered from an earlier one.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Name and version of the client of a modern request. Nothing may be decided by it.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// Level of log messages that a modern request wants on its stream; without it, none.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Token for progress notifications of a request. Both eras.
pub const PROGRESS_TOKEN: &str = "progressToken";
/// Trace of a request (W3C Trace Context).
pub const TRACEPARENT: &str = "traceparent";
/// Vendor data of the trace.
pub const TRACESTATE: &str = "tracestate";
/// Baggage of the trace (W3C Baggage); can contain [`BAGGAGE_CONVERSATION`].
pub const BAGGAGE: &str = "baggage";

/// Keys that a modern request must have.
pub const REQUIRED: [&str; 2] = [PROTOCOL_VERSION, CLIENT_CAPABILITIES];

/// Keys that belong to one request on one hop.
pub const PER_REQUEST: [&str; 8] = [
    PROTOCOL_VERSION,
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROGRESS_TOKEN,
    TRACEPARENT,
    TRACESTATE,
    BAGGAGE,
];

// Keys of the protocol, on results and notifications.

/// Name and version of the server, on modern results.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// Id of the listen request that a modern notification belongs to.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// Task of a message. Legacy, 2025-11-25.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

// Keys of Stayput.

/// Session by handle or `key:…` on a request; newly issued handle on a result.
pub const SESSION: &str = "dev.stayput/session";
/// Session of a result, whether its state is fresh, kept or lost, and its expiry.
pub const STATE: &str = "dev.stayput/state";
/// Era of the link, on a result that was translated although the server speaks the era of the client.
pub const ERA: &str = "dev.stayput/era";

// Keys of hosts about the conversation. They identify, but do not authorise.

/// ChatGPT: the conversation.
pub const OPENAI_SESSION: &str = "openai/session";
/// ChatGPT: the user, as an opaque id.
pub const OPENAI_SUBJECT: &str = "openai/subject";
/// VS Code: the conversation.
pub const VSCODE_CONVERSATION: &str = "vscode.conversationId";
/// VS Code: the turn of the conversation.
pub const VSCODE_REQUEST: &str = "vscode.requestId";
/// Codex: the thread.
pub const CODEX_THREAD: &str = "threadId";
/// Codex: the call inside the thread.
pub const CODEX_CALL: &str = "callId";
/// Codex: more about the turn, as an object.
pub const CODEX_TURN: &str = "x-codex-turn-metadata";
/// OpenCode: the session.
pub const OPENCODE_SESSION: &str = "sessionID";
/// goose: the session.
pub const GOOSE_SESSION: &str = "agent-session-id";
/// goose: the folder it works in.
pub const GOOSE_DIRECTORY: &str = "agent-working-dir";
/// OpenTelemetry: the conversation, as a member of [`BAGGAGE`].
pub const BAGGAGE_CONVERSATION: &str = "gen_ai.conversation.id";

/// Hints that identify a conversation: host and key.
pub const CONVERSATION_HINTS: [(&str, &str); 5] = [
    ("openai", OPENAI_SESSION),
    ("vscode", VSCODE_CONVERSATION),
    ("codex", CODEX_THREAD),
    ("opencode", OPENCODE_SESSION),
    ("goose", GOOSE_SESSION),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant 9: MCP does not reserve the prefix.
    #[test]
    fn own_prefix_is_not_reserved() {
        for key in [SESSION, STATE] {
            let (prefix, name) = key.split_once('/').unwrap();
            let second = prefix.split('.').nth(1).unwrap();
            assert!(!["mcp", "modelcontextprotocol"].contains(&second), "{key}");
            assert!(!name.is_empty());
        }
    }

    #[test]
    fn keys_are_distinct() {
        let mut keys = PER_REQUEST.to_vec();
        keys.extend([SERVER_INFO, SUBSCRIPTION_ID, RELATED_TASK, SESSION, STATE]);
        keys.extend(CONVERSATION_HINTS.map(|(_, key)| key));
        keys.extend([OPENAI_SUBJECT, VSCODE_REQUEST, CODEX_CALL, CODEX_TURN, GOOSE_DIRECTORY]);
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }
}
