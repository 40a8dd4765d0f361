//! Keys of `_meta`, each written once.

/// The member of params, results and many other objects that carries what is not the subject itself.
pub const META: &str = "_meta";

// Of the protocol, on requests.

/// The revision a modern request speaks. Required; over HTTP equal to the version header.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// What the client of a modern request can do. Required, and never remembered from an earlier one.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// What the client of a modern request calls itself. Nothing may be decided by it.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// The log messages a modern request wants on its stream; without it, none.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// The token that progress of a request is told under. Both eras.
pub const PROGRESS_TOKEN: &str = "progressToken";
/// The trace a request belongs to (W3C Trace Context).
pub const TRACEPARENT: &str = "traceparent";
/// What tracing systems add to the trace.
pub const TRACESTATE: &str = "tracestate";
/// What travels along a trace (W3C Baggage); can hold [`BAGGAGE_CONVERSATION`].
pub const BAGGAGE: &str = "baggage";

/// The keys a modern request must have.
pub const REQUIRED: [&str; 2] = [PROTOCOL_VERSION, CLIENT_CAPABILITIES];

/// All keys that belong to one request and the hop it makes, and not to what it asks for.
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

// Of the protocol, on results and notifications.

/// What the server calls itself, on modern results.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// The id of the listen request that a modern notification belongs to.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// Legacy, 2025-11-25: the task that a message belongs to.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

// Ours.

/// On a request, the session that is meant, by handle or `key:…`; on a result, a handle given out.
pub const SESSION: &str = "dev.stayput/session";
/// On a result: which session it was, whether its state is fresh, kept or lost, and until when.
pub const STATE: &str = "dev.stayput/state";

// What hosts tell of the conversation. Hints: they name, they do not authorise.

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

/// The hints that name a conversation by themselves: which host sends it, and under which key.
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

    /// Invariant 9: the second label of our prefix is not one of those that MCP keeps for itself.
    #[test]
    fn our_prefix_is_not_reserved() {
        for key in [SESSION, STATE] {
            let (prefix, name) = key.split_once('/').unwrap();
            let second = prefix.split('.').nth(1).unwrap();
            assert!(!["mcp", "modelcontextprotocol"].contains(&second), "{key}");
            assert!(!name.is_empty());
        }
    }

    #[test]
    fn no_key_stands_for_two_things() {
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
