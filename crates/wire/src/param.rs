//! Arguments that also travel as headers.

use crate::{
    Raw,
    header::{self, PARAM_PREFIX},
};

/// The headers that a tool wants its arguments in, by the marks in its input schema.
///
/// A schema marks a property with `"x-mcp-header": "Region"`, and a modern client over HTTP then
/// sends the argument as `Mcp-Param-Region` as well.
///
/// ```
/// use stayput_wire::{ParamHeaders, Raw};
///
/// let schema = r#"{"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}"#;
/// let headers = ParamHeaders::of_schema(Raw::parse(schema)?)?;
/// let arguments = Raw::parse(r#"{"region":"Zürich","other":1}"#)?;
/// let values = headers.values(Some(arguments))?;
/// assert_eq!(values, [("mcp-param-region".to_owned(), "=?base64?WsO8cmljaA==?=".to_owned())]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParamHeaders {
    marks: Vec<Mark>,
}

/// One marked property.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    // In lower case, with the prefix.
    header: String,
    path: Vec<String>,
}

/// The mark itself.
const MARK: &str = "x-mcp-header";

/// Where else a schema holds schemas. A mark in one of them would depend on what the arguments are.
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

/// Where else a schema holds schemas by name.
const NAMED_SCHEMAS: [&str; 5] =
    ["patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"];

/// The largest number that every reader of JSON has without loss: 2^53 − 1.
const SAFE_INTEGER: i64 = (1 << 53) - 1;

impl ParamHeaders {
    /// The headers that the input schema of a tool asks for.
    ///
    /// # Errors
    /// If a mark breaks the rules. Then the tool must not be offered to anybody over HTTP.
    pub fn of_schema(schema: Raw<'_>) -> Result<Self, InvalidMark> {
        let mut headers = Self::default();
        headers.collect(schema, &mut Vec::new(), true)?;
        Ok(headers)
    }

    /// Whether no argument travels as a header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Name and value of each header to be sent with `arguments`. What is not there, or `null`, is
    /// not sent.
    ///
    /// # Errors
    /// If an argument cannot stand in a header.
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

