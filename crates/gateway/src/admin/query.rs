//! Query string of a URL.

use http::{StatusCode, Uri};
use stayput_wire::percent;

use super::Refusal;

/// Names and values, percent-decoded.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the query of a URL.
    ///
    /// # Errors
    /// If it is not UTF-8, or contains a name twice.
    pub(super) fn parse(uri: &Uri) -> Result<Self, Refusal> {
        let mut all = Self::default();
        for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            // HTML forms encode a space as `+`.
            let (name, value) = (name.replace('+', " "), value.replace('+', " "));
            let (Some(name), Some(value)) =
                (percent::decode_text(&name), percent::decode_text(&value))
            else {
                return Err(bad("the query is not text"));
            };
            if all.get(&name).is_some() {
                return Err(bad(format!("`{name}` is there more than once")));
            }
            all.0.push((name.into_owned(), value.into_owned()));
        }
        Ok(all)
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Refuses unknown names: a misspelt filter would match everything.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Refusal> {
        match self.0.iter().find(|(name, _)| !known.contains(&&**name)) {
            None => Ok(()),
            Some((name, _)) if known.is_empty() => {
                Err(bad(format!("there is no `{name}` here, nor anything else")))
            }
            Some((name, _)) => {
                Err(bad(format!("there is no `{name}` here; there are {}", known.join(", "))))
            }
        }
    }
}

pub(super) fn bad(sentence: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, sentence)
}

/// Percent-encodes a text for a URL.
pub(crate) fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Result<Query, String> {
        let uri: Uri = format!("/admin/sessions?{text}").parse().unwrap();
        Query::parse(&uri).map_err(|refusal| refusal.sentence)
    }

    #[test]
    fn encoded_query_is_decoded() {
        let owner = "https://id.example.com#ann & bob ü";
        let all = query(&format!("owner={}&limit=3&x", encoded(owner))).unwrap();
        assert_eq!(all.get("owner"), Some(owner));
        assert_eq!((all.get("limit"), all.get("x"), all.get("y")), (Some("3"), Some(""), None));
        assert!(all.only(&["owner", "limit"]).is_err_and(|it| it.sentence.contains("`x`")));
        assert!(all.only(&["owner", "limit", "x"]).is_ok());
        assert_eq!(query("a=b+c").unwrap().get("a"), Some("b c"));
        for wrong in ["a=%zz", "a=%f", "a=%ff", "a=%+1", "a=1&a=2"] {
            assert!(query(wrong).is_err(), "{wrong}");
        }
    }
}
