//! What is filled in when a configuration is read: `${NAME}` and its like.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use crate::{environment::Environment, error::Problem};

/// The most bytes of a file whose text becomes a value: a key or a certificate is much smaller.
const FILE_LIMIT: u64 = 64 << 10;

/// What is longer is no name.
const NAME_SHOWN: usize = 64;

/// What stands around a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// Where the values of variables come from.
    pub environment: &'a Environment,
    /// The folder of the file.
    pub folder: &'a Path,
}

/// Who reads a text after it was filled in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A server's template, which fills in `${session.…}` and `${owner.…}` and takes `$${` away.
    Template,
    /// Nobody.
    Nobody,
}

impl Around<'_> {
    /// The text with everything filled in that is known now.
    pub(crate) fn fill(self, text: &str, reader: Reader) -> Result<String, Problem> {
        let mut filled = Filled { text: String::with_capacity(text.len()), reader, open: false };
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            if rest[..at].ends_with('$') {
                filled.literal(&rest[..at - 1]);
                filled.escape();
                rest = &rest[at + 2..];
                continue;
            }
            filled.literal(&rest[..at]);
            let (name, after) = rest[at + 2..].split_once('}').ok_or(Problem::Unclosed)?;
            if name.starts_with("session.") || name.starts_with("owner.") {
                filled.later(name)?;
            } else {
                filled.value(&self.value(name)?);
            }
            rest = after;
        }
        filled.literal(rest);
        Ok(filled.text)
    }

    fn value(self, name: &str) -> Result<String, Problem> {
        if name.contains("${") {
            return Err(Problem::Nested);
        }
        if name == "stayput" {
            return self.environment.program().map(str::to_owned).ok_or(Problem::NoProgram);
        }
        if let Some(path) = name.strip_prefix("file:") {
            return self.file_value(path).inspect(|value| self.environment.note_filled(value));
        }
        let variable = name.strip_prefix("env:").unwrap_or(name);
        let (variable, default) = match variable.split_once(":-") {
            Some((variable, default)) => (variable, Some(default)),
            None => (variable, None),
        };
        if !is_name(variable) {
            return Err(Problem::UnknownExpansion { name: shown(variable) });
        }
        let value = self.environment.variable(variable);
        if let Some(value) = &value {
            self.environment.note_filled(value);
        }
        match default {
            // As in a shell, an empty value is none.
            Some(default) => {
                Ok(value.filter(|value| !value.is_empty()).unwrap_or(default.to_owned()))
            }
            None => value.ok_or_else(|| Problem::Unset { name: variable.to_owned() }),
        }
    }

    fn file_value(self, path: &str) -> Result<String, Problem> {
        let mut text = self.read(path)?;
        if text.ends_with('\n') {
            text.pop();
            if text.ends_with('\r') {
                text.pop();
            }
        }
        Ok(text)
    }

    /// A file that the configuration names, and on whose text it depends, see [`crate::Document::files`].
    ///
    /// # Errors
    /// As for [`Around::path`].
    pub fn file(self, path: &str) -> Result<PathBuf, Problem> {
        let file = self.path(path)?;
        self.environment.name_file(&file);
        Ok(file)
    }

    /// The text of a file that the configuration names.
    pub(crate) fn read(self, path: &str) -> Result<String, Problem> {
        let file = self.file(path)?;
        let failed =
            |error: std::io::Error| Problem::File { file: file.clone(), kind: error.kind() };
        let mut bytes = Vec::new();
        let opened = std::fs::File::open(&file).map_err(failed)?;
        opened.take(FILE_LIMIT + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > FILE_LIMIT {
            return Err(Problem::LargeFile { file, limit: FILE_LIMIT });
        }
        String::from_utf8(bytes).map_err(|_| Problem::BinaryFile { file })
    }

    /// A path that the configuration names, from the folder of the configuration on.
    ///
    /// # Errors
    /// If it begins with `~`, and there is no folder of the user.
    pub fn path(self, path: &str) -> Result<PathBuf, Problem> {
        Ok(self.folder.join(self.at_home(path)?))
    }

    /// A path with the user's folder for `~/`.
    pub(crate) fn at_home(self, path: &str) -> Result<PathBuf, Problem> {
        match path.strip_prefix("~/").or((path == "~").then_some("")) {
            Some(rest) => Ok(self.environment.home().ok_or(Problem::NoHome)?.join(rest)),
            None => Ok(path.into()),
        }
    }
}

fn is_name(name: &str) -> bool {
    let word = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    !name.is_empty() && name.bytes().all(word) && !name.as_bytes()[0].is_ascii_digit()
}

/// A name for an error. What looks like none may be a part of a password.
fn shown(name: &str) -> String {
    let word = |c: u8| c.is_ascii_alphanumeric() || b"_-.:".contains(&c);
    if name.len() <= NAME_SHOWN && name.bytes().all(word) {
        name.to_owned()
    } else {
        "…".to_owned()
    }
}

