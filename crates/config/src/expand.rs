//! Expansion of `${NAME}` and similar in configuration values.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use crate::{
    environment::{Environment, escaped},
    error::Problem,
};

/// Largest file whose text becomes a value. Keys and certificates are much smaller.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Longest name that an error shows.
const MAX_SHOWN_NAME: usize = 64;

/// Environment and folder used for expansion.
#[derive(Clone, Copy, Debug)]
pub struct ExpandContext<'a> {
    /// Source of variables.
    pub environment: &'a Environment,
    /// Folder of the configuration file.
    pub folder: &'a Path,
}

/// Use of an expanded text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Template of a server, which expands `${session.…}` and `${owner.…}` later and unescapes `$${`.
    Template,
    /// Text that is not expanded again.
    Final,
}

impl ExpandContext<'_> {
    /// Expands everything that is known now.
    pub(crate) fn expand(self, text: &str, target: Target) -> Result<String, Problem> {
        let mut expansion =
            Expansion { text: String::with_capacity(text.len()), target, dollar_pending: false };
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            if rest[..at].ends_with('$') {
                expansion.literal(&rest[..at - 1]);
                expansion.escape();
                rest = &rest[at + 2..];
                continue;
            }
            expansion.literal(&rest[..at]);
            let (name, after) = rest[at + 2..].split_once('}').ok_or(Problem::UnclosedComment)?;
            if name.starts_with("session.") || name.starts_with("owner.") {
                expansion.deferred(name)?;
            } else {
                expansion.value(&self.value(name)?);
            }
            rest = after;
        }
        expansion.literal(rest);
        Ok(expansion.text)
    }

    fn value(self, name: &str) -> Result<String, Problem> {
        if name.contains("${") {
            return Err(Problem::Nested);
        }
        if name == "stayput" {
            return self.environment.program().map(str::to_owned).ok_or(Problem::NoProgram);
        }
        if let Some(value) = self.editor_value(name)? {
            return Ok(value);
        }
        if let Some(path) = name.strip_prefix("file:") {
            return self.file_value(path).inspect(|value| self.environment.record_filled(value));
        }
        let variable = name.strip_prefix("env:").unwrap_or(name);
        let (variable, default) = match variable.split_once(":-") {
            Some((variable, default)) => (variable, Some(default)),
            None => (variable, None),
        };
        if !is_name(variable) {
            return Err(Problem::UnknownExpansion { name: displayable(variable) });
        }
        let value = self.environment.variable(variable);
        if let Some(value) = &value {
            self.environment.record_filled(value);
        }
        match default {
            // As in a shell, an empty value counts as unset.
            Some(default) => {
                Ok(value.filter(|value| !value.is_empty()).unwrap_or(default.to_owned()))
            }
            None => value.ok_or_else(|| Problem::Unset { name: variable.to_owned() }),
        }
    }

    /// Returns a value that editors fill in; `None` if the name is none of theirs.
    fn editor_value(self, name: &str) -> Result<Option<String>, Problem> {
        let text = |path: &Path| path.to_str().map(str::to_owned).ok_or(Problem::Folder);
        Ok(Some(match name {
            "workspaceFolder" => text(self.workspace())?,
            "workspaceFolderBasename" => {
                text(Path::new(self.workspace().file_name().unwrap_or_default()))?
            }
            "userHome" => text(&self.environment.home().ok_or(Problem::NoHome)?)?,
            "pathSeparator" | "/" => std::path::MAIN_SEPARATOR.to_string(),
            _ => {
                return match name.strip_prefix("input:") {
                    Some(input) => Err(Problem::Input { name: displayable(input) }),
                    None => Ok(None),
                };
            }
        }))
    }

    /// Returns the folder of the project: that of the file, or the one around `.vscode` and its like.
    fn workspace(&self) -> &Path {
        let hidden =
            self.folder.file_name().is_some_and(|it| it.as_encoded_bytes().starts_with(b"."));
        self.folder.parent().filter(|_| hidden).unwrap_or(self.folder)
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

    /// Returns the path of a file that the configuration depends on, and records it for [`crate::Document::files`].
    ///
    /// # Errors
    /// Fails like [`ExpandContext::path`].
    pub fn file(self, path: &str) -> Result<PathBuf, Problem> {
        let file = self.path(path)?;
        self.environment.record_file(&file);
        Ok(file)
    }

    /// Reads a file that the configuration names.
    pub(crate) fn read(self, path: &str) -> Result<String, Problem> {
        let file = self.file(path)?;
        let failed =
            |error: std::io::Error| Problem::File { file: file.clone(), kind: error.kind() };
        let mut bytes = Vec::new();
        let opened = std::fs::File::open(&file).map_err(failed)?;
        opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(Problem::LargeFile { file, limit: MAX_FILE_BYTES });
        }
        String::from_utf8(bytes).map_err(|_| Problem::BinaryFile { file })
    }

    /// Resolves a path relative to the folder of the configuration.
    ///
    /// # Errors
    /// Returns an error if the path starts with `~` and there is no home folder.
    pub fn path(self, path: &str) -> Result<PathBuf, Problem> {
        Ok(self.folder.join(self.expand_home(path)?))
    }

    /// Replaces `~/` by the home folder.
    pub(crate) fn expand_home(self, path: &str) -> Result<PathBuf, Problem> {
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

/// Returns a name for an error message. Anything that does not look like a name may be part of a password.
fn displayable(name: &str) -> String {
    let word = |c: u8| c.is_ascii_alphanumeric() || b"_-.:".contains(&c);
    if name.len() <= MAX_SHOWN_NAME && name.bytes().all(word) {
        name.to_owned()
    } else {
        "…".to_owned()
    }
}

/// Expanded text so far.
struct Expansion {
    text: String,
    target: Target,
    /// Whether a value ended with `$`. A following `{` would then start an expansion.
    dollar_pending: bool,
}

impl Expansion {
    fn literal(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.close(text);
        self.text.push_str(text);
        self.dollar_pending = false;
    }

    fn value(&mut self, value: &str) {
        if value.is_empty() {
            return;
        }
        self.close(value);
        match self.target {
            Target::Template => self.text.push_str(&escaped(value)),
            Target::Final => self.text.push_str(value),
        }
        self.dollar_pending = value.ends_with('$');
    }

    fn close(&mut self, next: &str) {
        if self.dollar_pending && self.target == Target::Template && next.starts_with('{') {
            self.text.push('$');
        }
    }

    /// Appends an escaped `${`.
    fn escape(&mut self) {
        let escaped = if self.target == Target::Template { "$${" } else { "${" };
        self.text.push_str(escaped);
        self.dollar_pending = false;
    }

    fn deferred(&mut self, name: &str) -> Result<(), Problem> {
        if self.target == Target::Final {
            return Err(Problem::NotHere { name: displayable(name) });
        }
        if self.dollar_pending {
            return Err(Problem::Dollar { name: displayable(name) });
        }
        self.text.push_str("${");
        self.text.push_str(name);
        self.text.push('}');
        self.dollar_pending = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str, target: Target) -> Result<String, Problem> {
        let variables = [
            ("X", "ex"),
            ("EMPTY", ""),
            ("DOLLAR", "a$"),
            ("BRACE", "{b}"),
            ("ODD", "${session.dir}"),
        ];
        let environment = Environment::from_variables(&variables, "/bin/stayput");
        let context = ExpandContext { environment: &environment, folder: Path::new("/nowhere") };
        context.expand(text, target)
    }

    fn template(text: &str) -> String {
        expand(text, Target::Template).unwrap()
    }

    #[test]
    fn variables_are_expanded() {
        for (text, value) in [
            ("", ""),
            ("a$b {x} $", "a$b {x} $"),
            ("${X}", "ex"),
            ("-${env:X}-${X}-", "-ex-ex-"),
            ("${X:-y}${NO:-y z}${EMPTY:-y}${env:NO:-}", "exy zy"),
            ("${EMPTY}", ""),
            ("${stayput}", "/bin/stayput"),
            ("${workspaceFolder}${/}x", "/nowhere/x"),
            ("${workspaceFolderBasename}", "nowhere"),
        ] {
            assert_eq!(template(text), value, "{text}");
            assert_eq!(expand(text, Target::Final).unwrap(), value, "{text}");
        }
    }

    #[test]
    fn session_values_are_left_for_the_template() {
        assert_eq!(template("${session.dir}/${X}"), "${session.dir}/ex");
        assert_eq!(template("$${X}$${session.dir}"), "$${X}$${session.dir}");
        assert_eq!(template("$$${X}"), "$$${X}");
        assert_eq!(expand("$${X}", Target::Final).unwrap(), "${X}");
        let error = expand("${session.dir}", Target::Final).unwrap_err();
        assert!(error.to_string().contains("session.dir"));
    }

    /// A secret that looks like a template is taken literally.
    #[test]
    fn value_is_never_read_as_a_template() {
        assert_eq!(template("${ODD}"), "$${session.dir}");
        assert_eq!(expand("${ODD}", Target::Final).unwrap(), "${session.dir}");
        assert_eq!(template("${DOLLAR}${BRACE}"), "a$${b}");
        assert_eq!(template("${DOLLAR}{b}"), "a$${b}");
        assert_eq!(expand("${DOLLAR}{b}", Target::Final).unwrap(), "a${b}");
        let error = expand("${DOLLAR}${session.dir}", Target::Template).unwrap_err();
        assert!(error.to_string().contains("ends with $"));
    }

    #[test]
    fn invalid_expansion_is_reported() {
        for (text, says) in [
            ("${NO}", "NO is not set"),
            ("${env:NO}", "NO is not set"),
            ("${NO", "not closed"),
            ("${input:token}", "${input:token} is missing"),
            ("${}", "not a known expansion"),
            ("${1}", "not a known expansion"),
            ("${A-B:-s3cret}", "${A-B}"),
            ("x${s3cret!}", "${…}"),
            ("${NO:-${X}}", "inside another"),
            ("${file:${X}}", "inside another"),
            ("${file:no/such}", "/nowhere/no/such"),
            ("${file:~/x}", "HOME"),
        ] {
            let error = expand(text, Target::Template).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("s3cret"), "{text}: {error}");
        }
    }
}
