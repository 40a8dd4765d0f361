//! Audit log, spans and dashboard: `audit`, `otlp` and `ui`.

use http::{HeaderName, HeaderValue};
use stayput_config::{ConfigObject, ConfigValue, Problem, ReadResult};
use stayput_http::Target;

use super::keys;
use crate::observe::{AuditRules, AuditTo, ObserveRules, SpansRules};

/// Reads `audit` and `otlp`.
pub(super) fn observe(table: &ConfigObject<'_>) -> ReadResult<ObserveRules> {
    Ok(ObserveRules { audit: table.read("audit", audit)?, spans: table.read("otlp", otlp)? })
}

fn audit(setting: &ConfigValue<'_>) -> ReadResult<AuditRules> {
    let table = setting.object_with_keys(keys::AUDIT)?;
    let to = table.read("to", |setting| {
        let text = setting.text()?;
        if text == "stderr" {
            return Ok(AuditTo::Stderr);
        }
        let path = setting.context.path(&text).map_err(|problem| setting.error(problem))?;
        Ok(AuditTo::File(path))
    })?;
    let expected = "an object with \"to\": a file, or \"stderr\"";
    let to = to.ok_or_else(|| setting.error(Problem::Form { expected }))?;
    Ok(AuditRules {
        to,
        arguments: table.read("arguments", ConfigValue::boolean)?.unwrap_or_default(),
    })
}

/// Reads `ui`: whether the dashboard shows the arguments of calls.
pub(super) fn ui(setting: &ConfigValue<'_>) -> ReadResult<bool> {
    let table = setting.object_with_keys(keys::UI)?;
    Ok(table.read("show_arguments", ConfigValue::boolean)?.unwrap_or_default())
}

fn otlp(setting: &ConfigValue<'_>) -> ReadResult<SpansRules> {
    let table = setting.object_with_keys(keys::OTLP)?;
    let url = table.read("url", |setting| {
        let text = setting.text()?;
        let wrong =
            |error: stayput_http::TargetError| setting.error(Problem::Other(error.to_string()));
        let url = Target::parse(&text).map_err(wrong)?;
        // A URL without a path gets the default path of the OTLP specification.
        let bare = text.trim_end_matches('/');
        match bare.split_once("://").is_some_and(|(_, rest)| !rest.contains(['/', '?'])) {
            true => Target::parse(&format!("{bare}/v1/traces")).map_err(wrong),
            false => Ok(url),
        }
    })?;
    let expected = "an object with \"url\", such as \"http://127.0.0.1:4318\"";
    let url = url.ok_or_else(|| setting.error(Problem::Form { expected }))?;
    let headers = table.read("headers", headers)?.unwrap_or_default();
    Ok(SpansRules { url, headers })
}

fn headers(setting: &ConfigValue<'_>) -> ReadResult<Vec<(HeaderName, HeaderValue)>> {
    let read = |name: &str, value: &ConfigValue<'_>| -> ReadResult<(HeaderName, HeaderValue)> {
        let form = |expected| value.error(Problem::Form { expected });
        let name: HeaderName = name.parse().map_err(|_| form("a header with a name"))?;
        let mut text = HeaderValue::from_str(&value.text()?).map_err(|_| form("a line of text"))?;
        text.set_sensitive(true);
        Ok((name, text))
    };
    setting.object()?.iter().map(|member| read(&member.name, &member.value)).collect()
}
