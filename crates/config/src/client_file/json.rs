//! Edits of a client's JSON file with comments, as splices of its text.

use std::{borrow::Cow, ops::Range};

use stayput_wire::{Raw, json::quote};

use super::{
    EditedServer, FileEdit, ServerChange, SyntaxError, URL_KEYS, is_stayput, is_wrapped,
    proxy_args_len,
};
use crate::{error::Problem, jsonc};

/// Replacement of a part of the text.
struct Splice {
    range: Range<usize>,
    text: String,
}

/// Entry of a server, with the text of the file.
struct Entry<'a> {
    text: &'a str,
    value: Raw<'a>,
}

/// Command of an entry. Some clients have one list for the command and its arguments.
enum Command<'a> {
    Words(Vec<Raw<'a>>),
    Program { command: Raw<'a>, args: Option<Raw<'a>> },
}

pub(super) fn wrap(
    text: &str,
    program: &str,
    proxy: impl Fn(&str) -> Vec<String>,
) -> Result<FileEdit, SyntaxError> {
    edit(text, &[], |name, entry| entry.wrap(program, &proxy(name)))
}

pub(super) fn unwrap(text: &str, keep: &[&str]) -> Result<FileEdit, SyntaxError> {
    edit(text, keep, |_, entry| entry.strip())
}

