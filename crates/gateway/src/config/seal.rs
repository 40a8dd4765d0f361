//! Keys that protect secrets in the store: `seal`.

use stayput_config::{ConfigValue, Problem, ReadResult};
use stayput_upstream::SealKey;

/// Prefix of a key in a file.
const FILE: &str = "file:";

/// Reads `seal`: one key, or several of which the first one seals and all open.
pub(super) fn seal(setting: &ConfigValue<'_>) -> ReadResult<Vec<SealKey>> {
    let keys = if setting.is_array() { setting.list()? } else { vec![setting.clone()] };
    let expected = "a key, or a list of keys: \"file:PATH\" or \"${VARIABLE}\"";
    if keys.is_empty() {
        return Err(setting.error(Problem::Form { expected }));
    }
    keys.iter().map(key).collect()
}

/// Reads a key from a file, which must be private to its owner, or as hex digits, usually from an environment variable.
fn key(setting: &ConfigValue<'_>) -> ReadResult<SealKey> {
    let text = setting.text()?;
    let key = match text.strip_prefix(FILE) {
        Some(path) => {
            let path = setting.context.path(path).map_err(|problem| setting.error(problem))?;
            SealKey::from_file(&path)
        }
        None => SealKey::from_hex(text.trim()),
    };
    key.map_err(|error| setting.error(Problem::Other(error.to_string())))
}
