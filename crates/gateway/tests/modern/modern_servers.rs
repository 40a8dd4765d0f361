//! Calls to modern servers, which pass unchanged.

use serde_json::{Value, json};
use stayput_testkit::mcp::TestServer;

use crate::{
    kit::{Modern, headers, meta, modern_stdio, post, request},
    support::{Gateway, mark},
};

/// Invariant 10: only the id changes on the way to the server, and nothing on the way back.
#[tokio::test]
async fn messages_pass_byte_for_byte() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let path = log.path().to_str().unwrap();
    let server = TestServer::http(&["--era", "modern", "--log", path]).await;
    let gateway = Gateway::start(json!({ "test": { "url": server.url() } })).await;
    let body = format!(
        r#"{{ "jsonrpc":"2.0", "id" : "a\/1","x":1.10,"method":"tools/call","params":{{"name":"echo","arguments":{{"n":1.10, "big":12345678901234567890123}},
  "_meta":{},"unknown":[1.0]}} }}"#,
        meta().to_string().replacen('{', r#"{"traceparent":"00-t","dev.example/x":1.0,"#, 1)
    );
    let all = headers(&serde_json::from_str(&body).unwrap());
    let url = format!("{}/mcp/test", gateway.url);
    let through = post(&url, &all, &body).await;
    assert_eq!(through.header("content-type"), "application/json");
    let through = String::from_utf8(through.bytes().await.unwrap().to_vec()).unwrap();
    assert!(through.contains(r#""id":"a\/1""#), "{through}");
    let sent = std::fs::read_to_string(path).unwrap();
    let sent = sent.lines().rfind(|line| line.contains("tools/call")).unwrap();
    let number = sent.split("\"id\" : ").nth(1).unwrap().split(',').next().unwrap();
    assert!(number.parse::<u64>().is_ok(), "{sent}");
    let expected = body.replace(r#""a\/1""#, number).replace('\n', " ");
    assert_eq!(sent, expected);
    let direct = post(server.url(), &all, &body).await.message().await;
    assert_eq!(serde_json::from_str::<Value>(&through).unwrap(), direct);
}

/// Covers all methods of a modern server over both transports. No session is opened or required.
#[tokio::test]
async fn modern_server_is_called_without_a_session() {
    let server = TestServer::http(&["--era", "modern"]).await;
    let mark = mark("plain");
    let servers = json!({ "http": { "url": server.url() }, "stdio": modern_stdio(&mark, &[]) });
    let gateway = Gateway::start(servers).await;
    for name in ["http", "stdio"] {
        let client = Modern::of(&gateway, name);
        assert_eq!(client.text("count").await, "1");
        assert_eq!(client.named("other").text("count").await, "2", "one for all");
        let prompt = json!({ "name": "greet", "arguments": { "name": "Ann" } });
        let prompt = client.result("prompts/get", prompt).await;
        assert!(prompt.to_string().contains("Say hello to Ann."), "{prompt}");
        let read = client.result("resources/read", json!({ "uri": "test://count" })).await;
        assert_eq!(read["contents"][0]["text"], "2");
        let begun = json!({ "ref": { "type": "ref/prompt", "name": "greet" },
            "argument": { "name": "name", "value": "A" } });
        let completed = client.result("completion/complete", begun).await;
        assert_eq!(completed["completion"]["values"][0], "A…");
        for result in [prompt, read, completed] {
            assert!(result["_meta"]["dev.stayput/state"].is_null(), "{result}");
        }
        let (_, code, _) = client.refused("resources/read", json!({ "uri": "test://no" })).await;
        assert_eq!(code, -32602);
        let (_, code, _) = client.refused("tools/call", json!({ "name": "no-such-tool" })).await;
        assert_eq!(code, -32602);
        assert_eq!(client.call("fail", json!({})).await["isError"], true);
    }
}

/// Cell E: an `input_required` result reaches the client, and its second request reaches the server.
#[tokio::test]
async fn required_input_passes() {
    let server = TestServer::http(&["--era", "modern"]).await;
    let gateway = Gateway::start(json!({ "test": { "url": server.url() } })).await;
    let client = Modern::of(&gateway, "test");
    let can = json!({ "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} } });
    let mut params = json!({ "name": "elicit", "arguments": {}, "_meta": can });
    let first = client.result("tools/call", params.clone()).await;
    assert_eq!(first["resultType"], "input_required");
    assert_eq!(first["inputRequests"]["question"]["method"], "elicitation/create");
    params["requestState"] = first["requestState"].clone();
    params["inputResponses"] =
        json!({ "question": { "action": "accept", "content": { "name": "Bo" } } });
    let second = client.result("tools/call", params).await;
    assert_eq!(second["structuredContent"]["content"]["name"], "Bo");
    // The capabilities of one client do not count for another.
    let asked = json!({ "name": "elicit", "arguments": {} });
    let (status, code, message) = client.refused("tools/call", asked).await;
    assert_eq!((status, code), (400, -32021), "{message}");
    assert!(message["error"]["data"]["requiredCapabilities"]["elicitation"].is_object());
}

/// Each request carries its own client info. A request without it does not get that of another client.
#[tokio::test]
async fn clients_of_a_shared_server_are_not_mixed_up() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let path = log.path().to_str().unwrap();
    let server = TestServer::http(&["--era", "modern", "--log", path]).await;
    let gateway = Gateway::start(json!({ "test": { "url": server.url() } })).await;
    let client = Modern::of(&gateway, "test");
    client.call("echo", json!({ "from": "first" })).await;
    let mut second = request(
        &json!("q/1"),
        "tools/call",
        json!({ "name": "echo",
        "arguments": { "from": "second" } }),
    );
    second["params"]["_meta"].as_object_mut().unwrap().remove("io.modelcontextprotocol/clientInfo");
    assert_eq!(client.send(&second).await.status, 200);
    let seen = std::fs::read_to_string(path).unwrap();
    let of = |from: &str| {
        let line = seen.lines().find(|line| line.contains(&format!("\"from\":\"{from}\"")));
        serde_json::from_str::<Value>(line.unwrap()).unwrap()["params"]["_meta"].clone()
    };
    assert_eq!(of("first")["io.modelcontextprotocol/clientInfo"]["name"], "modern");
    assert!(of("second")["io.modelcontextprotocol/clientInfo"].is_null(), "{seen}");
}
