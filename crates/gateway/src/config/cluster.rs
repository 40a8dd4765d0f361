//! Cooperation with other gateways on the same store: `cluster`.

use std::{fmt, net::SocketAddr};

use stayput_config::{ConfigValue, Problem, ReadResult};
use stayput_core::Digest;
use stayput_http::Target;

use super::{keys, settings};

/// Prefix of a key in a file.
const FILE: &str = "file:";

/// Fewest characters of a cluster key. A shorter one could be guessed.
const MIN_KEY: usize = 32;

/// Most cluster keys: the current one, and the previous or the next one during a rotation.
const MAX_KEYS: usize = 2;

/// Settings of a gateway that shares its store with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterSettings {
    /// Address of the internal listener.
    pub(crate) listen: SocketAddr,
    /// URL under which other gateways reach that listener. `None` if it is the address itself.
    pub(crate) advertise: Option<String>,
    /// Keys of the cluster. The first one signs, all of them verify.
    pub(crate) keys: Vec<ClusterKey>,
}

/// Secret that the gateways of a cluster share.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClusterKey(Digest);

impl ClusterKey {
    fn new(text: &str) -> Self {
        Self(Digest::compute("stayput.cluster.key", &[text.as_bytes()]))
    }

    /// Returns the bytes of the key.
    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// Returns a text that tells two keys apart and does not reveal them.
    pub(crate) fn fingerprint(&self) -> String {
        Digest::compute("stayput.cluster.fingerprint", &[self.0.as_bytes()]).short()
    }
}

/// Shows nothing of the key.
impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey")
    }
}

/// Reads `cluster`.
pub(super) fn cluster(setting: &ConfigValue<'_>) -> ReadResult<ClusterSettings> {
    let table = setting.object_with_keys(keys::CLUSTER)?;
    let expected = "an object with \"listen\" (the address for other gateways) and \"key\" (a secret that they share)";
    let missing = || setting.error(Problem::Form { expected });
    let listen = table.read("listen", settings::listen)?.ok_or_else(missing)?;
    let keys = table.read("key", keys_of)?.ok_or_else(missing)?;
    let advertise = table.read("advertise", advertise)?;
    if advertise.is_none() && listen.ip().is_unspecified() {
        let sentence = "\"advertise\" is missing: other gateways cannot connect to an address that means all \
                        interfaces; write the URL under which they reach this one, such as \"http://10.0.0.5:7338\"";
        return Err(setting.error(Problem::Other(sentence.to_owned())));
    }
    Ok(ClusterSettings { listen, advertise, keys })
}

/// Reads the URL for other gateways.
fn advertise(setting: &ConfigValue<'_>) -> ReadResult<String> {
    let text = setting.text()?;
    let expected =
        "a URL with host and port and nothing behind it, such as \"http://10.0.0.5:7338\"";
    let is_plain = text.starts_with("http://") && text.matches('/').count() == 2;
    match Target::parse(&text) {
        Ok(_) if is_plain && !text.contains(['@', '?', '#']) => Ok(text),
        _ => Err(setting.error(Problem::Form { expected })),
    }
}

/// Reads one key, or two during a rotation.
fn keys_of(setting: &ConfigValue<'_>) -> ReadResult<Vec<ClusterKey>> {
    let keys = if setting.is_array() { setting.list()? } else { vec![setting.clone()] };
    if keys.is_empty() || keys.len() > MAX_KEYS {
        let expected = "a key, or a list of two: \"file:PATH\" or \"${VARIABLE}\"";
        return Err(setting.error(Problem::Form { expected }));
    }
    keys.iter().map(key).collect()
}

fn key(setting: &ConfigValue<'_>) -> ReadResult<ClusterKey> {
    let text = setting.text()?;
    let text = match text.strip_prefix(FILE) {
        Some(path) => {
            let path = setting.context.file(path).map_err(|problem| setting.error(problem))?;
            let read = std::fs::read_to_string(path);
            read.map_err(|error| setting.error(Problem::Unreadable(error.kind())))?
        }
        None => text,
    };
    match text.trim() {
        key if key.len() >= MIN_KEY => Ok(ClusterKey::new(key)),
        _ => {
            let sentence = format!(
                "a cluster key has at least {MIN_KEY} characters; make one with \"openssl rand -hex 32\""
            );
            Err(setting.error(Problem::Other(sentence)))
        }
    }
}
