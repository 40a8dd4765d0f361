//! A value of a configuration, with the way to it.

use std::{borrow::Cow, time::Duration};

use stayput_upstream::nearest;
use stayput_wire::Raw;

use crate::{
    error::Problem,
    expand::{Around, Reader},
    units,
};

/// What is wrong at one place of the file.
#[derive(Debug)]
pub struct Wrong {
    pub(crate) at: usize,
    pub(crate) key: String,
    pub(crate) problem: Box<Problem>,
}

impl Wrong {
    /// Whether all that is wrong is that a variable is not set.
    #[must_use]
    pub fn is_unset(&self) -> bool {
        matches!(*self.problem, Problem::Unset { .. })
    }
}

/// What was read, or what is wrong.
pub type Read<T> = Result<T, Wrong>;

/// A value where it stands. Texts are filled in as they are read.
#[derive(Clone, Debug)]
pub struct Spot<'a> {
    raw: Raw<'a>,
    key: String,
    /// What stands around the file.
    pub around: Around<'a>,
}

/// The members of an object, each name once.
#[derive(Debug)]
pub struct Table<'a> {
    members: Vec<Member<'a>>,
}

/// A member of an object.
#[derive(Debug)]
pub struct Member<'a> {
    /// What it is called.
    pub name: Cow<'a, str>,
    name_at: usize,
    /// What it is.
    pub value: Spot<'a>,
}

/// A key that is shown; what is longer was meant to be something else.
const KEY_SHOWN: usize = 64;

impl<'a> Spot<'a> {
    /// The whole file.
    pub(crate) fn root(raw: Raw<'a>, around: Around<'a>) -> Self {
        Self { raw, key: String::new(), around }
    }

    /// Something is wrong with it.
    #[must_use]
    pub fn wrong(&self, problem: Problem) -> Wrong {
        Wrong { at: self.raw.range().start, key: self.key.clone(), problem: problem.into() }
    }

