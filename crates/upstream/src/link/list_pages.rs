//! Pages of a list.

use stayput_wire::Raw;

/// Most pages of one list that are fetched. A server with more pages is assumed to loop.
pub(crate) const MAX_LIST_PAGES: usize = 100;

/// Parameters of the request for the next page, if there is one.
pub(crate) fn next_page(result: &str) -> Option<String> {
    let next = Raw::parse(result).ok()?.find(&["nextCursor"])?;
    (!next.is_null()).then(|| format!(r#"{{"cursor":{}}}"#, next.as_str()))
}
