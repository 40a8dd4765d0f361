//! Template variables such as `${session.dir}`, which differ per link.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    path::PathBuf,
};

use stayput_core::{Digest, Owner, SessionId};

use crate::server::{link_key::Scope, suggest::nearest};

/// Variable of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variable {
    SessionDir,
    OwnerDir,
    SessionHash,
    OwnerHash,
}

impl Variable {
    pub(super) const ALL: [Self; 4] =
        [Self::SessionDir, Self::SessionHash, Self::OwnerDir, Self::OwnerHash];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::SessionDir => "session.dir",
            Self::SessionHash => "session.hash",
            Self::OwnerDir => "owner.dir",
            Self::OwnerHash => "owner.hash",
        }
    }

    pub(super) fn is_dir(self) -> bool {
        matches!(self, Self::SessionDir | Self::OwnerDir)
    }

    pub(super) fn is_of_session(self) -> bool {
        matches!(self, Self::SessionDir | Self::SessionHash)
    }

    /// Returns the known name with the smallest edit distance to `name`.
    fn nearest(name: &str) -> &'static str {
        nearest(name, &Self::ALL.map(Self::name))
    }
}

/// Text with variables, parsed once when the server is built.
///
/// `$${` stands for `${`. Any other `${…}` is plain text here: variables of the configuration file were
/// filled in when it was read.
#[derive(Clone)]
pub(super) struct Template(Box<[TemplatePart]>);

#[derive(Clone)]
pub(super) enum TemplatePart {
    Text(Box<str>),
    Value(Variable),
}

/// Error in a template.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TemplateError {
    Unclosed,
    Unknown { name: String, nearest: &'static str },
}

/// Longest part of an unknown name that is shown in an error: text up to a distant brace is not a name.
const NAME_SHOWN: usize = 32;

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, TemplateError> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find('$') {
            plain.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(after) = rest.strip_prefix("$${") {
                plain.push_str("${");
                rest = after;
            } else if rest.starts_with("${session.") || rest.starts_with("${owner.") {
                let (name, after) = rest[2..].split_once('}').ok_or(TemplateError::Unclosed)?;
                let found = Variable::ALL.into_iter().find(|known| known.name() == name);
                let variable = found.ok_or_else(|| unknown(name))?;
                if !plain.is_empty() {
                    parts.push(TemplatePart::Text(std::mem::take(&mut plain).into()));
                }
                parts.push(TemplatePart::Value(variable));
                rest = after;
            } else {
                plain.push('$');
                rest = &rest[1..];
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(TemplatePart::Text(plain.into()));
        }
        Ok(Self(parts.into()))
    }

    pub(super) fn parts(&self) -> &[TemplatePart] {
        &self.0
    }

    /// Parts that may be secrets. A text with a private directory is a path.
    pub(super) fn secrets(&self) -> Vec<String> {
        if self.variables().any(Variable::is_dir) {
            return Vec::new();
        }
        let text = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => Some(text.to_string()),
            TemplatePart::Value(_) => None,
        };
        self.0.iter().filter_map(text).collect()
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = Variable> + '_ {
        self.0.iter().filter_map(|part| match part {
            TemplatePart::Value(variable) => Some(*variable),
            TemplatePart::Text(_) => None,
        })
    }

    /// Fills in all values. Returns the first variable without a value as an error.
    pub(super) fn fill(&self, expansion: &Expansion) -> Result<OsString, Variable> {
        let mut filled = OsString::new();
        for part in &self.0 {
            match part {
                TemplatePart::Text(text) => filled.push(text.as_ref()),
                TemplatePart::Value(variable) => {
                    filled.push(expansion.value(*variable).ok_or(*variable)?);
                }
            }
        }
        Ok(filled)
    }
}

fn unknown(name: &str) -> TemplateError {
    let shown = name.chars().take(NAME_SHOWN).collect();
    TemplateError::Unknown { name: shown, nearest: Variable::nearest(name) }
}

/// Values of the variables for one link: hashes of its session and owner, and its private directories.
///
/// A value is missing if it does not apply: a shared link has no session and no owner, and a directory exists
/// only if it was requested.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Expansion {
    session_hash: Option<String>,
    owner_hash: Option<String>,
    session_dir: Option<PathBuf>,
    owner_dir: Option<PathBuf>,
}

impl Expansion {
    /// Hashes of `scope`, without directories.
    #[must_use]
    pub fn new(scope: &Scope) -> Self {
        let session_hash = match scope {
            Scope::Session { session, branch, .. } => Some(session_hash(*session, *branch)),
            Scope::Owner(_) | Scope::Shared => None,
        };
        let owner_hash = scope.owner().map(owner_hash);
        Self { session_hash, owner_hash, ..Self::default() }
    }

    /// Sets `${session.dir}`. The path should be absolute, because a child may have another working directory.
    #[must_use]
    pub fn with_session_dir(mut self, folder: PathBuf) -> Self {
        self.session_dir = Some(folder);
        self
    }

    /// Sets `${owner.dir}`. The path should be absolute, because a child may have another working directory.
    #[must_use]
    pub fn with_owner_dir(mut self, folder: PathBuf) -> Self {
        self.owner_dir = Some(folder);
        self
    }

