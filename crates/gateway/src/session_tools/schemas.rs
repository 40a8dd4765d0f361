//! Definitions of the session tools for `tools/list`.

use serde_json::{Value, json};

use super::{TOOLS, Tool};
use crate::{
    catalog::session_tool_names::name, identify::RequestContext,
    state::identify_rules::IdentifyRules,
};

/// Returns the session tools of this client, as JSON separated by commas.
pub(crate) fn listed(
    rules: &IdentifyRules,
    context: &RequestContext<'_>,
    prefixed: bool,
) -> String {
    let chosen = rules.configured.session_tools;
    let own = TOOLS.into_iter().filter(|(_, tool)| tool.is_for(chosen, context.front()));
    let own = own.map(|(plain, tool)| described(rules, tool, &name(plain, prefixed)).to_string());
    own.collect::<Vec<String>>().join(",")
}

fn described(rules: &IdentifyRules, tool: Tool, name: &str) -> Value {
    let (description, properties, required) = match tool {
        Tool::Start => (start(rules), start_takes(), json!([])),
        Tool::Info => (INFO.to_owned(), json!({ "session_id": session_id() }), json!([])),
        Tool::End => (END.to_owned(), json!({ "session_id": session_id() }), json!([])),
        Tool::List => (LIST.to_owned(), list_takes(), json!([])),
        Tool::Switch => {
            (SWITCH.to_owned(), json!({ "session_id": session_id() }), json!(["session_id"]))
        }
    };
    let reads = matches!(tool, Tool::Info);
    json!({
        "name": name,
        "description": description,
        "inputSchema": { "type": "object", "properties": properties, "required": required },
        "annotations": {
            "readOnlyHint": reads,
            "destructiveHint": tool == Tool::End,
            "idempotentHint": matches!(tool, Tool::Info | Tool::End | Tool::Switch),
            "openWorldHint": false,
        },
    })
}

/// Describes `session_start`. It includes the lifetime of a session, because a model reads no other text about it.
fn start(rules: &IdentifyRules) -> String {
    format!(
        "Starts a session on this server, a state of its own for one conversation, and returns its \
         session_id. Call it once at the beginning of a conversation that uses this server, pass the \
         session_id in every later call, and keep it when the conversation is summarised. Give a name, \
         such as the task, and you get the same session back by that name if you lose the session_id. \
         A session {}; then its state is gone.",
        rules.lifetime()
    )
}

fn start_takes() -> Value {
    json!({
        "name": text("A name of your choice. The session of this name is found, or made if there is none."),
        "agent": text("Who uses the name: under another agent it is another session."),
        "project": text("What the name belongs to: in another project it is another session."),
        "session_id": text("A session_id that you have: checks that its session still lives."),
    })
}

const INFO: &str = "Tells about the session of this conversation: its id, its name, whether its state is \
                    still there, and when it ends. Changes nothing.";

const END: &str = "Ends the session of this conversation for good: its state on the server is gone, and its \
                   session_id leads nowhere. Call it when nothing of the session is needed any more.";

const LIST: &str = "Lists your live sessions with their ids, names and ages, the latest last. With `session`, \
                    the id of one of them, it returns a session_id for that one, if it is certain who you are.";

const SWITCH: &str =
    "Makes another session the one that calls on this connection go to when they name none.";

fn list_takes() -> Value {
    json!({
        "session": text("The id of a session of yours, to get a session_id for it."),
        "after": text("The last id of the page before, for the next one."),
    })
}

fn session_id() -> Value {
    text("The session_id of the session (sp_…), or `key:` and its name.")
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}