    /// Checks the headers that came with `arguments`; `get` gives the one of a name in lower case.
    ///
    /// # Errors
    /// If one is missing, one too many, cannot be read, or says something else than its argument.
    /// The answer to that is [`Code::HEADER_MISMATCH`](crate::Code::HEADER_MISMATCH).
    pub fn check<'h>(
        &self,
        arguments: Option<Raw<'_>>,
        get: impl Fn(&str) -> Option<&'h [u8]>,
    ) -> Result<(), InvalidParam> {
        for mark in &self.marks {
            let said = get(&mark.header).map(header::decode).transpose();
            let said = said.map_err(|_| mark.wrong(ParamProblem::Header))?;
            let same = match (&said, mark.value(arguments)?) {
                (None, None) => true,
                (Some(said), Some(value)) => *said == value || is_same_number(said, &value),
                _ => false,
            };
            if !same {
                return Err(mark.wrong(ParamProblem::Mismatch));
            }
        }
        Ok(())
    }

    /// Walks a schema. A schema nests no deeper than any JSON that was checked.
    fn collect(
        &mut self,
        schema: Raw<'_>,
        path: &mut Vec<String>,
        reachable: bool,
    ) -> Result<(), InvalidMark> {
        for (keyword, value) in named(schema) {
            match keyword.as_str() {
                MARK if !reachable || path.is_empty() => {
                    return Err(InvalidMark::new(path, MarkProblem::Place));
                }
                MARK => self.mark(schema, value, path)?,
                "properties" => {
                    for (name, property) in named(value) {
                        path.push(name);
                        self.collect(property, path, reachable)?;
                        path.pop();
                    }
                }
                keyword if NAMED_SCHEMAS.contains(&keyword) => {
                    for (_, inner) in named(value) {
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
        let wrong = |problem| InvalidMark::new(path, problem);
        let name = mark.text().filter(|name| is_token(name)).ok_or(wrong(MarkProblem::Name))?;
        let kind = schema.find(&["type"]).and_then(Raw::text);
        if !matches!(kind.as_deref(), Some("string" | "integer" | "boolean")) {
            return Err(wrong(MarkProblem::Type));
        }
        let header = format!("{PARAM_PREFIX}{}", name.to_ascii_lowercase());
        if self.marks.iter().any(|mark| mark.header == header) {
            return Err(wrong(MarkProblem::Twice));
        }
        self.marks.push(Mark { header, path: path.to_vec() });
        Ok(())
    }
}

impl Mark {
    /// The argument as the text that the header carries, before it is encoded.
    fn value(&self, arguments: Option<Raw<'_>>) -> Result<Option<String>, InvalidParam> {
        let path: Vec<_> = self.path.iter().map(String::as_str).collect();
        let found = arguments.and_then(|arguments| arguments.find(&path));
        let Some(value) = found.filter(|value| !value.is_null()) else { return Ok(None) };
        let text = if value.is_number() {
            let number = integer(value.as_str()).ok_or(self.wrong(ParamProblem::Number))?;
            Some(number.to_string())
        } else if let Some(truth) = value.boolean() {
            Some(truth.to_string())
        } else {
            value.text().map(String::from)
        };
        text.map(Some).ok_or(self.wrong(ParamProblem::Kind))
    }

    fn wrong(&self, problem: ParamProblem) -> InvalidParam {
        InvalidParam { header: self.header.clone(), problem }
    }
}

/// The members of an object by their names.
fn named(object: Raw<'_>) -> impl Iterator<Item = (String, Raw<'_>)> {
    object.members().filter_map(|(key, value)| Some((key.text()?.into_owned(), value)))
}

/// Letters that the name of a header may have (RFC 9110, `1*tchar`).
fn is_token(name: &str) -> bool {
    let tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(tchar)
}

/// A number that is whole and safe, however it is written: `42`, `42.0` and `4.2e1` are one.
fn integer(number: &str) -> Option<i64> {
    let whole = number.parse::<i64>().ok().or_else(|| {
        let value = number.parse::<f64>().ok().filter(|value| value.fract() == 0.0)?;
        format!("{value:.0}").parse().ok()
    });
    whole.filter(|whole| (-SAFE_INTEGER..=SAFE_INTEGER).contains(whole))
}

fn is_same_number(said: &str, value: &str) -> bool {
    let number = |text: &str| {
        integer(text).filter(|_| text.starts_with(|c: char| c == '-' || c.is_ascii_digit()))
    };
    number(said).is_some_and(|said| number(value) == Some(said))
}

/// A mark in a schema that breaks the rules.
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

    /// The property that is marked, or the nearest one around the mark.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What is wrong with the mark.
    #[must_use]
    pub fn problem(&self) -> MarkProblem {
        self.problem
    }
}

/// What can be wrong with a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MarkProblem {
    /// It is not a string that can be part of the name of a header.
    #[error("must be a name of letters, digits and !#$%&'*+-.^_`|~")]
    Name,
    /// Another property has it, perhaps in other letter case.
    #[error("is the name of another property as well")]
    Twice,
    /// The property is not of type `string`, `integer` or `boolean`.
    #[error("must be on a property of type string, integer or boolean")]
    Type,
    /// It cannot be reached through `properties` alone.
    #[error("must be on a property that is reached through 'properties' alone")]
    Place,
}

/// An argument that does not agree with its header, or cannot stand in one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the argument for the header '{header}' {problem}")]
pub struct InvalidParam {
    header: String,
    problem: ParamProblem,
}

impl InvalidParam {
    /// The name of the header, in lower case.
    #[must_use]
    pub fn header(&self) -> &str {
        &self.header
    }

    /// What is wrong.
    #[must_use]
    pub fn problem(&self) -> ParamProblem {
        self.problem
    }
}

/// What can be wrong with an argument and its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamProblem {
    /// It is a number, but not a whole one within ±(2^53 − 1).
    #[error("must be a whole number between -9007199254740991 and 9007199254740991")]
    Number,
    /// It is an array or object, or not text.
    #[error("must be a string, a whole number, true or false")]
    Kind,
    /// The header cannot be read.
    #[error("came with a header that cannot be read")]
    Header,
    /// The header is missing, or says something else.
    #[error("and the header do not say the same")]
    Mismatch,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(properties: &str) -> Result<ParamHeaders, InvalidMark> {
        let schema = format!(r#"{{"type":"object","properties":{properties}}}"#);
        ParamHeaders::of_schema(Raw::parse(&schema).unwrap())
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
    fn a_mark_that_breaks_a_rule_is_told() {
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
    fn a_mark_is_reached_through_properties_alone() {
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
            let error = ParamHeaders::of_schema(Raw::parse(&schema).unwrap()).unwrap_err();
            assert_eq!(error.problem(), MarkProblem::Place, "{schema}");
        }
        let defined =
            r#"{"$defs":{"x-mcp-header":{"type":"string"}},"enum":[{"x-mcp-header":"a"}]}"#;
        assert!(ParamHeaders::of_schema(Raw::parse(defined).unwrap()).is_ok());
    }

    #[test]
    fn numbers_are_whole_and_safe() {
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
    fn headers_are_held_against_the_arguments() {
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
