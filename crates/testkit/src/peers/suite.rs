//! Results of the official conformance suite for a server.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use super::conformance;

/// Results of the conformance suite for a server.
#[derive(Debug)]
pub struct Verdict {
    /// Number of passed checks.
    pub passed: u32,
    /// Number of failed checks.
    pub failed: u32,
    /// Outcomes of each check, by scenario and name. Informational ones are left out.
    pub checks: BTreeMap<String, Vec<String>>,
    /// Whole output.
    pub report: String,
}

/// Runs the server part of the conformance suite against a URL, with the requirements of a revision.
#[must_use]
pub fn judge(url: &str, revision: &str) -> Verdict {
    // Otherwise it leaves a folder in the current directory.
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

/// Reads the checks of all scenarios: a folder for each, named after the scenario and its time.
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