fn edit(
    text: &str,
    keep: &[&str],
    change: impl Fn(&str, &Entry<'_>) -> Result<Vec<Splice>, ServerChange>,
) -> Result<FileEdit, SyntaxError> {
    let plain = jsonc::to_json(text)
        .map_err(|unclosed| SyntaxError { at: unclosed.0, problem: Problem::Comment })?;
    let root = Raw::parse(&plain)
        .map_err(|error| SyntaxError { at: error.at(), problem: Problem::Syntax(error.kind()) })?;
    let (mut servers, mut splices) = (Vec::new(), Vec::new());
    for (project, list) in lists(root) {
        for (name, value) in list.members().filter(|(_, value)| value.is_object()) {
            let key = name.text().unwrap_or_default();
            let name = match &project {
                Some(project) => format!("{key} ({project})"),
                None => key.clone().into_owned(),
            };
            let change = match keep.contains(&&*name) {
                true => Err(ServerChange::Unchanged),
                false => change(&key, &Entry { text, value }),
            };
            let change = match change {
                Ok(edits) => {
                    splices.extend(edits);
                    ServerChange::Changed
                }
                Err(change) => change,
            };
            servers.push(EditedServer { name, change });
        }
    }
    Ok(FileEdit { text: apply(text, splices), servers })
}

/// Returns the lists of servers of a file, with the project of each.
fn lists(root: Raw<'_>) -> Vec<(Option<String>, Raw<'_>)> {
    let mut found = Vec::new();
    for (name, value) in root.members() {
        match name.text().as_deref() {
            Some("mcpServers" | "servers") => found.push((None, value)),
            Some("mcp") => {
                let nested = value.find(&["servers"]).filter(|it| it.is_object());
                found.push((None, nested.unwrap_or(value)));
            }
            Some("projects") => found.extend(value.members().filter_map(|(project, value)| {
                let project = project.text().unwrap_or_default().into_owned();
                Some((Some(project), value.find(&["mcpServers"])?))
            })),
            _ => {}
        }
    }
    found
}

fn apply(text: &str, mut splices: Vec<Splice>) -> String {
    splices.sort_by_key(|splice| splice.range.start);
    let (mut edited, mut copied) = (String::with_capacity(text.len()), 0);
    for Splice { range, text: new } in splices {
        edited.push_str(text.get(copied..range.start).unwrap_or_default());
        edited.push_str(&new);
        copied = range.end;
    }
    edited + text.get(copied..).unwrap_or_default()
}

impl<'a> Entry<'a> {
    fn command(&self) -> Result<Command<'a>, ServerChange> {
        let find = |name: &str| self.value.find(&[name]);
        let Some(command) = find("command") else {
            let remote = URL_KEYS.iter().any(|key| find(key).is_some());
            return Err(if remote { ServerChange::Remote } else { ServerChange::Unreadable });
        };
        let args = find("args");
        let is_list = |it: &Raw<'_>| it.is_array() && it.elements().all(|it| it.text().is_some());
        match args.is_none_or(|args| is_list(&args)) {
            true if is_list(&command) && command.elements().next().is_some() => {
                Ok(Command::Words(command.elements().collect()))
            }
            true if command.text().is_some_and(|text| !text.is_empty()) => {
                Ok(Command::Program { command, args })
            }
            _ => Err(ServerChange::Unreadable),
        }
    }

    fn wrap(&self, program: &str, proxy: &[String]) -> Result<Vec<Splice>, ServerChange> {
        let proxy: Vec<String> = proxy.iter().map(|word| quote(word)).collect();
        let proxy = proxy.iter().map(String::as_str);
        match self.command()? {
            Command::Words(words) => {
                if is_wrapped(&word(&words, 0), words.get(1).and_then(|it| it.text()).as_deref()) {
                    return Err(ServerChange::Unchanged);
                }
                let program = quote(program);
                let new: Vec<&str> = std::iter::once(&*program).chain(proxy).collect();
                Ok(vec![self.insert_before(words[0], &new)])
            }
            Command::Program { command, args } => {
                let words: Vec<Raw<'_>> = args.iter().flat_map(|it| it.elements()).collect();
                let first = words.first().and_then(|it| it.text());
                if is_wrapped(&command.text().unwrap_or_default(), first.as_deref()) {
                    return Err(ServerChange::Unchanged);
                }
                let inner: Vec<&str> = proxy.chain([command.as_str()]).collect();
                let args = match (args, words.first()) {
                    (_, Some(first)) => self.insert_before(*first, &inner),
                    (Some(args), None) => {
                        Splice { range: args.range(), text: format!("[{}]", inner.join(", ")) }
                    }
                    (None, None) => self.add_args(command, &inner),
                };
                Ok(vec![Splice { range: command.range(), text: quote(program) }, args])
            }
        }
    }

    fn strip(&self) -> Result<Vec<Splice>, ServerChange> {
        let (command, words) = match self.command()? {
            Command::Words(words) => (None, words),
            Command::Program { command, args } => {
                (Some(command), args.iter().flat_map(|it| it.elements()).collect())
            }
        };
        let begin = usize::from(command.is_none());
        let program = command.map_or_else(|| word(&words, 0), |it| word(&[it], 0));
        let text = |at: usize| words.get(begin + at)?.text().map(Cow::into_owned);
        let proxy = proxy_args_len(text).filter(|_| is_stayput(&program));
        let inner = proxy.and_then(|proxy| Some((proxy, *words.get(begin + proxy)?)));
        let Some((proxy, inner)) = inner else { return Err(ServerChange::Unchanged) };
        let start = words[0].range().start;
        let Some(command) = command else {
            let range = start..inner.range().start;
            return Ok(vec![Splice { range, text: String::new() }]);
        };
        let args = match words.get(proxy + 1) {
            Some(next) => Splice { range: start..next.range().start, text: String::new() },
            None => {
                let args = self.value.find(&["args"]).map_or(start..start, |it| it.range());
                Splice { range: args, text: "[]".to_owned() }
            }
        };
        Ok(vec![Splice { range: command.range(), text: inner.as_str().to_owned() }, args])
    }

    /// Inserts elements before an element of a list, with the separator that stands before that element.
    fn insert_before(&self, element: Raw<'_>, new: &[&str]) -> Splice {
        let at = element.range().start;
        let space = match self.indentation(at) {
            Some(indentation) => format!(",{indentation}"),
            None => ", ".to_owned(),
        };
        let text = new.iter().flat_map(|word| [*word, &*space]).collect();
        Splice { range: at..at, text }
    }

    /// Adds the member `args` after the command.
    fn add_args(&self, command: Raw<'_>, words: &[&str]) -> Splice {
        let mut members = self.value.members();
        let key = members.find(|(name, _)| name.text().as_deref() == Some("command"));
        let indentation = key.and_then(|(name, _)| self.indentation(name.range().start));
        let space = indentation.as_deref().unwrap_or(" ");
        let at = command.range().end;
        Splice { range: at..at, text: format!(",{space}\"args\": [{}]", words.join(", ")) }
    }

    /// Returns the line break and the indentation before an offset, if a line begins there.
    fn indentation(&self, at: usize) -> Option<String> {
        let before = self.text.get(..at)?;
        let line = before.rfind('\n')?;
        let begin = if before[..line].ends_with('\r') { line - 1 } else { line };
        let space = &before[begin..];
        space.trim().is_empty().then(|| space.to_owned())
    }
}

/// Returns a word of a command; empty if there is none.
fn word(words: &[Raw<'_>], at: usize) -> String {
    words.get(at).and_then(|it| it.text()).unwrap_or_default().into_owned()
}
