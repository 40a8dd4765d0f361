//! Resources of the suite.

use rmcp::{
    ErrorData,
    model::{ErrorCode, ReadResourceResponse, ReadResourceResult},
};
use serde_json::{Value, json};

use super::tools::PNG;

pub(super) fn list() -> Value {
    let resource = |uri: &str, kind: &str| json!({ "uri": uri, "name": uri, "description": "A resource.", "mimeType": kind });
    json!([
        resource("test://static-text", "text/plain"),
        resource("test://static-binary", "image/png"),
        resource("test://watched-resource", "text/plain"),
    ])
}

pub(super) fn templates() -> Value {
    json!([{
        "uriTemplate": "test://template/{id}/data",
        "name": "template",
        "description": "A resource for every id.",
        "mimeType": "application/json",
    }])
}

pub(super) fn read(uri: &str, modern: bool) -> Result<ReadResourceResponse, ErrorData> {
    let text = |kind: &str, text: &str| json!({ "uri": uri, "mimeType": kind, "text": text });
    let contents = match uri {
        "test://static-text" => {
            text("text/plain", "This is the content of the static text resource.")
        }
        "test://static-binary" => json!({ "uri": uri, "mimeType": "image/png", "blob": PNG }),
        "test://watched-resource" => text("text/plain", "Somebody watches this."),
        _ => {
            let id = uri.strip_prefix("test://template/").and_then(|id| id.strip_suffix("/data"));
            let Some(id) = id else { return Err(missing(uri, modern)) };
            let data =
                json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            text("application/json", &data.to_string())
        }
    };
    let result = json!({ "contents": [contents], "ttlMs": 0, "cacheScope": "private" });
    Ok(super::complete::<ReadResourceResult>(result).into())
}

fn missing(uri: &str, modern: bool) -> ErrorData {
    let code = if modern { ErrorCode::INVALID_PARAMS } else { ErrorCode::RESOURCE_NOT_FOUND };
    ErrorData::new(code, "there is no such resource", Some(json!({ "uri": uri })))
}