    /// It as it was written, without comments. Nothing is filled in.
    #[must_use]
    pub fn as_str(&self) -> &'a str {
        self.raw.as_str()
    }

    fn form(&self, expected: &'static str) -> Wrong {
        self.wrong(Problem::Form { expected })
    }

    fn inner(&self, name: &str, raw: Raw<'a>) -> Self {
        let name: String = name.chars().take(KEY_SHOWN).flat_map(char::escape_debug).collect();
        let key = if self.key.is_empty() { name } else { format!("{}.{name}", self.key) };
        Self { raw, key, around: self.around }
    }

    /// The members of an object, whatever they are called.
    ///
    /// # Errors
    /// If it is no object, or a name stands in it twice.
    pub fn table(&self) -> Read<Table<'a>> {
        if !self.raw.is_object() {
            return Err(self.form("an object, in braces"));
        }
        let mut members: Vec<Member<'a>> = Vec::new();
        for (name, raw) in self.raw.members() {
            let name_at = name.range().start;
            let name = name.text().unwrap_or_default();
            let value = self.inner(&name, raw);
            let member = Member { name, name_at, value };
            if members.iter().any(|known| known.name == member.name) {
                return Err(member.wrong(Problem::Twice));
            }
            members.push(member);
        }
        Ok(Table { members })
    }

    /// The members of an object that can have these and no others.
    ///
    /// # Errors
    /// If it is no such object.
    pub fn known(&self, keys: &[&'static str]) -> Read<Table<'a>> {
        let table = self.table()?;
        if let Some(member) = table.iter().find(|member| !keys.contains(&&*member.name)) {
            let nearest = nearest(&member.name, keys);
            return Err(member.wrong(Problem::UnknownKey { nearest }));
        }
        Ok(table)
    }

    /// The elements of a list.
    ///
    /// # Errors
    /// If it is none.
    pub fn list(&self) -> Read<Vec<Self>> {
        if !self.raw.is_array() {
            return Err(self.form("a list, in brackets"));
        }
        let elements = self.raw.elements().enumerate();
        Ok(elements.map(|(at, raw)| self.inner(&at.to_string(), raw)).collect())
    }

    /// Whether it is a number.
    #[must_use]
    pub fn is_number(&self) -> bool {
        self.raw.is_number()
    }

    /// Whether it is a list.
    #[must_use]
    pub fn is_array(&self) -> bool {
        self.raw.is_array()
    }

    /// Whether it is an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.raw.is_object()
    }

    /// Yes or no.
    ///
    /// # Errors
    /// If it is neither.
    pub fn boolean(&self) -> Read<bool> {
        self.raw.boolean().ok_or_else(|| self.form("true or false"))
    }

    /// A text with everything filled in.
    ///
    /// # Errors
    /// If it is no text, or something in it cannot be filled in.
    pub fn text(&self) -> Read<String> {
        self.filled(Reader::Nobody)
    }

    /// A text in which a server fills in the rest.
    ///
    /// # Errors
    /// As for [`Spot::text`].
    pub fn template(&self) -> Read<String> {
        self.filled(Reader::Template)
    }

    fn filled(&self, reader: Reader) -> Read<String> {
        let text = self.raw.text().ok_or_else(|| self.form("a text, in double quotes"))?;
        self.around.fill(&text, reader).map_err(|problem| self.wrong(problem))
    }

    /// A list of texts.
    ///
    /// # Errors
    /// If it is none.
    pub fn texts(&self) -> Read<Vec<String>> {
        self.list()?.iter().map(Self::text).collect()
    }

    /// One of a few words.
    ///
    /// # Errors
    /// If it is none of them.
    pub fn choice<T: Copy>(&self, choices: &[(&'static str, T)]) -> Read<T> {
        let text = self.text()?;
        let found = choices.iter().find(|(word, _)| *word == text);
        found.map(|(_, choice)| *choice).ok_or_else(|| {
            let words: Vec<&'static str> = choices.iter().map(|(word, _)| *word).collect();
            self.wrong(Problem::UnknownValue { nearest: nearest(&text, &words) })
        })
    }

    /// How many.
    ///
    /// # Errors
    /// If it is no whole number, or negative.
    pub fn count(&self) -> Read<usize> {
        let number = self.raw.integer().and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| self.form("a whole number that is not negative"))
    }

    /// How many, and not none.
    ///
    /// # Errors
    /// If it is no whole number from 1.
    pub fn some(&self) -> Read<usize> {
        self.count()
            .ok()
            .filter(|count| *count > 0)
            .ok_or_else(|| self.form("a whole number from 1"))
    }

    /// A time.
    ///
    /// # Errors
    /// If it is none.
    pub fn duration(&self) -> Read<Duration> {
        self.span("a time such as \"30s\", \"5m\" or \"1h\", or a number of seconds")
    }

    fn span(&self, expected: &'static str) -> Read<Duration> {
        let span = if self.is_number() {
            units::seconds(self.raw.as_str())
        } else {
            units::duration(&self.word(expected)?)
        };
        span.ok_or_else(|| self.form(expected))
    }

    /// A text where something else could stand as well.
    fn word(&self, expected: &'static str) -> Read<String> {
        self.raw.text().ok_or_else(|| self.form(expected))?;
        self.text()
    }

    /// A time, or none at all.
    ///
    /// # Errors
    /// If it is neither.
    pub fn lifetime(&self) -> Read<Option<Duration>> {
        if self.raw.text().as_deref() == Some("never") {
            return Ok(None);
        }
        let expected = "a time above zero such as \"30m\", \"24h\" or \"7d\", or \"never\"";
        let span = self.span(expected)?;
        if span.is_zero() { Err(self.form(expected)) } else { Ok(Some(span)) }
    }

    /// An amount of bytes.
    ///
    /// # Errors
    /// If it is none.
    pub fn bytes(&self) -> Read<u64> {
        let expected = "an amount above zero such as \"32MiB\" or \"2GiB\", or a number of bytes";
        let amount = if self.is_number() {
            self.raw.integer().and_then(|number| u64::try_from(number).ok())
        } else {
            units::bytes(&self.word(expected)?)
        };
        amount.filter(|amount| *amount > 0).ok_or_else(|| self.form(expected))
    }
}

impl<'a> Table<'a> {
    /// A member.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Spot<'a>> {
        self.members.iter().find(|member| member.name == name).map(|member| &member.value)
    }

    /// All of them, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Member<'a>> {
        self.members.iter()
    }

    /// What `read` makes of a member, if it is there.
    ///
    /// # Errors
    /// What `read` says.
    pub fn read<T>(&self, name: &str, read: impl FnOnce(&Spot<'a>) -> Read<T>) -> Read<Option<T>> {
        self.get(name).map(read).transpose()
    }
}

impl Member<'_> {
    /// Something is wrong with its name.
    #[must_use]
    pub fn wrong(&self, problem: Problem) -> Wrong {
        Wrong { at: self.name_at, ..self.value.wrong(problem) }
    }
}
