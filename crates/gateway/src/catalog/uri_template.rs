//! URI templates, as far as needed to find the template of a URI.

/// Longest URI that is matched. No template of a server means a longer one.
const MAX_URI_LENGTH: usize = 8 << 10;

/// RFC 6570 template. `{name}` matches one segment; every other expression, such as `{+path}` or `{?query}`, matches
/// anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<TemplatePart>,
    /// Number of literal bytes: the more, the more specific is a match.
    literal: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TemplatePart {
    Byte(u8),
    /// At least one byte, but none that ends a segment.
    Segment,
    /// Any bytes, or none.
    Anything,
}

impl Template {
    pub(crate) fn new(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            let Some((expression, behind)) = behind.split_once('}') else { break };
            parts.extend(before.bytes().map(TemplatePart::Byte));
            let simple = expression.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
                && !expression.ends_with('*');
            parts.push(if simple { TemplatePart::Segment } else { TemplatePart::Anything });
            rest = behind;
        }
        parts.extend(rest.bytes().map(TemplatePart::Byte));
        let literal = parts.iter().filter(|part| matches!(part, TemplatePart::Byte(_))).count();
        Self { parts, literal }
    }

    /// Specificity of a match.
    pub(crate) fn literal(&self) -> usize {
        self.literal
    }

    /// Whether the template matches `uri`.
    pub(crate) fn matches(&self, uri: &str) -> bool {
        if uri.len() > MAX_URI_LENGTH {
            return false;
        }
        // Set of all positions that the bytes so far can lead to. There is no backtracking, so the time is bounded
        // for every URI.
        let end = self.parts.len();
        let mut places = vec![false; end + 1];
        places[0] = true;
        self.skip(&mut places);
        for byte in uri.bytes() {
            let mut next = vec![false; end + 1];
            for (at, part) in self.parts.iter().enumerate().filter(|(at, _)| places[*at]) {
                match part {
                    TemplatePart::Byte(own) => next[at + 1] |= *own == byte,
                    TemplatePart::Segment if !b"/?#".contains(&byte) => {
                        next[at] = true;
                        next[at + 1] = true;
                    }
                    TemplatePart::Segment => {}
                    TemplatePart::Anything => next[at] = true,
                }
            }
            self.skip(&mut next);
            places = next;
        }
        places[end]
    }

    /// Adds the positions behind expressions that may match nothing.
    fn skip(&self, places: &mut [bool]) {
        for (at, part) in self.parts.iter().enumerate() {
            if places[at] && *part == TemplatePart::Anything {
                places[at + 1] = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_matches_its_uris() {
        for (template, uri, matches) in [
            ("test://template/{id}/data", "test://template/7/data", true),
            ("test://template/{id}/data", "test://template/a%2Fb/data", true),
            ("test://template/{id}/data", "test://template//data", false),
            ("test://template/{id}/data", "test://template/a/b/data", false),
            ("test://template/{id}/data", "test://template/7/data/x", false),
            ("file:///{+path}", "file:///a/b/c", true),
            ("file:///{path*}", "file:///a/b/c", true),
            ("file://{/path*}", "file:///a/b/c", true),
            ("file:///{+path}", "http:///a", false),
            ("db://{table}/{key}", "db://users/1", true),
            ("db://{table}/{key}", "db://users", false),
            ("db://{table}{?limit}", "db://users?limit=3", true),
            ("db://{table}{?limit}", "db://users", true),
            ("plain://here", "plain://here", true),
            ("plain://here", "plain://her", false),
            ("odd://{open", "odd://{open", true),
            ("{+all}", "", true),
            ("{a}{b}", "xy", true),
            ("{a}{b}", "x", false),
        ] {
            assert_eq!(Template::new(template).matches(uri), matches, "{template} {uri}");
        }
        assert!(Template::new("a://b/{c}").literal() > Template::new("{+all}").literal());
    }

    #[test]
    fn matching_time_is_bounded() {
        let template = Template::new(&"{+a}x".repeat(50));
        assert!(!template.matches(&"xy".repeat(MAX_URI_LENGTH / 2)));
        assert!(!Template::new("{+a}").matches(&"x".repeat(MAX_URI_LENGTH + 1)));
    }
}
