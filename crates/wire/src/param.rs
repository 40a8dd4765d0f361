//! Tool arguments that are also sent as headers.

use crate::{
    Raw,
    header::{self, PARAM_PREFIX},
};

/// Headers for the arguments of a tool, as marked in its input schema.
///
/// A schema marks a property with `"x-mcp-header": "Region"`. A modern client over HTTP then sends the argument also
/// as `Mcp-Param-Region`.
///
/// ```
/// use stayput_wire::{ParamHeaders, Raw};
///
/// let schema = r#"{"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}"#;
/// let headers = ParamHeaders::from_schema(Raw::parse(schema)?)?;
/// let arguments = Raw::parse(r#"{"region":"Zürich","other":1}"#)?;
/// let values = headers.values(Some(arguments))?;
/// assert_eq!(values, [("mcp-param-region".to_owned(), "=?base64?WsO8cmljaA==?=".to_owned())]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParamHeaders {
    marks: Vec<Mark>,
}

/// Marked property.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    // Lower case, with prefix.
    header: String,
    path: Vec<String>,
}

/// Keyword of a mark.
const MARK_KEYWORD: &str = "x-mcp-header";

/// Keywords with other schemas. A mark inside of them is not allowed, because it would depend on the arguments.
const SCHEMAS: [&str; 15] = [
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "propertyNames",
    "oneOf",
    "anyOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
];

/// Keywords with other schemas by name.
const NAMED_SCHEMAS: [&str; 5] =
    ["patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"];

/// Largest integer that every JSON reader represents exactly: 2^53 − 1.
const SAFE_INTEGER: i64 = (1 << 53) - 1;

impl ParamHeaders {
    /// Collects the marks of an input schema.
    ///
    /// # Errors
    /// Returns an error if a mark is invalid. Then the tool must not be offered over HTTP.
    pub fn from_schema(schema: Raw<'_>) -> Result<Self, InvalidMark> {
        let mut headers = Self::default();
        headers.collect(schema, &mut Vec::new(), true)?;
        Ok(headers)
    }

    /// Returns whether no argument is sent as a header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Returns name and value of each header for `arguments`. Missing and `null` arguments are not sent.
    ///
    /// # Errors
    /// Returns an error if an argument cannot be a header value.
    pub fn values(
        &self,
        arguments: Option<Raw<'_>>,
    ) -> Result<Vec<(String, String)>, InvalidParam> {
        let mut values = Vec::new();
        for mark in &self.marks {
            if let Some(value) = mark.value(arguments)? {
                values.push((mark.header.clone(), header::encode(&value).into_owned()));
            }
        }
        Ok(values)
    }

