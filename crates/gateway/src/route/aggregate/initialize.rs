//! Merged `initialize` result of all servers.

use std::fmt::Write as _;

use stayput_wire::{Raw, Version, json};

use crate::{
    catalog::names::{Names, SEPARATOR},
    state::roster::{AvailableServer, Roster},
};

/// Builds the `initialize` result for a client that speaks `version`.
pub(crate) fn result(version: &Version, roster: &Roster, names: &Names) -> String {
    format!(
        r#"{{"protocolVersion":{},"capabilities":{},"serverInfo":{{"name":"stayput","version":{}}},"instructions":{}}}"#,
        json::quote(version.as_str()),
        capabilities(roster),
        json::quote(env!("CARGO_PKG_VERSION")),
        json::quote(&instructions(roster, names))
    )
}

/// Returns the union of the servers' capabilities. Those of an unavailable server are unknown. While one is
/// unavailable, all lists and `listChanged` are declared, so that clients notice when it becomes available.
pub(crate) fn capabilities(roster: &Roster) -> String {
    let open = !roster.absent.is_empty();
    let mut all = Vec::new();
    for (kind, details) in [
        ("tools", &["listChanged"][..]),
        ("prompts", &["listChanged"]),
        ("resources", &["subscribe", "listChanged"]),
    ] {
        if open || any(roster, |present| present.profile.initialize_result().has(kind)) {
            let able = details.iter().filter(|detail| {
                (open && **detail == "listChanged")
                    || any(roster, |it| is_able(it, &[kind, detail]))
            });
            let able: Vec<_> = able.map(|detail| format!(r#""{detail}":true"#)).collect();
            all.push(format!(r#""{kind}":{{{}}}"#, able.join(",")));
        }
    }
    for kind in ["logging", "completions"] {
        if any(roster, |present| present.profile.initialize_result().has(kind)) {
            all.push(format!(r#""{kind}":{{}}"#));
        }
    }
    format!("{{{}}}", all.join(","))
}

fn any(roster: &Roster, which: impl Fn(&AvailableServer) -> bool) -> bool {
    roster.present.iter().any(which)
}

fn is_able(present: &AvailableServer, path: &[&str]) -> bool {
    let declared = present.profile.initialize_result().capabilities();
    let found = declared.and_then(|text| Raw::parse(text).ok()?.find(path)?.boolean());
    found == Some(true)
}

/// Returns the instructions for a model: how names are built, the instructions of each server, and which servers are
/// unavailable.
pub(crate) fn instructions(roster: &Roster, names: &Names) -> String {
    let mut text = format!(
        "Several servers are behind this one. What a tool or prompt is called begins with its server: \
         SERVER{SEPARATOR}NAME."
    );
    for AvailableServer { name, profile } in &roster.present {
        let said = Raw::parse(profile.initialize_result().result()).ok();
        let said = said.and_then(|said| said.find(&["instructions"])?.text());
        if let Some(said) = said.filter(|said| !said.trim().is_empty()) {
            let _ = write!(text, "\n\n# {}\n\n{}", heading(name, names), said.trim());
        }
    }
    for absent in &roster.absent {
        let _ = write!(
            text,
            "\n\n# {}\n\nThis server is not available now, so what it has is not listed: {}.",
            heading(&absent.name, names),
            absent.reason.trim_end_matches('.')
        );
    }
    text
}

/// Returns the name of a server, with the prefix of its tool names if that differs.
fn heading(server: &str, names: &Names) -> String {
    match names.prefix(server) {
        prefix if prefix == server => server.to_owned(),
        prefix => format!("{server} ({prefix}{SEPARATOR}…)"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};
    use stayput_upstream::Profile;

    use super::*;
    use crate::state::roster::UnavailableServer;

    fn present(name: &str, initialize_result: &Value) -> AvailableServer {
        let kept = json!({ "way": "legacy", "version": "2025-11-25", "greeting": initialize_result,
            "lists": [] });
        let profile = Arc::new(Profile::from_text(&kept.to_string()).unwrap());
        AvailableServer { name: name.to_owned(), profile }
    }

    fn roster() -> Roster {
        let one = json!({ "capabilities": { "tools": {}, "resources": { "subscribe": true } },
            "instructions": "Be \"kind\".\n" });
        let two = json!({ "capabilities": { "tools": { "listChanged": true }, "logging": {},
            "prompts": { "listChanged": false }, "x": {} } });
        Roster { present: vec![present("one", &one), present("t.wo", &two)], absent: Vec::new() }
    }

    #[test]
    fn aggregate_capabilities_are_the_union_of_all_servers() {
        let capabilities: Value = serde_json::from_str(&capabilities(&roster())).unwrap();
        let expected = json!({ "tools": { "listChanged": true }, "prompts": {},
            "resources": { "subscribe": true }, "logging": {} });
        assert_eq!(capabilities, expected);
        assert_eq!(super::capabilities(&Roster::default()), "{}");
    }

    #[test]
    fn unavailable_server_is_named_and_list_changes_are_declared() {
        let mut roster = roster();
        let reason = "the server `b.d` could not be started: no such program".to_owned();
        roster.absent.push(UnavailableServer { name: "b.d".to_owned(), reason });
        let names = Names::new(["one", "t.wo", "b.d"]);
        let result = result(&Version::V2025_06_18, &roster, &names);
        let result: Value = serde_json::from_str(&result).unwrap();
        assert_eq!(result["protocolVersion"], "2025-06-18");
        assert_eq!(result["serverInfo"]["name"], "stayput");
        assert_eq!(result["capabilities"]["prompts"]["listChanged"], true);
        let instructions = result["instructions"].as_str().unwrap();
        assert!(instructions.contains("# one\n\nBe \"kind\"."), "{instructions}");
        assert!(!instructions.contains("t.wo"), "{instructions}");
        assert!(
            instructions.ends_with(
                "# b.d (b_d__…)\n\nThis server is not available now, so what it has \
             is not listed: the server `b.d` could not be started: no such program."
            ),
            "{instructions}"
        );
    }
}
