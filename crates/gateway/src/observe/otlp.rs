//! OTLP over HTTP with JSON, the protocol of trace collectors.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};
use stayput_http::{Client, Request};

use super::spans::{Span, SpansRules};
use crate::observe::traceparent::hex;

/// Timeout of a request to the collector.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Pauses before each retry.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// `SPAN_KIND_SERVER` and `STATUS_CODE_ERROR` of the specification.
const KIND: u8 = 2;
const BAD: u8 = 2;

/// Sends spans to the collector.
pub(super) struct Exporter {
    client: Client,
    rules: SpansRules,
    /// Whether the last batch failed. A failure is logged only once.
    failing: bool,
}

impl Exporter {
    pub(super) fn new(client: Client, rules: SpansRules) -> Self {
        Self { client, rules, failing: false }
    }

    /// Sends a batch. Retries if the failure may be temporary, unless it is the `last` batch. Returns whether the
    /// collector took it.
    pub(super) async fn send(&mut self, batch: &[Span], last: bool) -> bool {
        let body = Bytes::from(encoded(batch).to_string());
        let mut pauses = PAUSES.iter().filter(|_| !last);
        let failure = loop {
            match self.once(body.clone()).await {
                Ok(()) => break None,
                Err((sentence, worth_it)) => match pauses.next().filter(|_| worth_it) {
                    Some(pause) => tokio::time::sleep(*pause).await,
                    None => break Some(sentence),
                },
            }
        };
        let before = std::mem::replace(&mut self.failing, failure.is_some());
        match &failure {
            Some(sentence) if !before => {
                tracing::warn!("spans cannot be sent: {sentence}");
            }
            None if before => tracing::info!("spans can be sent again"),
            _ => {}
        }
        failure.is_none()
    }

    /// Sends once. An error says why it failed and whether a retry makes sense.
    async fn once(&self, body: Bytes) -> Result<(), (String, bool)> {
        let mut headers: http::HeaderMap = self.rules.headers.iter().cloned().collect();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        let (method, url) = (Method::POST, self.rules.url.clone());
        let request = Request {
            method,
            url,
            headers,
            body,
            first_byte: EXPORT_TIMEOUT,
            idle: EXPORT_TIMEOUT,
        };
        let answer = self.client.send(request).await;
        let answer = answer.map_err(|error| (error.to_string(), true))?;
        let status = answer.status;
        // Read to its end, so that the connection can be reused.
        let _ = answer.body.collect(64 << 10).await;
        if status.is_success() {
            return Ok(());
        }
        let later = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
        ];
        Err((format!("the collector answered with HTTP {status}"), later.contains(&status)))
    }
}

/// Encodes a batch as `ExportTraceServiceRequest`.
fn encoded(batch: &[Span]) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [("service.name", "stayput"), ("service.version", version)];
    let resource: Vec<_> = resource.iter().map(|(key, value)| attribute(key, value)).collect();
    let spans: Vec<_> = batch.iter().map(span).collect();
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{ "scope": { "name": "stayput", "version": version }, "spans": spans }],
    }]})
}

fn span(span: &Span) -> Value {
    let begun = u128::from(span.at) * 1_000_000;
    let attributes: Vec<_> =
        span.attributes.iter().map(|(key, value)| attribute(key, value)).collect();
    let mut value = json!({
        "traceId": hex(&span.trace.id),
        "spanId": hex(&span.trace.span),
        "name": span.name,
        "kind": KIND,
        // 64-bit integers are strings in this encoding.
        "startTimeUnixNano": begun.to_string(),
        "endTimeUnixNano": (begun + span.took.as_nanos()).to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = &span.trace.parent {
        value["parentSpanId"] = hex(parent).into();
    }
    if span.outcome.is_bad() {
        value["status"] = json!({ "code": BAD, "message": span.outcome.as_str() });
    }
    value
}

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}