/// A value as it is, for a text that is read as a template later: nothing in it has a meaning.
pub(crate) fn escaped(value: &str) -> String {
    value.replace("${", "$${")
}

/// The text so far.
struct Filled {
    text: String,
    reader: Reader,
    /// A value ended with a dollar: a brace behind it would get a meaning that nobody wrote.
    open: bool,
}

impl Filled {
    fn literal(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.close(text);
        self.text.push_str(text);
        self.open = false;
    }

    fn value(&mut self, value: &str) {
        if value.is_empty() {
            return;
        }
        self.close(value);
        match self.reader {
            Reader::Template => self.text.push_str(&escaped(value)),
            Reader::Nobody => self.text.push_str(value),
        }
        self.open = value.ends_with('$');
    }

    fn close(&mut self, next: &str) {
        if self.open && self.reader == Reader::Template && next.starts_with('{') {
            self.text.push('$');
        }
    }

    /// `$${`, as it was written.
    fn escape(&mut self) {
        let kept = if self.reader == Reader::Template { "$${" } else { "${" };
        self.text.push_str(kept);
        self.open = false;
    }

    fn later(&mut self, name: &str) -> Result<(), Problem> {
        if self.reader == Reader::Nobody {
            return Err(Problem::NotHere { name: shown(name) });
        }
        if self.open {
            return Err(Problem::Dollar { name: shown(name) });
        }
        self.text.push_str("${");
        self.text.push_str(name);
        self.text.push('}');
        self.open = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str, reader: Reader) -> Result<String, Problem> {
        let variables = [
            ("X", "ex"),
            ("EMPTY", ""),
            ("DOLLAR", "a$"),
            ("BRACE", "{b}"),
            ("ODD", "${session.dir}"),
        ];
        let environment = Environment::of(&variables, "/bin/stayput");
        let around = Around { environment: &environment, folder: Path::new("/nowhere") };
        around.fill(text, reader)
    }

    fn template(text: &str) -> String {
        filled(text, Reader::Template).unwrap()
    }

    #[test]
    fn variables_are_filled_in() {
        for (text, value) in [
            ("", ""),
            ("a$b {x} $", "a$b {x} $"),
            ("${X}", "ex"),
            ("-${env:X}-${X}-", "-ex-ex-"),
            ("${X:-y}${NO:-y z}${EMPTY:-y}${env:NO:-}", "exy zy"),
            ("${EMPTY}", ""),
            ("${stayput}", "/bin/stayput"),
        ] {
            assert_eq!(template(text), value, "{text}");
            assert_eq!(filled(text, Reader::Nobody).unwrap(), value, "{text}");
        }
    }

    #[test]
    fn what_a_server_fills_in_is_left_for_it() {
        assert_eq!(template("${session.dir}/${X}"), "${session.dir}/ex");
        assert_eq!(template("$${X}$${session.dir}"), "$${X}$${session.dir}");
        assert_eq!(template("$$${X}"), "$$${X}");
        assert_eq!(filled("$${X}", Reader::Nobody).unwrap(), "${X}");
        let error = filled("${session.dir}", Reader::Nobody).unwrap_err();
        assert!(error.to_string().contains("session.dir"));
    }

    /// A password is a password, whatever it looks like.
    #[test]
    fn a_value_is_never_read_as_a_template() {
        assert_eq!(template("${ODD}"), "$${session.dir}");
        assert_eq!(filled("${ODD}", Reader::Nobody).unwrap(), "${session.dir}");
        assert_eq!(template("${DOLLAR}${BRACE}"), "a$${b}");
        assert_eq!(template("${DOLLAR}{b}"), "a$${b}");
        assert_eq!(filled("${DOLLAR}{b}", Reader::Nobody).unwrap(), "a${b}");
        let error = filled("${DOLLAR}${session.dir}", Reader::Template).unwrap_err();
        assert!(error.to_string().contains("ends with $"));
    }

    #[test]
    fn what_cannot_be_filled_in_is_said() {
        for (text, says) in [
            ("${NO}", "NO is not set"),
            ("${env:NO}", "NO is not set"),
            ("${NO", "not closed"),
            ("${input:token}", "${input:token}"),
            ("${}", "nothing that can be filled in"),
            ("${1}", "nothing that can be filled in"),
            ("${A-B:-s3cret}", "${A-B}"),
            ("x${s3cret!}", "${…}"),
            ("${NO:-${X}}", "inside another"),
            ("${file:${X}}", "inside another"),
            ("${file:no/such}", "/nowhere/no/such"),
            ("${file:~/x}", "HOME"),
        ] {
            let error = filled(text, Reader::Template).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("s3cret"), "{text}: {error}");
        }
    }
}
