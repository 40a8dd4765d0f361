//! Requests of a server to its client.

use stayput_upstream::{
    Call, CallOptions, ClientCapabilities, ClientInfo, Incoming, LinkOpenOptions, LinkOwner, Links,
    PooledLink, ServerRequest,
};

use crate::support::{
    LONG, close, legacy, links, params, place, scripted, text, token, try_call, until,
};

const ASKED: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"message":"?"}}"#;

/// Opens a link for a client with all capabilities.
async fn open_declaring(
    links: &Links,
    server: &stayput_upstream::Server,
    at: &LinkOwner,
) -> PooledLink {
    let all = r#"{"elicitation":{},"sampling":{},"roots":{}}"#;
    let client_info = ClientInfo::new(r#"{"name":"t","version":"1"}"#, all).unwrap();
    let asking = LinkOpenOptions { client_info, ..LinkOpenOptions::default() };
    tokio::time::timeout(LONG, links.open(server, at, &asking)).await.unwrap().unwrap()
}

fn declaring() -> CallOptions {
    let capabilities = ClientCapabilities { elicitation: true, ..ClientCapabilities::default() };
    CallOptions { capabilities, ..CallOptions::default() }
}

async fn start(link: &PooledLink, tool: &str, arguments: &str, options: CallOptions) -> Call {
    link.call("tools/call", Some(&params(tool, arguments)), options).await.unwrap()
}

async fn next(call: &mut Call) -> Incoming {
    tokio::time::timeout(LONG, call.next()).await.unwrap().unwrap()
}

async fn question(call: &mut Call) -> ServerRequest {
    match next(call).await {
        Incoming::Request(asked) => asked,
        other => panic!("{other:?}"),
    }
}

/// Design §5: the only call in flight gets the request, whatever it declared. A call that does not answer refuses it.
#[tokio::test]
async fn only_call_in_flight_gets_the_server_request() {
    let links = links();
    let link = open_declaring(&links, &legacy(&[]), &place()).await;
    let mut call = start(&link, "elicit", "{}", CallOptions::default()).await;
    let asked = question(&mut call).await;
    assert_eq!(asked.method(), "elicitation/create");
    asked.reply(r#"{"action":"accept","content":{"n":1.10}}"#);
    let Incoming::Answer(answer) = next(&mut call).await else { panic!("no answer") };
    assert!(text(&answer.unwrap()).contains("accept"));
    // The request is not read: it is refused, and the call ends.
    let refused = try_call(&link, "elicit", "{}").await.unwrap();
    assert!(text(&refused).contains("-32601"), "{}", text(&refused));
    assert_eq!(link.counts().unanswerable, 0);
    drop((call, link));
    close(&links).await;
}

/// Design §5: among several calls the only one gets the request whose client declared the capability. Otherwise the
/// answer is -32601, and it is counted.
#[tokio::test]
async fn call_that_declared_the_capability_gets_the_server_request() {
    let links = links();
    let link = open_declaring(&links, &legacy(&[]), &place()).await;
    let other = start(&link, "slow", r#"{"ms":60000}"#, CallOptions::default()).await;
    let mut call = start(&link, "elicit", "{}", declaring()).await;
    question(&mut call).await.reply(r#"{"action":"decline"}"#);
    let Incoming::Answer(answer) = next(&mut call).await else { panic!("no answer") };
    assert!(text(&answer.unwrap()).contains("decline"));
    assert_eq!(link.counts().unanswerable, 0);
    // No call declared it.
    let refused = try_call(&link, "elicit", "{}").await.unwrap();
    assert!(text(&refused).contains("-32601"), "{}", text(&refused));
    assert_eq!(link.counts().unanswerable, 1);
    // Two calls declared it.
    let second = start(&link, "slow", r#"{"ms":60000}"#, declaring()).await;
    let mut call = start(&link, "elicit", "{}", declaring()).await;
    assert!(matches!(next(&mut call).await, Incoming::Answer(Ok(_))));
    assert_eq!(link.counts().unanswerable, 2);
    drop((other, second, call, link));
    close(&links).await;
}

/// A server may send requests outside any call: a listener that declared the capability gets them.
#[tokio::test]
async fn listener_gets_server_requests_outside_a_call() {
    let links = links();
    let script = format!(
        r#"read -r line
echo '{ASKED}'
read -r reply
echo '{ASKED}'
read -r refused
take
answer $id "{{\"reply\":$reply,\"refused\":$refused}}"
cat >/dev/null"#
    );
    let link = open_declaring(&links, &scripted(&script, &token()), &place()).await;
    let declares = ClientCapabilities { elicitation: true, ..ClientCapabilities::default() };
    let mut listener = link.listen("{}", declares).await.unwrap();
    let start = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
    link.tell(&stayput_wire::Message::parse(start.as_bytes()).unwrap()).unwrap();
    let asked = tokio::time::timeout(LONG, listener.next()).await.unwrap().unwrap();
    let Incoming::Request(asked) = asked else { panic!("{asked:?}") };
    drop(listener);
    asked.pass(br#"{"jsonrpc":"2.0","id":"theirs","result":{"action":"accept"}}"#);
    until("nobody can be asked", || link.counts().unanswerable == 1).await;
    let answer = link.call("m", None, CallOptions::default()).await.unwrap().answer().await;
    let answer = answer.unwrap();
    let told: serde_json::Value = serde_json::from_str(answer.result().unwrap()).unwrap();
    assert_eq!(told["reply"]["id"], 7);
    assert_eq!(told["reply"]["result"]["action"], "accept");
    assert_eq!(told["refused"]["error"]["code"], -32601);
    assert_eq!(link.counts().unanswerable, 1);
    drop(link);
    close(&links).await;
}

#[tokio::test]
async fn ping_of_the_server_is_answered_by_the_link() {
    let links = links();
    let script = r#"take
echo '{"jsonrpc":"2.0","id":"p\/1","method":"ping"}'
read -r pong
answer $id "{\"pong\":$pong}"
cat >/dev/null"#;
    let link = open_declaring(&links, &scripted(script, &token()), &place()).await;
    let answer = link.call("m", None, CallOptions::default()).await.unwrap().answer().await;
    let answer = answer.unwrap();
    assert_eq!(answer.result().unwrap(), r#"{"pong":{"jsonrpc":"2.0","id":"p\/1","result":{}}}"#);
    drop(link);
    close(&links).await;
}

/// The cancellation of a server request reaches the call, and a later answer to it is not sent.
#[tokio::test]
async fn server_request_can_be_cancelled() {
    let links = links();
    let script = format!(
        r#"take
echo '{ASKED}'
echo '{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":7}}}}'
echo '{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":8}}}}'
answer $id '{{}}'
take
answer $id "{{\"next\":$line}}"
cat >/dev/null"#
    );
    let link = open_declaring(&links, &scripted(&script, &token()), &place()).await;
    let mut call = link.call("m", None, declaring()).await.unwrap();
    let asked = question(&mut call).await;
    let Incoming::Notification(taken) = next(&mut call).await else { panic!("not told") };
    assert!(taken.windows(13).any(|it| it == br#""requestId":7"#));
    assert!(matches!(next(&mut call).await, Incoming::Answer(Ok(_))));
    asked.reply("{}");
    let answer = link.call("other", None, CallOptions::default()).await.unwrap().answer().await;
    let answer = answer.unwrap();
    let told: serde_json::Value = serde_json::from_str(answer.result().unwrap()).unwrap();
    assert_eq!(told["next"]["method"], "other", "something else was sent before it");
    assert_eq!(link.counts().late, 1, "the one that was never asked");
    drop((call, link));
    close(&links).await;
}

/// A server request of an ended call is not answered by another one.
#[tokio::test]
async fn server_request_ends_with_its_call() {
    let links = links();
    let script = format!(
        r#"read -r line
echo '{ASKED}'
read -r cancelled
take
answer $id "{{\"first\":$cancelled,\"next\":$line}}"
cat >/dev/null"#
    );
    let link = open_declaring(&links, &scripted(&script, &token()), &place()).await;
    let mut call = link.call("m", None, declaring()).await.unwrap();
    let asked = question(&mut call).await;
    drop(call);
    drop(asked);
    let answer = link.call("other", None, CallOptions::default()).await.unwrap().answer().await;
    let answer = answer.unwrap();
    let told: serde_json::Value = serde_json::from_str(answer.result().unwrap()).unwrap();
    assert_eq!(told["first"]["method"], "notifications/cancelled");
    assert_eq!(told["next"]["method"], "other");
    drop(link);
    close(&links).await;
}

/// A server may reuse an id: an answer to a request of an earlier call is not sent as the answer to a later one.
#[tokio::test]
async fn late_answer_does_not_answer_a_later_server_request_of_the_same_id() {
    let links = links();
    let script = format!(
        r#"take
echo '{ASKED}'
answer $id '{{}}'
take
echo '{ASKED}'
read -r reply
answer $id "{{\"reply\":$reply}}"
cat >/dev/null"#
    );
    let link = open_declaring(&links, &scripted(&script, &token()), &place()).await;
    let mut first = link.call("m", None, declaring()).await.unwrap();
    let early = question(&mut first).await;
    assert!(matches!(next(&mut first).await, Incoming::Answer(Ok(_))));
    let mut second = link.call("m", None, declaring()).await.unwrap();
    let asked = question(&mut second).await;
    early.reply(r#"{"of":"first"}"#);
    asked.reply(r#"{"of":"second"}"#);
    let Incoming::Answer(answer) = next(&mut second).await else { panic!("no answer") };
    let answer = answer.unwrap();
    let told: serde_json::Value = serde_json::from_str(answer.result().unwrap()).unwrap();
    assert_eq!(told["reply"]["result"]["of"], "second");
    drop((first, second, link));
    close(&links).await;
}
