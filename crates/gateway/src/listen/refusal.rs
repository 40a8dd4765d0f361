//! Refusals of requests that reach no server: what was wrong, and what the client can do.

use std::time::Duration;

use http::{HeaderValue, Response, StatusCode, header};
use stayput_wire::Code;

use super::http::{BodyError, SLOWEST};
use crate::{
    auth::body_budget::OverBudget,
    reply::{self, Reply},
    state::AppState,
};

/// Time after which a body is worth another try that did not fit into memory.
const BODY_RETRY: Duration = Duration::from_secs(1);

/// Refuses `/metrics` to a client without the role.
pub(super) fn no_metrics() -> Response<Reply> {
    let sentence =
        "`/metrics` is for administrators; use a token with the role, or set `auth.metrics`";
    reply::refusal(StatusCode::FORBIDDEN, None, Code::INVALID_REQUEST, sentence)
}

/// Refuses an HTTP request with this status and sentence, and counts the refusal.
pub(super) fn refuse(app: &AppState, status: StatusCode, sentence: &str) -> Response<Reply> {
    count_refusal(app, status);
    reply::refusal(status, None, Code::INVALID_REQUEST, sentence)
}

/// Refuses a request whose body could not be read.
pub(super) fn body_refusal(app: &AppState, why: &BodyError) -> Response<Reply> {
    let limits = &app.rules.limits.body;
    let (status, sentence) = match why {
        BodyError::TooLarge => {
            let limit = limits.each;
            let sentence = format!("the body has more than {limit} bytes, which is `limits.body`");
            (StatusCode::PAYLOAD_TOO_LARGE, sentence)
        }
        BodyError::Late => {
            let sentence = format!(
                "nothing more of the body came for {} s, or it came slower than {} KiB/s; send the whole request at \
                 once",
                reply::whole_seconds(app.rules.limits.stall),
                SLOWEST >> 10,
            );
            (StatusCode::REQUEST_TIMEOUT, sentence)
        }
        BodyError::Overdue => {
            let sentence = format!(
                "the body did not come within {} s, which is `limits.body_time`; send less, or faster",
                reply::whole_seconds(limits.time),
            );
            (StatusCode::REQUEST_TIMEOUT, sentence)
        }
        BodyError::OverBudget(over) => return over_budget(app, *over),
        BodyError::Broken | BodyError::Gone => {
            let sentence = "the body is not in chunks, though Transfer-Encoding says so";
            (StatusCode::BAD_REQUEST, sentence.to_owned())
        }
    };
    refuse(app, status, &sentence)
}

/// Refuses a body for which there is no memory now.
fn over_budget(app: &AppState, over: OverBudget) -> Response<Reply> {
    let limits = &app.rules.limits.body;
    let (status, sentence) = match over {
        OverBudget::Owner => {
            let sentence = format!(
                "your requests in progress have bodies of {} bytes already, which is `limits.per_owner.bodies`; \
                 wait for their answers, and try again",
                limits.per_owner
            );
            (StatusCode::TOO_MANY_REQUESTS, sentence)
        }
        OverBudget::All => {
            let sentence = format!(
                "the requests in progress have bodies of {} bytes already, which is `limits.bodies`; try again in \
                 a moment",
                limits.all
            );
            (StatusCode::SERVICE_UNAVAILABLE, sentence)
        }
    };
    count_refusal(app, status);
    let refusal = reply::refusal(status, None, Code::INTERNAL_ERROR, &sentence);
    reply::later(refusal, BODY_RETRY)
}

/// Answers that the path does not exist.
pub(super) fn path_not_found(app: &AppState) -> Response<Reply> {
    let known: Vec<_> = app.servers.keys().map(|name| format!("/mcp/{name}")).collect();
    let sentence = match known.is_empty() {
        true => "there is nothing here, and no server is configured".to_owned(),
        false => {
            let known = known.join(", ");
            format!("there is nothing here; servers are at {known}, and all at /mcp")
        }
    };
    reply::refusal(StatusCode::NOT_FOUND, None, Code::INVALID_REQUEST, &sentence)
}

/// Refuses a method that is not in this list.
pub(super) fn method_not_allowed(methods: &'static str) -> Response<Reply> {
    let mut refused = reply::status(StatusCode::METHOD_NOT_ALLOWED);
    refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
    refused
}

/// Counts a request whose status is a refusal.
pub(super) fn count_refusal(app: &AppState, status: StatusCode) {
    let why = match status {
        StatusCode::BAD_REQUEST => "malformed",
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "foreign",
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::METHOD_NOT_ALLOWED => "method",
        StatusCode::NOT_ACCEPTABLE => "not_acceptable",
        StatusCode::PAYLOAD_TOO_LARGE => "too_large",
        StatusCode::TOO_MANY_REQUESTS => "too_many",
        StatusCode::SERVICE_UNAVAILABLE => "unavailable",
        other if other.is_client_error() || other.is_server_error() => "other",
        _ => return,
    };
    app.count_refused(why);
}
