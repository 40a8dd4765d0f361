//! TOML file of Codex: conversion to JSON, and edits that keep its formatting.

use std::fmt::Write as _;

use stayput_wire::json::quote;
use toml_edit::{Array, DocumentMut, Item, TableLike, Value};

use super::{
    EditedServer, FileEdit, ServerChange, SyntaxError, URL_KEYS, is_stayput, is_wrapped,
    proxy_args_len,
};
use crate::{error::Problem, keys::CODEX_SERVERS};

fn parse(text: &str) -> Result<DocumentMut, SyntaxError> {
    text.parse::<DocumentMut>().map_err(|error| SyntaxError {
        at: error.span().map_or(0, |span| span.start),
        problem: Problem::Toml(error.message().to_owned()),
    })
}

/// Converts the servers, and the settings of Stayput, to JSON. Other tables belong to the client.
pub(crate) fn to_json(text: &str) -> Result<String, SyntaxError> {
    let document = parse(text)?;
    let mut json = String::from("{");
    for key in [CODEX_SERVERS, crate::keys::STAYPUT] {
        if let Some(item) = document.get(key) {
            if json.len() > 1 {
                json.push(',');
            }
            let _ = write!(json, "{}:", quote(key));
            write_item(item, &mut json);
        }
    }
    Ok(json + "}")
}

fn write_item(item: &Item, json: &mut String) {
    match item {
        Item::Value(value) => write_value(value, json),
        Item::Table(table) => write_table(table, json),
        Item::ArrayOfTables(tables) => {
            json.push('[');
            for (at, table) in tables.iter().enumerate() {
                if at > 0 {
                    json.push(',');
                }
                write_table(table, json);
            }
            json.push(']');
        }
        Item::None => json.push_str("null"),
    }
}

fn write_table(table: &dyn TableLike, json: &mut String) {
    json.push('{');
    for (at, (key, item)) in table.iter().enumerate() {
        if at > 0 {
            json.push(',');
        }
        let _ = write!(json, "{}:", quote(key));
        write_item(item, json);
    }
    json.push('}');
}

fn write_value(value: &Value, json: &mut String) {
    match value {
        Value::String(text) => json.push_str(&quote(text.value())),
        Value::Integer(number) => {
            let _ = write!(json, "{}", number.value());
        }
        Value::Float(number) if number.value().is_finite() => {
            let _ = write!(json, "{}", number.value());
        }
        Value::Boolean(truth) => {
            let _ = write!(json, "{}", truth.value());
        }
        Value::Array(array) => {
            json.push('[');
            for (at, value) in array.iter().enumerate() {
                if at > 0 {
                    json.push(',');
                }
                write_value(value, json);
            }
            json.push(']');
        }
        Value::InlineTable(table) => write_table(table, json),
        Value::Float(_) | Value::Datetime(_) => json.push_str(&quote(value.to_string().trim())),
    }
}

pub(super) fn wrap(
    text: &str,
    program: &str,
    proxy: impl Fn(&str) -> Vec<String>,
) -> Result<FileEdit, SyntaxError> {
    edit(text, &[], |name, entry| {
        let command = command(entry)?;
        if is_wrapped(&command, first_arg(entry)) {
            return Err(ServerChange::Unchanged);
        }
        let words: Vec<String> = proxy(name).into_iter().chain([command]).collect();
        match entry.get_mut("args").and_then(Item::as_array_mut) {
            Some(args) => insert_first(args, &words),
            None => {
                entry.insert("args", Item::Value(Value::Array(words.into_iter().collect())));
            }
        }
        set_command(entry, program);
        Ok(())
    })
}

pub(super) fn unwrap(text: &str, keep: &[&str]) -> Result<FileEdit, SyntaxError> {
    edit(text, keep, |_, entry| {
        let command = command(entry)?;
        let args = entry.get_mut("args").and_then(Item::as_array_mut);
        let Some(args) = args.filter(|_| is_stayput(&command)) else {
            return Err(ServerChange::Unchanged);
        };
        let word = |at: usize| Some(args.get(at)?.as_str()?.to_owned());
        let proxy = proxy_args_len(word).and_then(|proxy| Some((proxy, word(proxy)?)));
        let Some((proxy, inner)) = proxy else { return Err(ServerChange::Unchanged) };
        let decor = args.get(0).map(|first| first.decor().clone());
        for _ in 0..=proxy {
            args.remove(0);
        }
        if let (Some(decor), Some(first)) = (decor, args.get_mut(0)) {
            *first.decor_mut() = decor;
        }
        set_command(entry, &inner);
        Ok(())
    })
}

fn edit(
    text: &str,
    keep: &[&str],
    change: impl Fn(&str, &mut dyn TableLike) -> Result<(), ServerChange>,
) -> Result<FileEdit, SyntaxError> {
    let mut document = parse(text)?;
    let mut servers = Vec::new();
    let list = document.get_mut(CODEX_SERVERS).and_then(Item::as_table_like_mut);
    for (name, item) in list.into_iter().flat_map(|list| list.iter_mut()) {
        let name = name.get().to_owned();
        let change = match item.as_table_like_mut() {
            _ if keep.contains(&&*name) => ServerChange::Unchanged,
            Some(entry) => change(&name, entry).err().unwrap_or(ServerChange::Changed),
            None => ServerChange::Unreadable,
        };
        servers.push(EditedServer { name, change });
    }
    let changed = servers.iter().any(|server| server.change == ServerChange::Changed);
    // A file without a change stays as it is, also where the writer would format it anew.
    let text = if changed { document.to_string() } else { text.to_owned() };
    Ok(FileEdit { text, servers })
}

/// Returns the command of an entry whose arguments can be read.
fn command(entry: &dyn TableLike) -> Result<String, ServerChange> {
    let Some(command) = entry.get("command") else {
        let remote = URL_KEYS.iter().any(|key| entry.contains_key(key));
        return Err(if remote { ServerChange::Remote } else { ServerChange::Unreadable });
    };
    let is_list = |item: &Item| item.as_array().is_some_and(|it| it.iter().all(Value::is_str));
    let command = command.as_str().filter(|_| entry.get("args").is_none_or(is_list));
    command.map(str::to_owned).ok_or(ServerChange::Unreadable)
}

fn first_arg(entry: &dyn TableLike) -> Option<&str> {
    entry.get("args")?.as_array()?.get(0)?.as_str()
}

/// Inserts words at the beginning of a list, each formatted as the first one.
fn insert_first(args: &mut Array, words: &[String]) {
    let decor = args.get(0).map(|first| first.decor().clone());
    let in_lines = decor
        .as_ref()
        .and_then(|decor| decor.prefix()?.as_str())
        .is_some_and(|prefix| prefix.contains('\n'));
    if let (false, Some(first)) = (in_lines, args.get_mut(0)) {
        first.decor_mut().set_prefix(" ");
    }
    for (at, word) in words.iter().enumerate().rev() {
        let mut value = Value::from(word.as_str());
        match &decor {
            Some(decor) if in_lines => *value.decor_mut() = decor.clone(),
            _ => value.decor_mut().set_prefix(if at == 0 { "" } else { " " }),
        }
        args.insert_formatted(0, value);
    }
}

/// Sets the command and keeps the comment and space around it.
fn set_command(entry: &mut dyn TableLike, command: &str) {
    if let Some(value) = entry.get_mut("command").and_then(Item::as_value_mut) {
        let decor = value.decor().clone();
        *value = Value::from(command);
        *value.decor_mut() = decor;
    }
}
