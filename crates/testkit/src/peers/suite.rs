//! What the official conformance suite says about a server.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use super::conformance;

/// What the conformance suite says about a server.
#[derive(Debug)]
pub struct Verdict {
    /// How many checks passed.
    pub passed: u32,
    /// How many did not.
    pub failed: u32,
    /// What each check came to, by its scenario and name. What the suite only remarks on is left out.
    pub checks: BTreeMap<String, Vec<String>>,
    /// All it said.
    pub report: String,
}

/// Runs the server part of the conformance suite against a URL, with the requirements of a revision.
#[must_use]
pub fn judge(url: &str, revision: &str) -> Verdict {
    // Else it leaves a folder where it is run.
    let folder = crate::server::folder();
    let mut suite = conformance().command();
    suite.args(["server", "--url", url, "--requirements", revision]);
    let output = suite.arg("-o").arg(folder.path()).output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let total = report.lines().find_map(|line| line.strip_prefix("Total: "));
    let mut numbers = total.unwrap_or_default().split(", ").map(|part| {
        let number = part.split(' ').next().and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)))
    });
    let (passed, failed) = (numbers.next().unwrap(), numbers.next().unwrap());
    Verdict { passed, failed, checks: checks(folder.path()), report }
}

/// The checks of all scenarios: a folder for each, named after it and the time it was run at.
fn checks(folder: &Path) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for scenario in fs::read_dir(folder).unwrap().filter_map(Result::ok) {
        let name = scenario.file_name().into_string().unwrap();
        // As in `-2026-07-28T09-30-00-000Z`.
        let name = &name[..name.len() - 25];
        let name = name.strip_prefix("server-").unwrap_or(name);
        let checks = fs::read(scenario.path().join("checks.json")).unwrap();
        let checks: Vec<Value> = serde_json::from_slice(&checks).unwrap();
        for check in checks.iter().filter(|check| check["status"] != "INFO") {
            let text = |what: &str| check[what].as_str().unwrap_or_default();
            let id = format!("{name}/{}", text("id"));
            found.entry(id).or_default().push(text("status").to_owned());
        }
    }
    found.values_mut().for_each(|came_to| came_to.sort());
    found
}
