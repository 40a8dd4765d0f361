//! Answers to `server/discover`.

use std::borrow::Cow;

use stayput_upstream::{Profile, Server};
use stayput_wire::{Edits, Era, Raw, json, meta};

use crate::{
    call::modern::validate,
    catalog::{list::PageFacts, names::Names},
    route::{
        aggregate::{cache_ttl::CacheTtl, initialize},
        lists,
    },
    state::roster::Roster,
};

/// Capabilities of a legacy server that work for a modern client without translation.
const WORKS: [&str; 4] = ["tools", "prompts", "resources", "completions"];

/// Flags in them that do not work: the client would wait for notifications that never come.
const WAITS: [&str; 2] = ["listChanged", "subscribe"];

/// Builds the answer to `server/discover` if it is known: the result of the server itself, or one built from its
/// `initialize` result.
pub(super) fn cached_result<'p>(server: &Server, profile: &'p Profile) -> Option<Cow<'p, str>> {
    let said = match profile.era() {
        Era::Legacy => Cow::Owned(built(profile)),
        Era::Modern => Cow::Borrowed(profile.initialize_result().result()),
    };
    let ttl = || PageFacts::read(said.as_bytes()).ttl;
    lists::is_fresh(server, profile, ttl).then_some(said)
}

/// Builds the `server/discover` result of the aggregate.
pub(super) fn of_all(roster: &Roster, names: &Names) -> String {
    let said = initialize::capabilities(roster);
    let capabilities = Raw::parse(&said).map(capabilities).unwrap_or_default();
    let (versions, keeping) = (validate::versions(), CacheTtl::new(roster).members());
    let instructions = json::quote(&initialize::instructions(roster, names));
    format!(
        r#"{{"resultType":"complete",{keeping}"supportedVersions":[{versions}],"capabilities":{{{capabilities}}},"instructions":{instructions},{}}}"#,
        of_stayput()
    )
}

/// Returns the server information of Stayput, as the member of a result.
pub(super) fn of_stayput() -> String {
    let (meta, key, version) = (meta::META, meta::SERVER_INFO, env!("CARGO_PKG_VERSION"));
    format!(r#""{meta}":{{"{key}":{{"name":"stayput","version":"{version}"}}}}"#)
}

/// Converts the `initialize` result of a legacy server to a `server/discover` result.
fn built(profile: &Profile) -> String {
    let initialize_result = Raw::parse(profile.initialize_result().result()).ok();
    let find =
        |name: &str| initialize_result.and_then(|it| it.find(&[name])).filter(|it| !it.is_null());
    let capabilities = find("capabilities").map(capabilities).unwrap_or_default();
    let (versions, ttl, kept) =
        (validate::versions(), crate::catalog::list::TTL, crate::catalog::list::PUBLIC);
    let mut result = format!(
        r#"{{"resultType":"complete","supportedVersions":[{versions}],"capabilities":{{{capabilities}}},"ttlMs":{ttl},"cacheScope":{kept}"#
    );
    if let Some(instructions) = find("instructions") {
        result.push_str(r#","instructions":"#);
        result.push_str(instructions.as_str());
    }
    if let Some(info) = find("serverInfo") {
        let (meta, key) = (meta::META, meta::SERVER_INFO);
        result.push_str(&format!(r#","{meta}":{{"{key}":{}}}"#, info.as_str()));
    }
    result.push('}');
    result
}

/// Returns the supported capabilities, without braces.
fn capabilities(said: Raw<'_>) -> String {
    let works = |name: Raw<'_>| name.text().is_some_and(|name| WORKS.contains(&&*name));
    let stay = said.members().filter(|(name, value)| works(*name) && value.is_object());
    let stay = stay.map(|(name, value)| {
        let mut edits = Edits::new(value.as_str());
        WAITS.iter().for_each(|name| {
            edits.remove(&[name]);
        });
        let value = edits.apply().unwrap_or_else(|_| "{}".into());
        format!("{}:{value}", name.as_str())
    });
    stay.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_that_need_translation_are_not_offered() {
        let said = r#"{"tools":{"listChanged":true,"x":1.0},"logging":{},"tasks":{},
            "resources":{"subscribe":true,"listChanged":false},"prompts":{}, "completions": {}}"#;
        assert_eq!(
            capabilities(Raw::parse(said).unwrap()),
            r#""tools":{"x":1.0},"resources":{},"prompts":{},"completions":{}"#
        );
    }
}
