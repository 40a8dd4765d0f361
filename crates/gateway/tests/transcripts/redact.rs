//! Replaces what differs from run to run by numbered names: equal values keep equal names.

use std::{collections::HashMap, path::Path};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::transcript::{Kind, Line};

/// Names given so far.
#[derive(Debug, Default)]
pub(crate) struct Redactor {
    names: HashMap<(&'static str, String), usize>,
    folder: String,
}

/// Class of the ids of requests to a server, counted anew for each process.
const REQUEST: &str = "id";

/// Class of the progress tokens that the gateway sends to a server, counted anew for each process.
const TOKEN: &str = "token";

/// Members of a message that hold ids.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Params<'a> {
    #[serde(borrow, rename = "requestId")]
    request_id: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta<'a> {
    #[serde(borrow, rename = "progressToken")]
    token: Option<&'a RawValue>,
}

impl Redactor {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.display().to_string(), ..Self::default() }
    }

    /// Counts ids and tokens anew: equality between two processes is not recorded.
    pub(crate) fn next_process(&mut self) {
        self.names.retain(|(class, _), _| ![REQUEST, TOKEN].contains(class));
    }

    /// Writes a line as it stands in the golden file.
    pub(crate) fn line(&mut self, line: &Line) -> String {
        let text = match line.kind {
            Kind::EventId => format!("id: {}", self.name("event", &line.text)),
            Kind::LastEventId => format!("last-event-id: {}", self.known_event(&line.text)),
            Kind::Plain => line.text.clone(),
            kind => self.message(kind, &line.text),
        };
        let text = self.patterns(&text);
        let text =
            if text.is_empty() { line.mark.to_owned() } else { format!("{} {text}", line.mark) };
        format!("{}\n", text.replace('\r', "\\r").replace('\n', "\\n"))
    }

    /// The name of an event that was recorded before; any other id stays as it is.
    fn known_event(&mut self, id: &str) -> String {
        let known = self.names.contains_key(&("event", id.to_owned()));
        if known { self.name("event", id) } else { id.to_owned() }
    }

    fn name(&mut self, class: &'static str, value: &str) -> String {
        let next = self.names.keys().filter(|(other, _)| *other == class).count() + 1;
        let number = *self.names.entry((class, value.to_owned())).or_insert(next);
        format!("<{class}-{number}>")
    }

    /// Replaces the ids that the gateway gave, and leaves every other byte.
    fn message(&mut self, kind: Kind, text: &str) -> String {
        let Ok(message) = serde_json::from_str::<Message<'_>>(text) else { return text.to_owned() };
        let raw = |raw: Option<&RawValue>| raw.map_or("{}", RawValue::get).to_owned();
        let params = message.params.map_or("{}", RawValue::get);
        let params: Params<'_> = serde_json::from_str(params).unwrap_or_default();
        let meta: Meta<'_> =
            params.meta.and_then(|meta| serde_json::from_str(meta.get()).ok()).unwrap_or_default();
        let is_number = |raw: &&RawValue| raw.get().bytes().all(|byte| byte.is_ascii_digit());
        let asks = message.method.is_some();
        let own = match kind {
            Kind::ToServer => message.id.filter(|_| asks).map(|id| (REQUEST, id)),
            Kind::Received => message.id.filter(|_| asks).map(|id| ("question", id)),
            _ => message.id.filter(|_| !asks).map(|id| ("question", id)),
        };
        let taken_back = params.request_id.filter(|_| raw(message.method).contains("cancelled"));
        let taken_back = match kind {
            Kind::ToServer => taken_back.filter(is_number).map(|id| (REQUEST, id)),
            Kind::Received => taken_back.map(|id| ("question", id)),
            _ => None,
        };
        let token = meta.token.filter(is_number).filter(|_| kind == Kind::ToServer);
        let mut spans: Vec<_> = own
            .into_iter()
            .chain(taken_back)
            .chain(token.map(|token| (TOKEN, token)))
            .map(|(class, raw)| {
                (raw.get().as_ptr().addr() - text.as_ptr().addr(), class, raw.get())
            })
            .collect();
        spans.sort_unstable();
        let (mut redacted, mut from) = (String::new(), 0);
        for (at, class, raw) in spans {
            redacted.push_str(&text[from..at]);
            redacted.push_str(&self.name(class, raw));
            from = at + raw.len();
        }
        redacted + &text[from..]
    }

    /// Replaces handles, ids of sessions, times, ports, paths and the version of Stayput.
    pub(crate) fn patterns(&mut self, text: &str) -> String {
        let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
        let text =
            text.replace(&self.folder, "<folder>").replace(&version, "\"version\":\"<version>\"");
        let (mut redacted, mut rest) = (String::new(), &*text);
        while !rest.is_empty() {
            let word = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            let time = time(rest);
            if time > 0 {
                redacted.push_str("<time>");
                rest = &rest[time..];
            } else if word > 0 {
                redacted.push_str(&self.word(&rest[..word]));
                rest = &rest[word..];
            } else if let Some(port) = rest.strip_prefix(".0.0.1:") {
                redacted.push_str(".0.0.1:<port>");
                rest = port.trim_start_matches(|c: char| c.is_ascii_digit());
            } else {
                let next = rest.chars().next().map_or(1, char::len_utf8);
                redacted.push_str(&rest[..next]);
                rest = &rest[next..];
            }
        }
        redacted
    }

    fn word(&mut self, word: &str) -> String {
        if word.starts_with("sp_") && word.len() > 20 {
            self.name("handle", word)
        } else if word.starts_with("stp_") && word.len() > 20 {
            self.name("bearer", word)
        } else if is_uuid(word) {
            self.name("session", word)
        } else {
            word.to_owned()
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn is_uuid(word: &str) -> bool {
    let parts: Vec<_> = word.split('-').collect();
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12])
        && parts.concat().bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Measures the RFC 3339 time at the beginning; 0 if there is none.
fn time(text: &str) -> usize {
    let shape = "0000-00-00T00:00:00";
    let fits = text.len() > shape.len()
        && text.bytes().zip(shape.bytes()).all(|(byte, shape)| match shape {
            b'0' => byte.is_ascii_digit(),
            shape => byte == shape,
        });
    let rest = if fits { &text[shape.len()..] } else { return 0 };
    let end = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    if end.starts_with('Z') { text.len() - end.len() + 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(redactor: &mut Redactor, kind: Kind, text: &str) -> String {
        let line = Line { mark: "<", kind, text: text.to_owned() };
        redactor.line(&line)
    }

    #[test]
    fn ids_are_numbered_by_first_appearance() {
        let mut redactor = Redactor::new(Path::new("/tmp/x"));
        let mut to_server = |text: &str| line(&mut redactor, Kind::ToServer, text);
        assert_eq!(
            to_server(
                r#"{"id" : 977,"method":"a","params":{"_meta":{"progressToken":5},"n":977}}"#
            ),
            "< {\"id\" : <id-1>,\"method\":\"a\",\"params\":{\"_meta\":{\"progressToken\":<token-1>},\"n\":977}}\n"
        );
        assert_eq!(
            to_server(r#"{"method":"notifications/cancelled","params":{"requestId":977}}"#),
            "< {\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":<id-1>}}\n"
        );
        assert_eq!(to_server(r#"{"id":977,"result":{}}"#), "< {\"id\":977,\"result\":{}}\n");
    }

    #[test]
    fn values_that_differ_from_run_to_run_are_named() {
        let mut redactor = Redactor::new(Path::new("/tmp/x"));
        let mut plain = |text: &str| line(&mut redactor, Kind::Plain, text);
        assert_eq!(
            plain("sp_abcdefghijklmnopqrstuvw,sp_abc 0190aaaa-bbbb-7ccc-8ddd-eeeeffff0000"),
            "< <handle-1>,sp_abc <session-1>\n"
        );
        assert_eq!(
            plain("http://127.0.0.1:4711/mcp 2026-11-18T00:28:30.123Z /tmp/x/y"),
            "< http://127.0.0.1:<port>/mcp <time> <folder>/y\n"
        );
        assert_eq!(plain("sp_abcdefghijklmnopqrstuvw"), "< <handle-1>\n");
    }
}
