//! Properties of every configuration, for the fuzzer and the tests.

use std::{collections::BTreeMap, path::Path};

use stayput_config::{Document, Environment, Servers};

/// Secret that no output may contain.
const SECRET: &str = "s3cr3t-of-the-environment";

/// Reading gives the same result or error each time, and neither contains a secret of the environment.
pub(crate) fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let read = || {
        let variables = [("SECRET", SECRET), ("HOME", "/home/ann"), ("EMPTY", "")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let environment = Environment::from_client(BTreeMap::from(variables), "/work".into());
        let document = Document::new(text, Path::new("/etc/mcp.json"), environment);
        match document.read(|root| Servers::read(root, &root.object()?)) {
            Ok(servers) => format!("{servers:?}"),
            Err(error) => {
                let output = error.to_string();
                assert!(output.starts_with("/etc/mcp.json"), "{output}");
                format!("{output} {error:?}")
            }
        }
    };
    let output = read();
    assert!(!output.contains(SECRET), "{output}");
    assert_eq!(output, read());
}