    /// Sample values, to validate templates when the server is built.
    pub(super) fn sample() -> Self {
        let hash = || Some("0".repeat(HASH_DIGITS));
        Self { session_hash: hash(), owner_hash: hash(), ..Self::default() }
    }

    pub(super) fn value(&self, variable: Variable) -> Option<&OsStr> {
        match variable {
            Variable::SessionDir => self.session_dir.as_deref().map(AsRef::as_ref),
            Variable::OwnerDir => self.owner_dir.as_deref().map(AsRef::as_ref),
            Variable::SessionHash => self.session_hash.as_deref().map(AsRef::as_ref),
            Variable::OwnerHash => self.owner_hash.as_deref().map(AsRef::as_ref),
        }
    }
}

impl fmt::Debug for Expansion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Variable::ALL.into_iter().filter(|known| self.value(*known).is_some());
        f.debug_set().entries(known.map(Variable::name)).finish()
    }
}

/// 128 bits: no collisions in practice, and short enough for a host or file name.
const HASH_DIGITS: usize = 32;

fn session_hash(session: SessionId, branch: u64) -> String {
    let session = session.to_string();
    hash("session.hash", &[session.as_bytes(), &branch.to_be_bytes()])
}

/// Hash of `owner` for paths and for servers. The name itself is never used.
pub(crate) fn owner_hash(owner: &Owner) -> String {
    hash("owner.hash", &[owner.as_str().as_bytes()])
}

fn hash(label: &str, parts: &[&[u8]]) -> String {
    let mut digits = Digest::compute(label, parts).to_hex();
    digits.truncate(HASH_DIGITS);
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use stayput_core::Timestamp;

    fn filled(text: &str) -> String {
        let expansion = Expansion::sample().with_session_dir("/s".into());
        let template = Template::parse(text).unwrap();
        template.fill(&expansion).unwrap().into_string().unwrap()
    }

    #[test]
    fn template_fills_in_values() {
        assert_eq!(filled(""), "");
        assert_eq!(filled("--dir=${session.dir}/profile"), "--dir=/s/profile");
        assert_eq!(filled("${session.dir}${session.dir}"), "/s/s");
        assert_eq!(filled("${owner.hash}"), "0".repeat(32));
        assert_eq!(filled("ü${session.dir}ü"), "ü/sü");
    }

    #[test]
    fn foreign_placeholders_stay_unchanged() {
        for text in ["$", "$$", "${X}", "${env:HOME}", "${", "$session.dir", "a$b", "${session}"] {
            assert_eq!(filled(text), text);
        }
    }

    #[test]
    fn doubled_dollar_escapes_a_placeholder() {
        assert_eq!(filled("$${session.dir}"), "${session.dir}");
        assert_eq!(filled("$${X}$${"), "${X}${");
        assert_eq!(filled("$$${session.dir}"), "$${session.dir}");
        assert_eq!(filled("$$x${session.dir}"), "$$x/s");
    }

    #[test]
    fn unknown_name_gets_the_nearest_suggestion() {
        for (text, nearest) in [
            ("${session.dri}", "session.dir"),
            ("${session.hsah}", "session.hash"),
            ("${owner.folder}", "owner.dir"),
            ("${owner.}", "owner.dir"),
            ("${session.dir/x}", "session.dir"),
            ("${session.dir:-/tmp}", "session.dir"),
            ("${owner.Hash}", "owner.hash"),
        ] {
            let Err(TemplateError::Unknown { nearest: hint, .. }) = Template::parse(text) else {
                panic!("{text} was taken");
            };
            assert_eq!(hint, nearest, "{text}");
        }
        assert_eq!(Template::parse("x${session.dir").err(), Some(TemplateError::Unclosed));
    }

    #[test]
    fn missing_value_is_reported_by_name() {
        let template = Template::parse("${owner.hash}/${session.dir}").unwrap();
        assert_eq!(template.fill(&Expansion::sample()), Err(Variable::SessionDir));
        assert_eq!(template.fill(&Expansion::default()), Err(Variable::OwnerHash));
    }

    /// A server can distinguish sessions and owners, but sees neither names nor ids.
    #[test]
    fn hashes_are_distinct_and_anonymous() {
        let session = SessionId::generate(Timestamp::from_millis(1));
        let ann = Owner::verified("https://id.example.com", "ann").unwrap();
        let scope = |branch| Scope::Session { owner: ann.clone(), session, branch };
        let (one, two) = (Expansion::new(&scope(0)), Expansion::new(&scope(1)));
        assert_ne!(one.value(Variable::SessionHash), two.value(Variable::SessionHash));
        assert_eq!(one.value(Variable::OwnerHash), two.value(Variable::OwnerHash));
        let hash = one.value(Variable::SessionHash).unwrap().to_str().unwrap();
        assert!(hash.len() == 32 && hash.bytes().all(|digit| digit.is_ascii_hexdigit()));
        assert_ne!(one.value(Variable::OwnerHash), one.value(Variable::SessionHash));
        assert_eq!(Expansion::new(&Scope::Owner(ann)).value(Variable::SessionHash), None);
        assert_eq!(Expansion::new(&Scope::Shared), Expansion::default());
    }
}
