//! What must hold of a configuration, whatever is written. The fuzzer and the tests call it.

use std::{collections::BTreeMap, path::Path};

use stayput_config::{Document, Environment, Servers};

/// A value that must not be seen in anything that is said.
const SECRET: &str = "s3cr3t-of-the-environment";

/// A file is read or explained, the same each time, and neither shows what stands around it.
pub(crate) fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let read = || {
        let variables = [("SECRET", SECRET), ("HOME", "/home/ann"), ("EMPTY", "")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let environment = Environment::given(BTreeMap::from(variables), "/work".into());
        let document = Document::new(text, Path::new("/etc/mcp.json"), environment);
        match document.read(|root| Servers::read(root, &root.table()?)) {
            Ok(servers) => format!("{servers:?}"),
            Err(error) => {
                let said = error.to_string();
                assert!(said.starts_with("/etc/mcp.json"), "{said}");
                format!("{said} {error:?}")
            }
        }
    };
    let said = read();
    assert!(!said.contains(SECRET), "{said}");
    assert_eq!(said, read());
}
