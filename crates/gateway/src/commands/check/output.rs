//! Output of a check, as a table or as JSON.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
};

use serde_json::{Value, json};

use super::finding::{CheckReport, Finding, ServerReport};
use crate::commands::terminal::{plain, table};

const HEADINGS: [&str; 7] = ["SERVER", "TRANSPORT", "ERA", "TOOLS", "ISOLATION", "MS", "VERDICT"];

/// Writes to the standard output.
pub(super) fn write(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{}", text.trim_end())
}

/// Formats the error of an unusable configuration as JSON.
pub(super) fn unusable(sentence: &str) -> String {
    json!({ "ok": false, "error": sentence }).to_string()
}

/// Formats the results as JSON.
pub(super) fn json(checked: &CheckReport) -> String {
    let finding = |it: &Finding| json!({ "what": it.what, "remedy": it.remedy });
    let server = |it: &ServerReport| {
        json!({
            "server": it.name,
            "transport": it.transport,
            "era": it.era,
            "version": it.version,
            "tools": it.tools,
            "isolation": it.isolation.as_str(),
            "ms": it.millis.and_then(|millis| u64::try_from(millis).ok()),
            "ok": it.findings.is_empty(),
            "findings": it.findings.iter().map(finding).collect::<Vec<Value>>(),
            "warnings": it.warnings,
            "notes": it.notes,
        })
    };
    let servers: Vec<Value> = checked.servers.iter().map(server).collect();
    json!({
        "ok": checked.is_well(),
        "servers": servers,
        "warnings": checked.warnings,
        "not_tested": checked.not_tested(),
    })
    .to_string()
}

/// Formats the results as a table, followed by the findings.
pub(super) fn text(checked: &CheckReport) -> String {
    let rows: Vec<Vec<String>> = checked.servers.iter().map(row).collect();
    // Writing to a `String` never fails.
    let mut text = table(&HEADINGS, &rows) + "\n";
    for it in &checked.servers {
        for Finding { what, remedy } in &it.findings {
            let _ = writeln!(text, "\n{}: {}", it.name, indented(what));
            if let Some(remedy) = remedy {
                let _ = writeln!(text, "  → {}", indented(remedy));
            }
        }
        for warning in &it.warnings {
            let _ = writeln!(text, "\n{}: warn: {}", it.name, indented(warning));
        }
        for note in &it.notes {
            let _ = writeln!(text, "\n{}: note: {}", it.name, indented(note));
        }
    }
    for warning in &checked.warnings {
        let _ = writeln!(text, "\nwarn: {warning}");
    }
    for left in checked.not_tested() {
        let _ = writeln!(text, "\nnot tested: {left}");
    }
    plain(&text)
}

fn row(it: &ServerReport) -> Vec<String> {
    let or_none = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
    let era = it.era.map(|era| match &it.version {
        Some(version) => format!("{era} {version}"),
        None => era.to_owned(),
    });
    let verdict = match it.findings.len() {
        0 => "ok".to_owned(),
        1 => "1 finding".to_owned(),
        more => format!("{more} findings"),
    };
    vec![
        it.name.clone(),
        it.transport.to_owned(),
        or_none(era),
        or_none(it.tools.map(|tools| tools.to_string())),
        it.isolation.as_str().to_owned(),
        or_none(it.millis.map(|millis| millis.to_string())),
        verdict,
    ]
}

/// Indents all lines but the first.
fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

#[cfg(test)]
mod tests {
    use super::{super::finding::ProbedIsolation, *};

    fn checked() -> CheckReport {
        let well = ServerReport {
            name: "notes".into(),
            transport: "stdio",
            era: Some("legacy"),
            version: Some("2025-11-25".into()),
            tools: Some(5),
            isolation: ProbedIsolation::OwnProcess,
            millis: Some(12),
            ..ServerReport::default()
        };
        let finding = Finding::new("it is\nbroken").remedy("mend it");
        let name = "browser-of-ann".to_owned();
        let ill = ServerReport {
            name,
            transport: "http",
            findings: vec![finding],
            ..ServerReport::default()
        };
        CheckReport { servers: vec![well, ill], warnings: vec!["odd".into()] }
    }

    #[test]
    fn text_output_has_a_table_and_remedies() {
        let expected = "\
SERVER          TRANSPORT  ERA                TOOLS  ISOLATION    MS  VERDICT
notes           stdio      legacy 2025-11-25  5      own process  12  ok
browser-of-ann  http       -                  -      -            -   1 finding

browser-of-ann: it is
    broken
  → mend it

warn: odd

not tested: state outside of the processes and sessions of the servers: accounts, databases and web services that two sessions may share

not tested: whether sessions see each other's state through the tools of notes: none of them was called
";
        assert_eq!(text(&checked()), expected);
    }

    #[test]
    fn json_output_has_the_same_content() {
        let output: Value = serde_json::from_str(&json(&checked())).unwrap();
        assert_eq!((&output["ok"], &output["servers"][0]["ok"]), (&json!(false), &json!(true)));
        assert_eq!(output["servers"][0]["ms"], 12);
        let finding = json!([{ "what": "it is\nbroken", "remedy": "mend it" }]);
        assert_eq!(output["servers"][1]["findings"], finding);
        assert_eq!(output["servers"][1]["era"], Value::Null);
        assert_eq!(output["warnings"], json!(["odd"]));
    }
}
