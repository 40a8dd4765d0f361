//! Conversation id at a place that the operator configured.

use std::borrow::Cow;

use http::HeaderMap;
use stayput_core::{InvalidName, Name, conversation_key};
use stayput_wire::Raw;

use super::{
    header,
    meta::{self, Member},
};
use crate::{auth::Claims, config::CustomSource};

/// Reads all names at one configured place, with a description of the place for error messages.
pub(super) fn read<'a>(
    place: &'a CustomSource,
    (headers, claims): (&'a HeaderMap, &'a Claims),
    members: &'a [Member<'_>],
) -> Vec<(String, Result<Name, InvalidName>)> {
    match place {
        CustomSource::Header(header) => {
            let texts = header::values(headers, header).filter_map(Result::ok);
            let texts: Vec<Cow<'_, str>> = texts.collect();
            let place = format!("the header {header}");
            named(&place, "header", header.as_str(), texts.iter().map(|text| &**text))
        }
        CustomSource::Meta(key) => {
            let texts: Vec<_> = meta::values(members, key).filter_map(Raw::text).collect();
            let place = format!("`_meta[\"{key}\"]`");
            named(&place, "meta", key, texts.iter().map(|text| &**text))
        }
        CustomSource::Claim(name) => {
            let place = format!("the claim `{name}` of the token");
            named(&place, "claim", name, claims.text(name).into_iter())
        }
    }
}

/// Turns ids into names. An id becomes a key whose source is its place, so that equal ids at different places differ.
/// A handle or a `key:` name is the same at every place.
fn named<'a>(
    place: &str,
    source: &str,
    key: &str,
    ids: impl Iterator<Item = &'a str>,
) -> Vec<(String, Result<Name, InvalidName>)> {
    let own =
        |id: &str| conversation_key(source, &format!("{key}:{id}")).map(|it| Ok(Name::Key(it)));
    let read = |id: &str| if id.is_empty() { None } else { Name::parse(id).or_else(|| own(id)) };
    ids.filter_map(read).map(|name| (place.to_owned(), name)).collect()
}

#[cfg(test)]
mod tests {
    use stayput_wire::Message;

    use super::*;

    #[test]
    fn id_becomes_a_key_of_its_place() {
        let mut headers = HeaderMap::new();
        headers.append("x-chat", "7".parse().unwrap());
        headers.append("x-other", "key:7".parse().unwrap());
        headers.append("x-empty", "".parse().unwrap());
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"chat":"7","n":7}}}"#;
        let message = Message::parse(text.as_bytes()).unwrap();
        let members = meta::members(&message);
        let claims = serde_json::json!({ "chat": "7", "n": 7 });
        let claims = Claims(claims.as_object().unwrap().clone());
        let key = |place: CustomSource| match read(&place, (&headers, &claims), &members).pop() {
            Some((_, Ok(Name::Key(key)))) => Some(key.as_str().to_owned()),
            _ => None,
        };
        let header = |name: &'static str| CustomSource::Header(http::HeaderName::from_static(name));
        assert_eq!(key(header("x-chat")).as_deref(), Some("header:x-chat:7"));
        assert_eq!(key(header("x-other")).as_deref(), Some("name:7"));
        assert_eq!(key(CustomSource::Meta("chat".into())).as_deref(), Some("meta:chat:7"));
        assert_eq!(key(CustomSource::Claim("chat".into())).as_deref(), Some("claim:chat:7"));
        for nothing in [
            header("x-empty"),
            header("x-none"),
            CustomSource::Meta("n".into()),
            CustomSource::Claim("n".into()),
        ] {
            assert_eq!(key(nothing), None);
        }
    }
}
