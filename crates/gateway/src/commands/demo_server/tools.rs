//! Tools of the demo server.

use serde_json::{Value, json};
use stayput_wire::Code;

use super::{answer::Refusal, notebook::Notebook};

/// Returns all tools, as in `tools/list`.
pub(super) fn list() -> Value {
    let nothing = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    let text = json!({
        "type": "object",
        "properties": { "text": { "type": "string", "description": "What to write down." } },
        "required": ["text"],
        "additionalProperties": false,
    });
    json!([
        tool(
            "note_add",
            "Writes a note into the notebook of this session and returns its number. The notes of \
             other sessions are not touched.",
            &text,
            false,
        ),
        tool(
            "note_list",
            "Lists all notes of this session in the order they were written. An empty list means \
             that nothing was written in this session, or that its state was lost.",
            &nothing,
            true,
        ),
        tool(
            "count",
            "Counts one up and returns the number: how often it was called in this session. It \
             begins at 1 again when the state of the session was lost.",
            &nothing,
            false,
        ),
        tool(
            "whoami",
            "Tells the number of the server process that answers. Two sessions with processes of \
             their own get different numbers.",
            &nothing,
            true,
        ),
    ])
}

fn tool(name: &str, description: &str, schema: &Value, reads: bool) -> Value {
    let hints = json!({ "readOnlyHint": reads, "destructiveHint": false, "openWorldHint": false });
    json!({ "name": name, "description": description, "inputSchema": schema, "annotations": hints })
}

/// Calls a tool. Invalid arguments of a tool become an error result, because the model can correct them.
pub(super) fn call(params: &Value, notebook: &mut Notebook) -> Result<Value, Refusal> {
    let arguments = &params["arguments"];
    if !arguments.is_object() && !arguments.is_null() {
        return Err(Refusal::new(Code::INVALID_PARAMS, "`arguments` must be an object"));
    }
    let outcome = match params["name"].as_str() {
        Some("note_add") => match arguments["text"].as_str() {
            Some(text) => notebook.add(text).map(|number| format!("Note {number} is written.")),
            None => Err("`text` is missing. Call note_add with the text of the note.".to_owned()),
        },
        Some("note_list") => Ok(listed(notebook.notes())),
        Some("count") => Ok(notebook.count().to_string()),
        Some("whoami") => Ok(format!("process {}", std::process::id())),
        Some(_) => return Err(Refusal::new(Code::INVALID_PARAMS, "there is no such tool")),
        None => return Err(Refusal::new(Code::INVALID_PARAMS, "`name` must be a string")),
    };
    let (text, failed) = match outcome {
        Ok(text) => (text, false),
        Err(text) => (text, true),
    };
    Ok(json!({ "content": [{ "type": "text", "text": text }], "isError": failed }))
}

fn listed(notes: &[String]) -> String {
    if notes.is_empty() {
        return "There are no notes.".to_owned();
    }
    let lines = notes.iter().enumerate().map(|(at, note)| format!("{}. {note}", at + 1));
    lines.collect::<Vec<String>>().join("\n")
}
