//! Isolation probe: checks whether two sessions see each other's state, on servers with well-known tools.

use serde_json::{Value, json};
use stayput_upstream::{CallOptions, PooledLink};

/// Tools that identify a memory server, such as `server-memory`.
const MEMORY: [&str; 3] = ["create_entities", "read_graph", "delete_entities"];

/// Tools that identify a browser server, such as Playwright.
const BROWSER: [&str; 2] = ["browser_navigate", "browser_snapshot"];

/// Two open sessions of one server.
pub(super) struct SessionPair<'a> {
    pub(super) first: &'a PooledLink,
    pub(super) second: &'a PooledLink,
}

/// Outcome of a probe.
#[derive(Debug)]
pub(super) enum ProbeOutcome {
    /// Changes of one session were not visible in the other.
    Apart,
    /// Changes of one session were visible in the other.
    Mixed(String),
    /// The second session does not work next to the first one.
    SecondFails(String),
    /// Not even the first session works.
    Fails(String),
}

/// Probes whether two sessions see each other's state. Returns `None` if no probe fits the tools.
pub(super) async fn look(pair: &SessionPair<'_>, tools: &[String]) -> Option<ProbeOutcome> {
    if has(tools, &MEMORY) {
        return Some(memory(pair).await.unwrap_or_else(ProbeOutcome::Fails));
    }
    if has(tools, &BROWSER) {
        return Some(browser(pair).await.unwrap_or_else(ProbeOutcome::Fails));
    }
    None
}

/// Returns the remedy for sessions that are not isolated, for a server with these tools.
pub(super) fn remedy(tools: &[String]) -> String {
    if has(tools, &MEMORY) {
        return "give each session its own file: \"env\": { \"MEMORY_FILE_PATH\": \
                \"${session.dir}/memory.jsonl\" }"
            .to_owned();
    }
    if has(tools, &BROWSER) {
        return "give each session its own profile: add \"--isolated\" to \"args\", or \
                \"--user-data-dir=${session.dir}/profile\" to have it on disk"
            .to_owned();
    }
    "give each session its own with ${session.dir} in \"args\", \"env\" or \"cwd\"; if one for all \
     is meant, say \"stayput\": { \"isolation\": \"shared\" }"
        .to_owned()
}

fn has(tools: &[String], wanted: &[&str]) -> bool {
    wanted.iter().all(|wanted| tools.iter().any(|tool| tool == wanted))
}

/// Returns a random word.
fn word() -> String {
    let mut bytes = [0; 8];
    // Without randomness nothing else works either.
    let _ = getrandom::fill(&mut bytes);
    format!("stayput-check-{:016x}", u64::from_be_bytes(bytes))
}

/// Writes an entity in the first session, and checks whether the second one can read it.
async fn memory(pair: &SessionPair<'_>) -> Result<ProbeOutcome, String> {
    let word = word();
    let entity = json!({ "name": word, "entityType": "check", "observations": [] });
    call(pair.first, "create_entities", json!({ "entities": [entity] })).await?;
    let read = call(pair.second, "read_graph", json!({})).await;
    // The entity is deleted whatever the outcome is.
    let removed = call(pair.first, "delete_entities", json!({ "entityNames": [word] })).await;
    let seen = match read {
        Ok(text) if text.contains(&word) => {
            ProbeOutcome::Mixed("what one session writes down, another one reads".to_owned())
        }
        Ok(_) => ProbeOutcome::Apart,
        Err(sentence) => ProbeOutcome::SecondFails(format!(
            "a second session does not work beside a first: {sentence}"
        )),
    };
    removed.map(|_| seen)
}

/// Opens a page in both sessions, and checks whether the first one still shows its own.
async fn browser(pair: &SessionPair<'_>) -> Result<ProbeOutcome, String> {
    let (one, two) = (word(), word());
    let page = |word: &str| json!({ "url": format!("data:text/html,<h1>{word}</h1>") });
    call(pair.first, "browser_navigate", page(&one)).await?;
    if let Err(sentence) = call(pair.second, "browser_navigate", page(&two)).await {
        let what = format!("a second session does not work beside a first: {sentence}");
        return Ok(ProbeOutcome::SecondFails(what));
    }
    let seen = call(pair.first, "browser_snapshot", json!({})).await?;
    Ok(match seen.contains(&one) && !seen.contains(&two) {
        true => ProbeOutcome::Apart,
        false => ProbeOutcome::Mixed(
            "two sessions have one page: each sees what the other opens".to_owned(),
        ),
    })
}

/// Calls a tool and returns its text. A failure is a sentence.
async fn call(link: &PooledLink, tool: &str, arguments: Value) -> Result<String, String> {
    let failed = |why: &str| format!("`{tool}` failed: {why}");
    let params = json!({ "name": tool, "arguments": arguments }).to_string();
    let sent = link.call("tools/call", Some(&params), CallOptions::default()).await;
    let call = sent.map_err(|error| failed(&error.to_string()))?;
    let answer = call.answer().await.map_err(|error| failed(&error.to_string()))?;
    let Some(result) = answer.result() else {
        return Err(failed("the server says that it is wrong"));
    };
    let result: Value = serde_json::from_str(result).unwrap_or_default();
    let parts = result["content"].as_array().into_iter().flatten();
    let text: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
    let text = text.join("\n");
    if result["isError"] == true { Err(failed(&text)) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedy_depends_on_the_kind_of_server() {
        let names = |tools: &[&str]| tools.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        assert!(remedy(&names(&MEMORY)).contains("MEMORY_FILE_PATH"));
        assert!(remedy(&names(&BROWSER)).contains("--isolated"));
        assert!(remedy(&names(&["browser_navigate"])).contains("\"isolation\": \"shared\""));
    }
}
