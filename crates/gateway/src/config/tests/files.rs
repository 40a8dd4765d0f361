//! Tests of files next to the configuration, of the examples, and of the documentation.

use super::*;

/// Root of the repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(super) fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap()
}

/// Environment variables that the examples and the documentation use.
pub(super) fn known() -> Environment {
    let variables = [
        ("HOME", "/home/ann"),
        ("TICKETS_TOKEN", "t"),
        ("DATABASE_PASSWORD", "p"),
        ("GITHUB_TOKEN", "t"),
    ];
    Environment::from_variables(&variables, PROGRAM)
}

/// Examples and all JSON blocks of the documentation, each with a name.
pub(super) fn samples() -> Vec<(String, String)> {
    let folder = std::fs::read_dir(repository().join("examples")).unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut samples: Vec<(String, String)> = names
        .filter(|name| name.ends_with(".json"))
        .map(|name| (name.clone(), read(&format!("examples/{name}"))))
        .collect();
    assert!(samples.len() >= 2);
    let page = ["docs/configuration.md", "docs/owners.md", "docs/operations.md"].map(read).concat();
    let blocks = page.split("```json").skip(1).filter_map(|rest| rest.split_once("```"));
    let blocks: Vec<&str> = blocks.map(|(block, _)| block).collect();
    assert!(blocks.len() > 5, "the page has examples");
    let named = blocks.iter().enumerate();
    samples.extend(named.map(|(at, block)| (format!("block {}", at + 1), (*block).to_owned())));
    samples
}

#[test]
fn every_example_is_valid() {
    for (name, text) in samples() {
        let config = Config::parse(&text, Path::new("/etc/mcp.json"), known());
        let config = config.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(config.warnings.is_empty() || name.starts_with("block"), "{name}: {config:?}");
    }
}

#[test]
fn quickstart_example_uses_the_demo_server() {
    let text = read("examples/quickstart.json");
    let config = Config::parse(&text, Path::new("/etc/mcp.json"), known()).unwrap();
    let resolved = config.servers[0].server.resolve(&Expansion::default()).unwrap();
    let ResolvedTransport::Stdio(launch) = resolved else { panic!() };
    assert_eq!((launch.command.to_str(), launch.args), (Some(PROGRAM), vec!["demo-server".into()]));
}

/// The documentation explains every key.
#[test]
fn documentation_explains_every_key() {
    let page = read("docs/configuration.md");
    let all =
        [common::ENTRY, common::SERVER, common::WARM, common::TOOLS, keys::FILE, keys::EXPIRY];
    let auth = [keys::AUTH, keys::TOKEN, keys::JWT, keys::PROXY].concat();
    let watch = [keys::AUDIT, keys::OTLP, keys::TLS, keys::UI].concat();
    let all = [all.concat(), keys::IDENTIFY.to_vec(), auth, watch];
    for key in
        all.concat().iter().chain(keys::LIMITS).chain(keys::PER_OWNER).chain(&common::SERVERS)
    {
        // A key inside of an example does not count as explained.
        let mentions =
            [format!("`{key}`"), format!(".{key}`"), format!("`{key}."), format!(".{key}.")];
        assert!(mentions.iter().any(|it| page.contains(it.as_str())), "{key} is not explained");
    }
}

/// The documentation explains no key that does not exist.
#[test]
fn documentation_explains_no_unknown_key() {
    let (page, root) = (read("docs/configuration.md"), schema::schema());
    let mut explained = 0;
    for (heading, definition) in [
        ("## Servers", "server"),
        ("## How a server is kept", "choices"),
        ("## The gateway", "settings"),
    ] {
        let (_, section) = page.split_once(&format!("\n{heading}\n")).unwrap();
        let section = section.split("\n## ").next().unwrap();
        for row in section.lines().filter_map(|line| line.strip_prefix("| `")) {
            let (key, _) = row.split_once('`').unwrap();
            let mut at = &root["definitions"][definition];
            for name in key.split('.') {
                at = schema::target(root, &at["properties"][name]);
                assert!(at.is_object(), "{key} is explained, and not in the schema");
            }
            explained += 1;
        }
    }
    assert!(explained > 40, "{explained}");
}

#[test]
fn relative_files_start_at_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "from ${file}\r\n").unwrap();
    std::fs::write(folder.path().join(".env"), "A=file\nB=\"${session.dir}\"\n").unwrap();
    let file = folder.path().join("mcp.json");
    let entry = r#"{"command": "x", "envFile": ".env", "env": {"A": "own", "T": "${file:token}"}}"#;
    std::fs::write(&file, format!(r#"{{"mcpServers": {{"it": {entry}}}}}"#)).unwrap();
    let config = Config::load(&file).unwrap();
    let resolved = config.servers[0].server.resolve(&expansion()).unwrap();
    let ResolvedTransport::Stdio(launch) = resolved else { panic!() };
    assert_eq!(variable(&launch, "A"), Some("own"), "the entry wins over its file");
    assert_eq!(variable(&launch, "B"), Some("${session.dir}"), "a value is not a template");
    assert_eq!(variable(&launch, "T"), Some("from ${file}"), "one line break is cut");
}

#[test]
fn error_names_a_bad_file_without_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let origin = folder.path().join("mcp.json");
    std::fs::write(folder.path().join(".env"), "A=1\ns3cret\n").unwrap();
    std::fs::write(folder.path().join("binary"), b"\xff\xfes3cret").unwrap();
    std::fs::write(folder.path().join("large"), "s3cret".repeat(20_000)).unwrap();
    for (entry, expected) in [
        (r#"{"command": "x", "envFile": ".env"}"#, "line 2 of"),
        (r#"{"command": "x", "envFile": "none"}"#, "none\" does not exist"),
        (r#"{"command": "${file:binary}"}"#, "is not text"),
        (r#"{"command": "${file:large}"}"#, "too many"),
        (r#"{"command": "${file:none}"}"#, "mcpServers.it.command: the file"),
    ] {
        let text = format!(r#"{{"mcpServers": {{"it": {entry}}}}}"#);
        let config = Config::parse(&text, &origin, environment()).unwrap();
        let said = config.broken[0].1.to_string();
        assert!(said.contains(expected) && !said.contains("s3cret"), "{said}");
    }
}

/// The saved corpus of the fuzzer parses or gives an error, and no error shows environment variables.
#[test]
fn saved_fuzz_corpus_leaks_no_secret() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/config");
    let variables =
        std::collections::BTreeMap::from([("SECRET".to_owned(), "s3cr3t-variable".to_owned())]);
    let mut count = 0;
    for file in std::fs::read_dir(seeds).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let environment = Environment::from_client(variables.clone(), "/work".into());
        let said = match Config::parse(&text, Path::new("/etc/mcp.json"), environment) {
            Ok(config) => format!("{config:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!said.contains("s3cr3t"), "{said}");
        count += 1;
    }
    assert!(count > 0, "fuzz/seeds/config is empty");
}
