//! Whether two sessions see each other, on servers whose tools are known.

use serde_json::{Value, json};
use stayput_upstream::{CallOptions, Held};

/// The tools by which a memory is known: `server-memory` and its like.
const MEMORY: [&str; 3] = ["create_entities", "read_graph", "delete_entities"];

/// The tools by which a browser is known: Playwright and its like.
const BROWSER: [&str; 2] = ["browser_navigate", "browser_snapshot"];

/// Two sessions of one server, both open.
pub(super) struct Pair<'a> {
    pub(super) first: &'a Held,
    pub(super) second: &'a Held,
}

/// What was seen of two sessions.
#[derive(Debug)]
pub(super) enum Seen {
    /// What one did was not there for the other.
    Apart,
    /// It was.
    Mixed(String),
    /// The second one does not work beside the first.
    SecondFails(String),
    /// Not even one works.
    Fails(String),
}

/// Looks whether two sessions see each other; nothing if it is not known how.
pub(super) async fn look(pair: &Pair<'_>, tools: &[String]) -> Option<Seen> {
    if has(tools, &MEMORY) {
        return Some(memory(pair).await.unwrap_or_else(Seen::Fails));
    }
    if has(tools, &BROWSER) {
        return Some(browser(pair).await.unwrap_or_else(Seen::Fails));
    }
    None
}

/// What to do about sessions that are not apart, for a server with these tools.
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

/// A word that nobody else has.
fn word() -> String {
    let mut bytes = [0; 8];
    // Without randomness nothing else works either.
    let _ = getrandom::fill(&mut bytes);
    format!("stayput-check-{:016x}", u64::from_be_bytes(bytes))
}

/// The first writes something down, and it is looked whether the second knows of it.
async fn memory(pair: &Pair<'_>) -> Result<Seen, String> {
    let word = word();
    let entity = json!({ "name": word, "entityType": "check", "observations": [] });
    call(pair.first, "create_entities", json!({ "entities": [entity] })).await?;
    let read = call(pair.second, "read_graph", json!({})).await;
    // Whatever came of it, nothing of it stays.
    let removed = call(pair.first, "delete_entities", json!({ "entityNames": [word] })).await;
    let seen = match read {
        Ok(text) if text.contains(&word) => {
            Seen::Mixed("what one session writes down, another one reads".to_owned())
        }
        Ok(_) => Seen::Apart,
        Err(sentence) => {
            Seen::SecondFails(format!("a second session does not work beside a first: {sentence}"))
        }
    };
    removed.map(|_| seen)
}

/// Both open a page, and it is looked whether the first still has its own.
async fn browser(pair: &Pair<'_>) -> Result<Seen, String> {
    let (one, two) = (word(), word());
    let page = |word: &str| json!({ "url": format!("data:text/html,<h1>{word}</h1>") });
    call(pair.first, "browser_navigate", page(&one)).await?;
    if let Err(sentence) = call(pair.second, "browser_navigate", page(&two)).await {
        let what = format!("a second session does not work beside a first: {sentence}");
        return Ok(Seen::SecondFails(what));
    }
    let seen = call(pair.first, "browser_snapshot", json!({})).await?;
    Ok(match seen.contains(&one) && !seen.contains(&two) {
        true => Seen::Apart,
        false => {
            Seen::Mixed("two sessions have one page: each sees what the other opens".to_owned())
        }
    })
}

/// What a tool gives, as text; a sentence if it cannot.
async fn call(link: &Held, tool: &str, arguments: Value) -> Result<String, String> {
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
    fn each_kind_of_server_has_its_remedy() {
        let names = |tools: &[&str]| tools.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        assert!(remedy(&names(&MEMORY)).contains("MEMORY_FILE_PATH"));
        assert!(remedy(&names(&BROWSER)).contains("--isolated"));
        assert!(remedy(&names(&["browser_navigate"])).contains("\"isolation\": \"shared\""));
    }
}
