//! What differs from link to link in a server's configuration: `${session.dir}` and its like.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    path::PathBuf,
};

use stayput_core::{Digest, Owner, SessionId};

use crate::{nearest, place::Scope};

/// A name that a template can use.
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

    /// The known name that takes the fewest changes to get to from `name`.
    fn nearest(name: &str) -> &'static str {
        nearest(name, &Self::ALL.map(Self::name))
    }
}

/// A text with places for values, cut into pieces once, when the server is built.
///
/// `$${` stands for `${`. A `${…}` of any other kind is plain text here: the configuration file has
/// its own ones, and they were filled in when it was read.
pub(super) struct Template(Box<[Part]>);

pub(super) enum Part {
    Text(Box<str>),
    Value(Variable),
}

/// Why a text is no template.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TemplateError {
    Unclosed,
    Unknown { name: String, nearest: &'static str },
}

/// Longer names are cut in an error: whatever stands between an opening and a far brace is no name.
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
                    parts.push(Part::Text(std::mem::take(&mut plain).into()));
                }
                parts.push(Part::Value(variable));
                rest = after;
            } else {
                plain.push('$');
                rest = &rest[1..];
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain.into()));
        }
        Ok(Self(parts.into()))
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.0
    }

    /// The pieces that may be secrets. What begins in a private folder is a path.
    pub(super) fn secrets(&self) -> Vec<String> {
        if self.variables().any(Variable::is_dir) {
            return Vec::new();
        }
        let text = |part: &Part| match part {
            Part::Text(text) => Some(text.to_string()),
            Part::Value(_) => None,
        };
        self.0.iter().filter_map(text).collect()
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = Variable> + '_ {
        self.0.iter().filter_map(|part| match part {
            Part::Value(variable) => Some(*variable),
            Part::Text(_) => None,
        })
    }

    /// The text with all values in it, or the first name that has none.
    pub(super) fn fill(&self, expansion: &Expansion) -> Result<OsString, Variable> {
        let mut filled = OsString::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => filled.push(text.as_ref()),
                Part::Value(variable) => {
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

/// The values for one link: whose it is, as hashes, and where its private folders are.
///
/// A value is missing where there is nobody to take it from: a shared link belongs to no session and
/// to no owner, and a folder is there only if it was asked for.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Expansion {
    session_hash: Option<String>,
    owner_hash: Option<String>,
    session_dir: Option<PathBuf>,
    owner_dir: Option<PathBuf>,
}

impl Expansion {
    /// The hashes of `scope`, without folders.
    #[must_use]
    pub fn of(scope: &Scope) -> Self {
        let session_hash = match scope {
            Scope::Session { session, branch, .. } => Some(session_hash(*session, *branch)),
            Scope::Owner(_) | Scope::Shared => None,
        };
        let owner_hash = scope.owner().map(owner_hash);
        Self { session_hash, owner_hash, ..Self::default() }
    }

    /// With this folder as `${session.dir}`. It should be absolute: a child may start elsewhere.
    #[must_use]
    pub fn with_session_dir(mut self, folder: PathBuf) -> Self {
        self.session_dir = Some(folder);
        self
    }

    /// With this folder as `${owner.dir}`. It should be absolute: a child may start elsewhere.
    #[must_use]
    pub fn with_owner_dir(mut self, folder: PathBuf) -> Self {
        self.owner_dir = Some(folder);
        self
    }

    /// Values of the right form, to see at construction whether what they make can be used.
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

/// 128 bits: enough that no two ever meet, short enough for a host name or a file name.
const HASH_DIGITS: usize = 32;

fn session_hash(session: SessionId, branch: u64) -> String {
    let session = session.to_string();
    hash("session.hash", &[session.as_bytes(), &branch.to_be_bytes()])
}

/// What stands for `owner` in paths and in what servers see: never its name.
pub(crate) fn owner_hash(owner: &Owner) -> String {
    hash("owner.hash", &[owner.as_str().as_bytes()])
}

fn hash(label: &str, parts: &[&[u8]]) -> String {
    let mut digits = Digest::of(label, parts).to_hex();
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
    fn values_are_filled_in_where_they_stand() {
        assert_eq!(filled(""), "");
        assert_eq!(filled("--dir=${session.dir}/profile"), "--dir=/s/profile");
        assert_eq!(filled("${session.dir}${session.dir}"), "/s/s");
        assert_eq!(filled("${owner.hash}"), "0".repeat(32));
        assert_eq!(filled("ü${session.dir}ü"), "ü/sü");
    }

    #[test]
    fn what_is_not_ours_stays_as_it_is() {
        for text in ["$", "$$", "${X}", "${env:HOME}", "${", "$session.dir", "a$b", "${session}"] {
            assert_eq!(filled(text), text);
        }
    }

    #[test]
    fn a_doubled_dollar_takes_the_meaning_away() {
        assert_eq!(filled("$${session.dir}"), "${session.dir}");
        assert_eq!(filled("$${X}$${"), "${X}${");
        assert_eq!(filled("$$${session.dir}"), "$${session.dir}");
        assert_eq!(filled("$$x${session.dir}"), "$$x/s");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest_one() {
        for (text, nearest) in [
            ("${session.dri}", "session.dir"),
            ("${session.hsah}", "session.hash"),
            ("${owner.folder}", "owner.dir"),
            ("${owner.}", "owner.dir"),
            ("${session.dir/x}", "session.dir"),
            ("${session.dir:-/tmp}", "session.dir"),
            ("${owner.Hash}", "owner.hash"),
        ] {
            let Err(TemplateError::Unknown { nearest: said, .. }) = Template::parse(text) else {
                panic!("{text} was taken");
            };
            assert_eq!(said, nearest, "{text}");
        }
        assert_eq!(Template::parse("x${session.dir").err(), Some(TemplateError::Unclosed));
    }

    #[test]
    fn a_value_that_is_missing_is_named() {
        let template = Template::parse("${owner.hash}/${session.dir}").unwrap();
        assert_eq!(template.fill(&Expansion::sample()), Err(Variable::SessionDir));
        assert_eq!(template.fill(&Expansion::default()), Err(Variable::OwnerHash));
    }

    /// A server sees who is who, and never a name or an id.
    #[test]
    fn hashes_tell_apart_and_tell_nothing() {
        let session = SessionId::generate(Timestamp::from_millis(1));
        let ann = Owner::verified("https://id.example.com", "ann").unwrap();
        let scope = |branch| Scope::Session { owner: ann.clone(), session, branch };
        let (one, two) = (Expansion::of(&scope(0)), Expansion::of(&scope(1)));
        assert_ne!(one.value(Variable::SessionHash), two.value(Variable::SessionHash));
        assert_eq!(one.value(Variable::OwnerHash), two.value(Variable::OwnerHash));
        let hash = one.value(Variable::SessionHash).unwrap().to_str().unwrap();
        assert!(hash.len() == 32 && hash.bytes().all(|digit| digit.is_ascii_hexdigit()));
        assert_ne!(one.value(Variable::OwnerHash), one.value(Variable::SessionHash));
        assert_eq!(Expansion::of(&Scope::Owner(ann)).value(Variable::SessionHash), None);
        assert_eq!(Expansion::of(&Scope::Shared), Expansion::default());
    }
}
