//! Configuration value with its path in the file.

use std::{borrow::Cow, time::Duration};

use stayput_upstream::nearest;
use stayput_wire::Raw;

use crate::{
    error::Problem,
    expand::{ExpandContext, Target},
    units,
};

/// Error at one place of the file.
#[derive(Debug)]
pub struct ValueError {
    pub(crate) at: usize,
    pub(crate) key: String,
    pub(crate) problem: Box<Problem>,
}

impl ValueError {
    /// Returns whether the error is an unset variable.
    #[must_use]
    pub fn is_unset(&self) -> bool {
        matches!(*self.problem, Problem::Unset { .. })
    }
}

/// Result of reading a value.
pub type ReadResult<T> = Result<T, ValueError>;

/// JSON value with its path. Texts are expanded when they are read.
#[derive(Clone, Debug)]
pub struct ConfigValue<'a> {
    raw: Raw<'a>,
    key: String,
    /// Environment and folder used for expansion.
    pub context: ExpandContext<'a>,
}

/// Members of an object, without duplicates.
#[derive(Debug)]
pub struct ConfigObject<'a> {
    members: Vec<Member<'a>>,
}

/// Member of an object.
#[derive(Debug)]
pub struct Member<'a> {
    /// Name of the member.
    pub name: Cow<'a, str>,
    name_at: usize,
    /// Value of the member.
    pub value: ConfigValue<'a>,
}

/// Longest part of a path that an error shows.
const MAX_SHOWN_KEY: usize = 64;

impl<'a> ConfigValue<'a> {
    /// Returns the root value of a file.
    pub(crate) fn root(raw: Raw<'a>, context: ExpandContext<'a>) -> Self {
        Self { raw, key: String::new(), context }
    }

    /// Returns an error at this value.
    #[must_use]
    pub fn error(&self, problem: Problem) -> ValueError {
        ValueError { at: self.raw.range().start, key: self.key.clone(), problem: problem.into() }
    }

