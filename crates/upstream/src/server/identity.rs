//! Hash of the properties that make two links interchangeable.

use std::fmt;

use stayput_core::{Digest, Owner};
use stayput_wire::Era;

use super::{
    Expansion, Recipe, Server,
    expand::{Template, TemplatePart, Variable},
};

/// SHA-256 over every part of a configuration by which a server could distinguish two links.
///
/// Maps use it as a key instead of commands, URLs, headers and environments, so that no map keeps a secret in
/// memory (E36).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(Digest);

impl Identity {
    /// Creates an identity from its bytes, as read from a store.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Digest::from_bytes(bytes))
    }

    /// Identity of the same server for clients with these capabilities.
    pub(crate) fn declaring(&self, capabilities: &str) -> Self {
        let pieces = [self.as_bytes().as_slice(), capabilities.as_bytes()];
        Self(Digest::compute("stayput.profile.declaring", &pieces))
    }

    /// Identity of the same server with the lists of one owner.
    pub(crate) fn seen_by(&self, owner: &Owner) -> Self {
        let pieces = [self.as_bytes().as_slice(), owner.as_str().as_bytes()];
        Self(Digest::compute("stayput.profile.owner", &pieces))
    }

    /// All 32 bytes, for a store.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// All 32 bytes as hexadecimal digits, for a store or a message in text form.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0.to_hex()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({}…)", self.0.short())
    }
}

/// Input of the hash. Every piece is prefixed with its length and every list with its size, so that no bytes
/// can move from one field to the next (R017).
#[derive(Default)]
pub(super) struct HashInput(Vec<Vec<u8>>);

impl HashInput {
    pub(super) fn add(&mut self, piece: impl AsRef<[u8]>) -> &mut Self {
        self.0.push(piece.as_ref().to_vec());
        self
    }

    /// Starts a list of `number` items.
    pub(super) fn list(&mut self, number: usize) -> &mut Self {
        self.add((number as u64).to_be_bytes())
    }

    /// Adds an optional piece.
    pub(super) fn maybe(&mut self, piece: Option<impl AsRef<[u8]>>) -> &mut Self {
        match piece {
            Some(piece) => self.add("some").add(piece),
            None => self.add("none"),
        }
    }

    pub(super) fn template(&mut self, template: &Template) -> &mut Self {
        self.list(template.parts().len());
        for part in template.parts() {
            match part {
                TemplatePart::Text(text) => self.add("text").add(text.as_bytes()),
                TemplatePart::Value(variable) => self.add("value").add(variable.name()),
            };
        }
        self
    }

    pub(super) fn identity(&self, label: &str) -> Identity {
        let pieces: Vec<&[u8]> = self.0.iter().map(Vec::as_slice).collect();
        Identity(Digest::compute(label, &pieces))
    }
}
impl Server {
    /// Identity of the configuration without the values of a link. Together with the scope it identifies a
    /// link, because the scope determines every value. Computed once.
    #[must_use]
    pub fn configuration(&self) -> Identity {
        // A process is one state for clients of both eras.
        let preferred = if self.is_process() { Era::Legacy } else { self.0.preferred };
        *self.0.configuration.get_or_init(|| self.configuration_for(preferred))
    }

    /// Identity of the configuration as it is written, without the variables that a process inherits. It is the same on
    /// every machine.
    #[must_use]
    pub fn written_identity(&self) -> Identity {
        let mut pieces = HashInput::default();
        match &*self.0.recipe {
            Recipe::Stdio(recipe) => recipe.hash_written(&mut pieces),
            Recipe::Http(recipe) => recipe.hash("http", &mut pieces),
            Recipe::Sse(recipe) => recipe.hash("sse", &mut pieces),
        }
        pieces.add(self.0.options.era_order(self.0.preferred));
        pieces.identity("written")
    }

    /// Identity of the configuration with this preferred era.
    fn configuration_for(&self, preferred: Era) -> Identity {
        let mut pieces = HashInput::default();
        match &*self.0.recipe {
            Recipe::Stdio(recipe) => recipe.hash(&mut pieces),
            Recipe::Http(recipe) => recipe.hash("http", &mut pieces),
            Recipe::Sse(recipe) => recipe.hash("sse", &mut pieces),
        }
        // Links and profiles of another era order are distinct.
        pieces.add(self.0.options.era_order(preferred));
        pieces.identity("server")
    }

    /// Identity of a link: the server cannot distinguish two links with the same one. It covers the transport
    /// with all values, including credentials and environment (R017, E23).
    #[must_use]
    pub fn identity(&self, expansion: &Expansion) -> Identity {
        self.identity_over(self.configuration(), expansion, |_| true)
    }

    /// Identity of a profile: like [`Server::identity`], without the values that differ per session. A
    /// directory per session does not change the server; the credentials of another owner may.
    #[must_use]
    pub fn profile_identity(&self, expansion: &Expansion) -> Identity {
        self.profile_identity_for(self.0.preferred, expansion)
    }

    /// Identity of the profile that is learned in this era first.
    pub(crate) fn profile_identity_for(&self, preferred: Era, expansion: &Expansion) -> Identity {
        let configuration = match preferred {
            Era::Modern => *self.0.modern_profile.get_or_init(|| self.configuration_for(preferred)),
            Era::Legacy if self.0.preferred == Era::Legacy => self.configuration(),
            Era::Legacy => self.configuration_for(preferred),
        };
        self.identity_over(configuration, expansion, |variable| !variable.is_of_session())
    }

    fn identity_over(
        &self,
        configuration: Identity,
        expansion: &Expansion,
        counts: fn(Variable) -> bool,
    ) -> Identity {
        let mut used = self.0.variables.clone();
        if self.provider().is_some() && !used.contains(&Variable::OwnerHash) {
            used.push(Variable::OwnerHash);
        }
        used.retain(|variable| counts(*variable));
        if used.is_empty() {
            return configuration;
        }
        let mut pieces = HashInput::default();
        pieces.add(configuration.as_bytes());
        for variable in used {
            let value = expansion.value(variable);
            pieces.add(variable.name()).maybe(value.map(|value| value.as_encoded_bytes()));
        }
        pieces.identity("link")
    }
}
