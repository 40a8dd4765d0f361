//! Log level and subscriptions of a client, which apply to every link.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Serialize};
use stayput_wire::{Message, Raw};

use super::Connection;

/// Largest number of subscriptions that are remembered per client.
const SUBSCRIPTIONS: usize = 1_000;

/// Largest number of bytes of a client's preferences. They are kept as long as the session.
const MAX_PREFERENCE_BYTES: usize = 256 << 10;

/// Preferences of a client that apply to every link. They are stored with the connection.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientPreferences {
    /// Parameters of `logging/setLevel`.
    #[serde(default)]
    pub(crate) log_level: Option<String>,
    /// Parameters of `resources/subscribe`, by URI.
    #[serde(default)]
    pub(crate) subscriptions: BTreeMap<String, String>,
}

impl ClientPreferences {
    /// Number of bytes of all preferences.
    fn size(&self) -> usize {
        let level = self.log_level.as_ref().map_or(0, String::len);
        self.subscriptions.iter().fold(level, |sum, (uri, params)| sum + uri.len() + params.len())
    }

    /// Lowest level of log messages that the client wants, if it has set one.
    pub(crate) fn level(&self) -> Option<String> {
        let params = Raw::parse(self.log_level.as_deref()?).ok()?;
        params.find(&["level"])?.text().map(Cow::into_owned)
    }
}

impl Connection {
    /// Whether a request sets a preference that applies to every link.
    pub(crate) fn is_preference(message: &Message<'_>) -> bool {
        let known = ["logging/setLevel", "resources/subscribe", "resources/unsubscribe"];
        message.method().is_some_and(|method| known.contains(&method))
    }

    /// Number of changes of the preferences in this process.
    pub(crate) fn preference_changes(&self) -> u64 {
        self.activity.lock().rare.as_ref().map_or(0, |rare| rare.preference_changes)
    }

    /// Replaces the preferences by stored ones, unless they were changed here since there were this many `changes`.
    pub(crate) fn set_preferences(&self, stored: ClientPreferences, changes: u64) {
        let mut activity = self.activity.lock();
        if activity.rare.is_none() && stored == ClientPreferences::default() {
            return;
        }
        let rare = activity.rare();
        if rare.preference_changes == changes {
            rare.preferences = stored;
        }
    }

    /// Records the preference in a request that applies to every link. Returns `false` if the request holds none, or
    /// there is no room for it.
    pub(crate) fn note_preference(&self, message: &Message<'_>) -> bool {
        let method = message.method();
        if !Self::is_preference(message) {
            return false;
        }
        let Some(params) = message.params() else { return false };
        let uri = params.find(&["uri"]).and_then(|uri| uri.text().map(Cow::into_owned));
        let mut activity = self.activity.lock();
        let rare = activity.rare();
        rare.preference_changes += 1;
        let preferences = &mut rare.preferences;
        let more = params.as_str().len() + uri.as_ref().map_or(0, String::len);
        if method != Some("resources/unsubscribe")
            && preferences.size() + more > MAX_PREFERENCE_BYTES
        {
            return false;
        }
        match (method, uri) {
            (Some("logging/setLevel"), _) => {
                preferences.log_level = Some(params.as_str().to_owned());
            }
            (Some("resources/subscribe"), Some(uri)) => {
                let full = preferences.subscriptions.len() >= SUBSCRIPTIONS;
                if full && !preferences.subscriptions.contains_key(&uri) {
                    return false;
                }
                preferences.subscriptions.insert(uri, params.as_str().to_owned());
            }
            (Some("resources/unsubscribe"), Some(uri)) => {
                preferences.subscriptions.remove(&uri);
            }
            _ => return false,
        }
        true
    }

    /// Records that the client subscribes to a resource over the link in this pool entry, or unsubscribes from it.
    pub(crate) fn note_subscription(&self, place: u64, message: &Message<'_>) {
        let uri = || message.params()?.find(&["uri"])?.text().map(Cow::into_owned);
        match message.method() {
            Some("resources/subscribe") => {
                if let Some(uri) = uri() {
                    self.subscribe(place, uri);
                }
            }
            Some("resources/unsubscribe") => {
                let mut activity = self.activity.lock();
                if let Some((rare, uri)) = activity.rare.as_mut().zip(uri()) {
                    rare.subscribed.remove(&(place, uri));
                }
            }
            _ => {}
        }
    }

    /// Records a subscription over the link in this pool entry. Beyond the limit, subscriptions are not recorded and
    /// their updates are not delivered.
    pub(crate) fn subscribe(&self, place: u64, uri: String) {
        let mut activity = self.activity.lock();
        let subscribed = &mut activity.rare().subscribed;
        let size: usize = subscribed.iter().map(|(_, uri)| uri.len()).sum();
        if subscribed.len() < SUBSCRIPTIONS && size + uri.len() <= MAX_PREFERENCE_BYTES {
            subscribed.insert((place, uri));
        }
    }

    /// Whether the client subscribed to this resource over the link in this pool entry.
    pub(crate) fn is_subscribed(&self, place: u64, uri: &str) -> bool {
        let activity = self.activity.lock();
        let rare = activity.rare.as_ref();
        rare.is_some_and(|rare| rare.subscribed.contains(&(place, uri.to_owned())))
    }

    pub(crate) fn preferences(&self) -> ClientPreferences {
        let activity = self.activity.lock();
        activity.rare.as_ref().map(|rare| rare.preferences.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use stayput_core::{Handle, Owner, SessionId, Timestamp};
    use stayput_upstream::ClientInfo;
    use stayput_wire::Version;

    use super::*;
    use crate::config::target::Target;

    /// R170: the preferences that are remembered per client are limited.
    #[test]
    fn preferences_have_a_size_limit() {
        let session = SessionId::generate(Timestamp::from_millis(0));
        let named = (Owner::local(), Handle::generate());
        let client_info = (Version::LATEST_LEGACY, ClientInfo::default());
        let connection = Connection::new(named, session, Target::All, client_info);
        let record = |method: &str, uri: &str| {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"uri":"{uri}"}}}}"#
            );
            connection.note_preference(&Message::parse(text.as_bytes()).unwrap())
        };
        let long = |number: usize| format!("{number}{}", "x".repeat(50_000));
        let noted = (0..10).filter(|it| record("resources/subscribe", &long(*it))).count();
        assert_eq!(noted, 2);
        assert!(!record("logging/setLevel", &long(0)));
        assert!(record("resources/unsubscribe", &long(0)));
        assert!(record("resources/subscribe", &long(9)));
        assert!(connection.preferences().size() <= MAX_PREFERENCE_BYTES);
    }
}
