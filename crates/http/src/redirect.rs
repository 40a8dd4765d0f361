//! Redirects: the next target of a request, if it may go there.

use ::http::{HeaderMap, Method, StatusCode, header::LOCATION};

use super::{HttpError, HttpErrorKind, Request, Target};
use crate::Delivery;

/// Maximum number of redirects of one request.
pub(super) const MAX_REDIRECTS: usize = 5;

/// Returns the target that `request` is to be sent to again, or `None` if the response is no redirect.
///
/// A redirect is followed only at the same origin, so that headers never leave it, and only with the same
/// method: 301, 302 and 303 ask for a GET in place of a POST, which is never meant.
pub(super) fn next(
    request: &Request,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Option<Target>, HttpError> {
    let keeps_method = match status {
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => false,
        _ => return Ok(None),
    };
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let Some(to) = location.and_then(|location| request.url.join(location).ok()) else {
        return Err(refused(request, "without saying where to; ask the operator of the server"));
    };
    if to.origin() != request.url.origin() {
        let advice = format!(
            "to {0}, and credentials are not sent to another origin; if you trust it, configure the \
             URL that begins with {0}",
            to.origin()
        );
        return Err(refused(request, &advice));
    }
    let asks = matches!(request.method, Method::GET | Method::HEAD);
    if !keeps_method && !asks {
        let status = status.as_u16();
        let advice = format!(
            "to {to} with status {status}, which would turn the {} into a GET; configure that URL",
            request.method
        );
        return Err(refused(request, &advice));
    }
    Ok(Some(to))
}

/// Builds the error of too many redirects.
pub(super) fn endless(request: &Request) -> HttpError {
    let advice =
        format!("more than {MAX_REDIRECTS} times; configure the URL where it leads to in the end");
    refused(request, &advice)
}

/// Builds the error of a redirect that is not followed. The server answered, so the request was written.
/// Whether it was also executed is not known: 303 even means that it was.
fn refused(request: &Request, advice: &str) -> HttpError {
    let sentence = format!("{} sends the request on {advice}", request.url);
    HttpError::new(HttpErrorKind::Redirect, Delivery::Unknown, sentence)
}