    /// Returns the JSON text without comments, not expanded.
    #[must_use]
    pub fn as_str(&self) -> &'a str {
        self.raw.as_str()
    }

    pub(crate) fn unexpected(&self, expected: &'static str) -> ValueError {
        self.error(Problem::Form { expected })
    }

    fn child(&self, name: &str, raw: Raw<'a>) -> Self {
        let name: String = name.chars().take(MAX_SHOWN_KEY).flat_map(char::escape_debug).collect();
        let key = if self.key.is_empty() { name } else { format!("{}.{name}", self.key) };
        Self { raw, key, context: self.context }
    }

    /// Returns the members of an object.
    ///
    /// # Errors
    /// Returns an error if the value is no object, or has a duplicate name.
    pub fn object(&self) -> ReadResult<ConfigObject<'a>> {
        if !self.raw.is_object() {
            return Err(self.unexpected("an object, in braces"));
        }
        let mut members: Vec<Member<'a>> = Vec::new();
        for (name, raw) in self.raw.members() {
            let name_at = name.range().start;
            let name = name.text().unwrap_or_default();
            let value = self.child(&name, raw);
            let member = Member { name, name_at, value };
            if members.iter().any(|known| known.name == member.name) {
                return Err(member.error(Problem::Twice));
            }
            members.push(member);
        }
        Ok(ConfigObject { members })
    }

    /// Returns the members of an object that may have these keys only.
    ///
    /// # Errors
    /// Returns an error if the value is no such object.
    pub fn object_with_keys(&self, keys: &[&'static str]) -> ReadResult<ConfigObject<'a>> {
        let object = self.object()?;
        if let Some(member) = object.iter().find(|member| !keys.contains(&&*member.name)) {
            let nearest = nearest(&member.name, keys);
            return Err(member.error(Problem::UnknownKey { nearest }));
        }
        Ok(object)
    }

    /// Returns the elements of a list.
    ///
    /// # Errors
    /// Returns an error if the value is no list.
    pub fn list(&self) -> ReadResult<Vec<Self>> {
        if !self.raw.is_array() {
            return Err(self.unexpected("a list, in brackets"));
        }
        let elements = self.raw.elements().enumerate();
        Ok(elements.map(|(at, raw)| self.child(&at.to_string(), raw)).collect())
    }

    /// Returns whether the value is a number.
    #[must_use]
    pub fn is_number(&self) -> bool {
        self.raw.is_number()
    }

    /// Returns whether the value is a list.
    #[must_use]
    pub fn is_array(&self) -> bool {
        self.raw.is_array()
    }

    /// Returns whether the value is an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.raw.is_object()
    }

    /// Reads a boolean.
    ///
    /// # Errors
    /// Returns an error if the value is no boolean.
    pub fn boolean(&self) -> ReadResult<bool> {
        self.raw.boolean().ok_or_else(|| self.unexpected("true or false"))
    }

    /// Reads an expanded text.
    ///
    /// # Errors
    /// Returns an error if the value is no text, or cannot be expanded.
    pub fn text(&self) -> ReadResult<String> {
        self.expand(Target::Final)
    }

    /// Reads a text that the server expands further for each session.
    ///
    /// # Errors
    /// Fails like [`ConfigValue::text`].
    pub fn template(&self) -> ReadResult<String> {
        self.expand(Target::Template)
    }

    fn expand(&self, target: Target) -> ReadResult<String> {
        let text = self.raw.text().ok_or_else(|| self.unexpected("a text, in double quotes"))?;
        self.context.expand(&text, target).map_err(|problem| self.error(problem))
    }

    /// Reads a list of texts.
    ///
    /// # Errors
    /// Returns an error if the value is no list of texts.
    pub fn texts(&self) -> ReadResult<Vec<String>> {
        self.list()?.iter().map(Self::text).collect()
    }

    /// Reads one of the words in `choices`.
    ///
    /// # Errors
    /// Returns an error if the value is none of them.
    pub fn choice<T: Copy>(&self, choices: &[(&'static str, T)]) -> ReadResult<T> {
        let text = self.text()?;
        let found = choices.iter().find(|(word, _)| *word == text);
        found.map(|(_, choice)| *choice).ok_or_else(|| {
            let words: Vec<&'static str> = choices.iter().map(|(word, _)| *word).collect();
            self.error(Problem::UnknownValue { nearest: nearest(&text, &words) })
        })
    }

    /// Reads a whole number from 0.
    ///
    /// # Errors
    /// Returns an error if the value is no such number.
    pub fn count(&self) -> ReadResult<usize> {
        let number = self.raw.integer().and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| self.unexpected("a whole number that is not negative"))
    }

    /// Reads a whole number from 1.
    ///
    /// # Errors
    /// Returns an error if the value is no such number.
    pub fn positive(&self) -> ReadResult<usize> {
        self.count()
            .ok()
            .filter(|count| *count > 0)
            .ok_or_else(|| self.unexpected("a whole number from 1"))
    }

    /// Reads a duration.
    ///
    /// # Errors
    /// Returns an error if the value is no duration.
    pub fn duration(&self) -> ReadResult<Duration> {
        self.span("a time such as \"30s\", \"5m\" or \"1h\", or a number of seconds")
    }

    fn span(&self, expected: &'static str) -> ReadResult<Duration> {
        let span = if self.is_number() {
            units::seconds(self.raw.as_str())
        } else {
            units::duration(&self.text_or(expected)?)
        };
        span.ok_or_else(|| self.unexpected(expected))
    }

    /// Reads a text where another type is also allowed.
    fn text_or(&self, expected: &'static str) -> ReadResult<String> {
        self.raw.text().ok_or_else(|| self.unexpected(expected))?;
        self.text()
    }

    /// Reads a duration, or `None` for "never".
    ///
    /// # Errors
    /// Returns an error if the value is neither.
    pub fn lifetime(&self) -> ReadResult<Option<Duration>> {
        if self.raw.text().as_deref() == Some("never") {
            return Ok(None);
        }
        let expected = "a time above zero such as \"30m\", \"24h\" or \"7d\", or \"never\"";
        let span = self.span(expected)?;
        if span.is_zero() { Err(self.unexpected(expected)) } else { Ok(Some(span)) }
    }

    /// Reads a size in bytes.
    ///
    /// # Errors
    /// Returns an error if the value is no size.
    pub fn bytes(&self) -> ReadResult<u64> {
        let expected = "an amount above zero such as \"32MiB\" or \"2GiB\", or a number of bytes";
        let amount = if self.is_number() {
            self.raw.integer().and_then(|number| u64::try_from(number).ok())
        } else {
            units::bytes(&self.text_or(expected)?)
        };
        amount.filter(|amount| *amount > 0).ok_or_else(|| self.unexpected(expected))
    }
}

impl<'a> ConfigObject<'a> {
    /// Returns the value of a member.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ConfigValue<'a>> {
        self.members.iter().find(|member| member.name == name).map(|member| &member.value)
    }

    /// Returns all members in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Member<'a>> {
        self.members.iter()
    }

    /// Returns the members whose values are objects.
    pub(crate) fn objects_only(self) -> Self {
        let members = self.members.into_iter().filter(|member| member.value.is_object());
        Self { members: members.collect() }
    }

    /// Passes the value of a member to `read`, if there is one.
    ///
    /// # Errors
    /// Returns the error of `read`.
    pub fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(&ConfigValue<'a>) -> ReadResult<T>,
    ) -> ReadResult<Option<T>> {
        self.get(name).map(read).transpose()
    }
}

impl Member<'_> {
    /// Returns an error at the name of this member.
    #[must_use]
    pub fn error(&self, problem: Problem) -> ValueError {
        ValueError { at: self.name_at, ..self.value.error(problem) }
    }
}