    /// Compares headers with `arguments`. `get` returns the header with a name in lower case.
    ///
    /// # Errors
    /// Returns an error if a header is missing, unexpected, unreadable or different from its argument. The response
    /// is [`Code::HEADER_MISMATCH`](crate::Code::HEADER_MISMATCH).
    pub fn check<'h>(
        &self,
        arguments: Option<Raw<'_>>,
        get: impl Fn(&str) -> Option<&'h [u8]>,
    ) -> Result<(), InvalidParam> {
        for mark in &self.marks {
            let sent = get(&mark.header).map(header::decode).transpose();
            let sent = sent.map_err(|_| mark.error(ParamProblem::Header))?;
            let same = match (&sent, mark.value(arguments)?) {
                (None, None) => true,
                (Some(sent), Some(value)) => *sent == value || is_same_number(sent, &value),
                _ => false,
            };
            if !same {
                return Err(mark.error(ParamProblem::Mismatch));
            }
        }
        Ok(())
    }

    /// Walks a schema. Recursion is bounded by the nesting limit of JSON.
    fn collect(
        &mut self,
        schema: Raw<'_>,
        path: &mut Vec<String>,
        reachable: bool,
    ) -> Result<(), InvalidMark> {
        for (keyword, value) in members_by_name(schema) {
            match keyword.as_str() {
                MARK_KEYWORD if !reachable || path.is_empty() => {
                    return Err(InvalidMark::new(path, MarkProblem::Place));
                }
                MARK_KEYWORD => self.mark(schema, value, path)?,
                "properties" => {
                    for (name, property) in members_by_name(value) {
                        path.push(name);
                        self.collect(property, path, reachable)?;
                        path.pop();
                    }
                }
                keyword if NAMED_SCHEMAS.contains(&keyword) => {
                    for (_, inner) in members_by_name(value) {
                        self.collect(inner, path, false)?;
                    }
                }
                keyword if SCHEMAS.contains(&keyword) => {
                    self.collect(value, path, false)?;
                    for inner in value.elements() {
                        self.collect(inner, path, false)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn mark(&mut self, schema: Raw<'_>, mark: Raw<'_>, path: &[String]) -> Result<(), InvalidMark> {
        let error = |problem| InvalidMark::new(path, problem);
        let name = mark.text().filter(|name| is_token(name)).ok_or(error(MarkProblem::Name))?;
        let kind = schema.find(&["type"]).and_then(Raw::text);
        if !matches!(kind.as_deref(), Some("string" | "integer" | "boolean")) {
            return Err(error(MarkProblem::Type));
        }
        let header = format!("{PARAM_PREFIX}{}", name.to_ascii_lowercase());
        if self.marks.iter().any(|mark| mark.header == header) {
            return Err(error(MarkProblem::Twice));
        }
        self.marks.push(Mark { header, path: path.to_vec() });
        Ok(())
    }
}

impl Mark {
    /// Returns the argument as text, before it is encoded.
    fn value(&self, arguments: Option<Raw<'_>>) -> Result<Option<String>, InvalidParam> {
        let path: Vec<_> = self.path.iter().map(String::as_str).collect();
        let found = arguments.and_then(|arguments| arguments.find(&path));
        let Some(value) = found.filter(|value| !value.is_null()) else { return Ok(None) };
        let text = if value.is_number() {
            let number = integer(value.as_str()).ok_or(self.error(ParamProblem::Number))?;
            Some(number.to_string())
        } else if let Some(truth) = value.boolean() {
            Some(truth.to_string())
        } else {
            value.text().map(String::from)
        };
        text.map(Some).ok_or(self.error(ParamProblem::Kind))
    }

    fn error(&self, problem: ParamProblem) -> InvalidParam {
        InvalidParam { header: self.header.clone(), problem }
    }
}

/// Returns the members of an object with decoded names.
fn members_by_name(object: Raw<'_>) -> impl Iterator<Item = (String, Raw<'_>)> {
    object.members().filter_map(|(key, value)| Some((key.text()?.into_owned(), value)))
}

/// Returns whether a header may have this name (RFC 9110, `1*tchar`).
fn is_token(name: &str) -> bool {
    let tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(tchar)
}

/// Parses a safe integer in any spelling: `42`, `42.0` and `4.2e1` are equal.
fn integer(number: &str) -> Option<i64> {
    let whole = number.parse::<i64>().ok().or_else(|| {
        let value = number.parse::<f64>().ok().filter(|value| value.fract() == 0.0)?;
        format!("{value:.0}").parse().ok()
    });
    whole.filter(|whole| (-SAFE_INTEGER..=SAFE_INTEGER).contains(whole))
}

fn is_same_number(sent: &str, value: &str) -> bool {
    let number = |text: &str| {
        integer(text).filter(|_| text.starts_with(|c: char| c == '-' || c.is_ascii_digit()))
    };
    number(sent).is_some_and(|sent| number(value) == Some(sent))
}

/// Invalid mark in a schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'x-mcp-header' at '{path}' {problem}")]
pub struct InvalidMark {
    path: String,
    problem: MarkProblem,
}

impl InvalidMark {
    fn new(path: &[String], problem: MarkProblem) -> Self {
        Self { path: path.join("."), problem }
    }

    /// Returns the path of the marked property, or of the nearest one around the mark.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the problem.
    #[must_use]
    pub fn problem(&self) -> MarkProblem {
        self.problem
    }
}

/// Problem of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MarkProblem {
    /// The mark is no valid part of a header name.
    #[error("must be a name of letters, digits and !#$%&'*+-.^_`|~")]
    Name,
    /// Another property has the same name, possibly in other letter case.
    #[error("is the name of another property as well")]
    Twice,
    /// The property is not of type `string`, `integer` or `boolean`.
    #[error("must be on a property of type string, integer or boolean")]
    Type,
    /// The property is not reachable through `properties` alone.
    #[error("must be on a property that is reached through 'properties' alone")]
    Place,
}

/// Argument that cannot be a header value, or differs from its header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the argument for the header '{header}' {problem}")]
pub struct InvalidParam {
    header: String,
    problem: ParamProblem,
}

impl InvalidParam {
    /// Returns the name of the header, in lower case.
    #[must_use]
    pub fn header(&self) -> &str {
        &self.header
    }

    /// Returns the problem.
    #[must_use]
    pub fn problem(&self) -> ParamProblem {
        self.problem
    }
}

/// Problem of an argument and its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamProblem {
    /// Number that is no integer within ±(2^53 − 1).
    #[error("must be a whole number between -9007199254740991 and 9007199254740991")]
    Number,
    /// Array, object or invalid string.
    #[error("must be a string, a whole number, true or false")]
    Kind,
    /// The header is not readable.
    #[error("came with a header that cannot be read")]
    Header,
    /// The header is missing or different.
    #[error("and the header do not say the same")]
    Mismatch,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(properties: &str) -> Result<ParamHeaders, InvalidMark> {
        let schema = format!(r#"{{"type":"object","properties":{properties}}}"#);
        ParamHeaders::from_schema(Raw::parse(&schema).unwrap())
    }

    fn problem(properties: &str) -> MarkProblem {
        headers(properties).unwrap_err().problem()
    }

    fn values(
        marks: &ParamHeaders,
        arguments: &str,
    ) -> Result<Vec<(String, String)>, ParamProblem> {
        marks.values(Some(Raw::parse(arguments).unwrap())).map_err(|error| error.problem())
    }

    const ALL: &str = r#"{
        "s": {"type":"string","x-mcp-header":"S"},
        "i": {"type":"integer","x-mcp-header":"Count"},
        "o": {"type":"object","properties":{"b":{"type":"boolean","x-mcp-header":"b"}}},
        "plain": {"type":"array","items":{"type":"string"},"default":[{"x-mcp-header":"no"}]},
        "x-mcp-header": {"type":"string"}
    }"#;

    #[test]
    fn marked_arguments_become_headers() {
        let marks = headers(ALL).unwrap();
        let found = values(&marks, r#"{"s":"a b","i":42.0,"o":{"b":false},"plain":[1]}"#).unwrap();
        let shown: Vec<_> =
            found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            shown,
            [("mcp-param-s", "a b"), ("mcp-param-count", "42"), ("mcp-param-b", "false")]
        );
        assert_eq!(values(&marks, r#"{"s":null,"o":7}"#), Ok(vec![]));
        assert_eq!(marks.values(None), Ok(vec![]));
        assert!(!marks.is_empty() && headers("{}").unwrap().is_empty());
    }

    #[test]
    fn invalid_mark_is_refused() {
        let typed = |kind: &str| format!(r#"{{"a":{{"type":{kind},"x-mcp-header":"A"}}}}"#);
        for kind in ["\"number\"", "\"object\"", "[\"string\",\"null\"]", "null"] {
            assert_eq!(problem(&typed(kind)), MarkProblem::Type, "{kind}");
        }
        for name in ["\"\"", "\"a b\"", "\"a:\"", "\"ä\"", "\"a\\r\\nb\"", "7", "null"] {
            let properties = format!(r#"{{"a":{{"type":"string","x-mcp-header":{name}}}}}"#);
            assert_eq!(problem(&properties), MarkProblem::Name, "{name}");
        }
        let twice = r#"{"a":{"type":"string","x-mcp-header":"Up"},
            "o":{"properties":{"b":{"type":"string","x-mcp-header":"uP"}}}}"#;
        let error = headers(twice).unwrap_err();
        assert_eq!((error.path(), error.problem()), ("o.b", MarkProblem::Twice));
        assert_eq!(
            error.to_string(),
            "'x-mcp-header' at 'o.b' is the name of another property as well"
        );
    }

    #[test]
    fn mark_must_be_reached_through_properties() {
        let mark = r#"{"type":"string","x-mcp-header":"A"}"#;
        for schema in [
            mark.to_owned(),
            format!(r#"{{"properties":{{"a":{{"items":{mark}}}}}}}"#),
            format!(r#"{{"properties":{{"a":{{"items":{{"properties":{{"b":{mark}}}}}}}}}}}"#),
            format!(r#"{{"oneOf":[{{}},{{"properties":{{"b":{mark}}}}}]}}"#),
            format!(r#"{{"allOf":[{mark}]}}"#),
            format!(r#"{{"if":{{"properties":{{"b":{mark}}}}}}}"#),
            format!(r#"{{"$defs":{{"x":{mark}}}}}"#),
            format!(r#"{{"patternProperties":{{"^a":{mark}}}}}"#),
            format!(r#"{{"additionalProperties":{mark}}}"#),
        ] {
            let error = ParamHeaders::from_schema(Raw::parse(&schema).unwrap()).unwrap_err();
            assert_eq!(error.problem(), MarkProblem::Place, "{schema}");
        }
        let defined =
            r#"{"$defs":{"x-mcp-header":{"type":"string"}},"enum":[{"x-mcp-header":"a"}]}"#;
        assert!(ParamHeaders::from_schema(Raw::parse(defined).unwrap()).is_ok());
    }

    #[test]
    fn numbers_must_be_safe_integers() {
        let marks = headers(ALL).unwrap();
        let count = |number: &str| {
            values(&marks, &format!(r#"{{"i":{number}}}"#)).map(|found| found[0].1.clone())
        };
        assert_eq!(count("9007199254740991").as_deref(), Ok("9007199254740991"));
        assert_eq!(count("-9007199254740991.0").as_deref(), Ok("-9007199254740991"));
        assert_eq!(count("4.2e1").as_deref(), Ok("42"));
        assert_eq!(count("-0.0").as_deref(), Ok("0"));
        for number in
            ["9007199254740992", "-9007199254740992", "1.5", "1e400", "99999999999999999999"]
        {
            assert_eq!(count(number), Err(ParamProblem::Number), "{number}");
        }
        assert_eq!(values(&marks, r#"{"s":["a"]}"#), Err(ParamProblem::Kind));
        assert_eq!(values(&marks, r#"{"s":"\ud800"}"#), Err(ParamProblem::Kind));
    }

    #[test]
    fn headers_are_compared_with_the_arguments() {
        let marks = headers(ALL).unwrap();
        let check = |arguments: &str, sent: &[(&str, &'static str)]| {
            let get = |name: &str| {
                sent.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_bytes())
            };
            marks.check(Some(Raw::parse(arguments).unwrap()), get).map_err(|error| error.problem())
        };
        assert_eq!(check("{}", &[("mcp-param-unknown", "x")]), Ok(()));
        assert_eq!(check(r#"{"s":"ä"}"#, &[("mcp-param-s", "=?base64?w6Q=?=")]), Ok(()));
        assert_eq!(check(r#"{"i":42}"#, &[("mcp-param-count", "42.0")]), Ok(()));
        assert_eq!(
            check(r#"{"i":42}"#, &[("mcp-param-count", "+42")]),
            Err(ParamProblem::Mismatch)
        );
        assert_eq!(check(r#"{"s":"a"}"#, &[]), Err(ParamProblem::Mismatch));
        assert_eq!(check("{}", &[("mcp-param-s", "a")]), Err(ParamProblem::Mismatch));
        assert_eq!(check(r#"{"s":"a"}"#, &[("mcp-param-s", "A")]), Err(ParamProblem::Mismatch));
        assert_eq!(
            check(r#"{"s":"a"}"#, &[("mcp-param-s", "=?base64?a?=")]),
            Err(ParamProblem::Header)
        );
    }
}
