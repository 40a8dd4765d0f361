//! The scenarios. Each runs on every transport and in both eras that have it; the last call of most of
//! them proves that everything before it has arrived at the server.

use std::process::Command;

use serde_json::{Value, json};

use crate::{
    cells::{Cell, Era, Transport},
    client::{Client, Reply},
    message::{Request, cancelled},
    stage::Stage,
};

/// A call whose id and arguments have to pass byte for byte.
fn work(id: &str) -> Request {
    Request::call(id, "work")
}

/// Calls once more and answers: what was sent to the server before is in its recording now.
async fn call_again(stage: &mut Stage, client: &mut Client, id: &str) {
    let reply = client.send_for_json(&work(id)).await;
    stage.server().call().await.answer("again");
    client.answer(reply).await;
}

/// Lists, an offer of a session to a client that names none, and calls.
pub(crate) async fn call(cell: Cell) -> Stage {
    let mut stage = Stage::new(cell).await;
    let mut client = stage.connect("test", None).await;
    if cell.era == Era::Legacy {
        client.initialize(stage.version(), "{}").await;
    } else {
        let reply = client.send(&Request::new("0", "server/discover")).await;
        client.answer(reply).await;
    }
    let reply = client.send(&Request::new("\"l\"", "tools/list")).await;
    client.answer(reply).await;
    let offered = cell.era == Era::Modern && cell.server == Era::Legacy;
    if offered && cell.transport != Transport::Stdio {
        let reply = client.send(&work("1")).await;
        let offer: Value = serde_json::from_str(&client.answer(reply).await).unwrap();
        let handle = offer.pointer("/result/_meta/dev.stayput~1session").and_then(Value::as_str);
        stage.name(&mut client, handle.unwrap_or_else(|| panic!("{offer}")));
    }
    let wanted = r#""io.modelcontextprotocol/logLevel":"info""#;
    let request = match cell.era {
        Era::Legacy => work("\"c\\/1\""),
        Era::Modern => work("\"c\\/1\"").with_meta(wanted),
    };
    let reply = client.send(&request).await;
    let call = stage.server().call().await;
    if stage.streams() {
        call.log("begun");
    }
    call.answer("done");
    client.answer(reply).await;
    call_again(&mut stage, &mut client, "2").await;
    client.end().await;
    stage
}

/// Progress before the answer.
pub(crate) async fn progress(cell: Cell) -> Stage {
    let mut stage = Stage::new(cell).await;
    let mut client = stage.client().await;
    let mut reply = client.send(&work("1").with_token("p\\/1")).await;
    let call = stage.server().call().await;
    for step in 1..=2 {
        call.progress(step);
        if stage.streams() {
            client.hear(&mut reply).await;
        }
    }
    call.answer("done");
    client.answer(reply).await;
    client.end().await;
    stage
}

/// Calls with a token, and reads the first progress where the answer is a stream.
async fn begin(stage: &mut Stage, client: &mut Client, id: &str) -> (Reply, crate::server::Call) {
    let request = if stage.streams() { work(id).with_token("p") } else { work(id) };
    let mut reply = client.send(&request).await;
    let call = stage.server().call().await;
    if stage.streams() {
        call.progress(1);
        client.hear(&mut reply).await;
    }
    (reply, call)
}

/// `notifications/cancelled`: the server gets it once, and its late answer is dropped. A modern client over
/// HTTP cancels by closing the connection, so there the notification has no effect.
pub(crate) async fn cancel(cell: Cell) -> Stage {
    let mut stage = Stage::new(cell).await;
    let mut client = stage.client().await;
    let (reply, call) = begin(&mut stage, &mut client, "\"x\"").await;
    client.tell(&cancelled("\"x\"")).await;
    if cell.era == Era::Modern && !stage.has_one_stream() {
        call.answer("not cancelled");
        client.answer(reply).await;
    } else {
        stage.server().receives(call.process, "notifications/cancelled").await;
        if !stage.has_one_stream() {
            client.answer(reply).await;
        }
        call.answer("late");
    }
    call_again(&mut stage, &mut client, "2").await;
    client.end().await;
    stage
}

/// The client goes away during a call. A legacy call over HTTP goes on; every other one is cancelled once.
pub(crate) async fn disconnect(cell: Cell) -> Stage {
    let mut stage = Stage::new(cell).await;
    let mut client = stage.client().await;
    let (reply, call) = begin(&mut stage, &mut client, "1").await;
    client.leave(reply).await;
    if stage.has_one_stream() {
        stage.server().receives(call.process, "notifications/cancelled").await;
        stage.server().ends(call.process).await;
        if cell.transport == Transport::Sse {
            client.tell(&work("2").text(cell.era)).await;
        }
        return stage;
    }
    if cell.era == Era::Modern {
        stage.server().receives(call.process, "notifications/cancelled").await;
    }
    call_again(&mut stage, &mut client, "2").await;
    call.answer("late");
    call_again(&mut stage, &mut client, "3").await;
    stage
}

/// A stream that broke is taken up again by `Last-Event-ID`; the call ran on.
pub(crate) async fn resume(cell: Cell) -> Stage {
    let mut stage = Stage::new(cell).await;
    let mut client = stage.client().await;
    let (reply, call) = begin(&mut stage, &mut client, "1").await;
    let last_event = reply.last_event();
    client.leave(reply).await;
    call.progress(2);
    call.answer("done");
    client.http_mut().get(Some(&last_event)).await.finish().await;
    // Once more: what was read is still kept.
    client.http_mut().get(Some(&last_event)).await.finish().await;
    call_again(&mut stage, &mut client, "2").await;
    // An id that is not known opens the general stream. A modern server gets `subscriptions/listen` for it, and
    // its end at a time that nothing here can wait for.
    if cell.server == Era::Legacy {
        let mut general = client.http_mut().get(Some("unknown")).await;
        general.head().await;
        general.close();
    }
    stage
}

/// The server asks during a call. A client that cannot be asked is not: the server gets an error.
pub(crate) async fn question(cell: Cell) -> Stage {
    let mut stage = Stage::new(cell).await;
    let mut client = stage.connect("test", None).await;
    let capabilities = r#"{"elicitation":{},"sampling":{}}"#;
    match cell.era {
        Era::Legacy => client.initialize(stage.version(), capabilities).await,
        Era::Modern => stage.name(&mut client, "key:chat"),
    }
    let asked = cell.era == Era::Legacy && stage.streams();
    for (id, method, params, result) in [
        (
            "e-1",
            "elicitation/create",
            r#"{"message":"Name?","requestedSchema":{"type":"object","properties":{}}}"#,
            r#"{"action":"accept","content":{"n":1.10}}"#,
        ),
        (
            "s-1",
            "sampling/createMessage",
            r#"{"messages":[],"maxTokens":1}"#,
            r#"{"role":"assistant","content":{"type":"text","text":"Hi"},"model":"m"}"#,
        ),
    ] {
        let request = work(&format!("\"{method}\"")).with_capabilities(capabilities);
        let mut reply = client.send(&request).await;
        let call = stage.server().call().await;
        call.ask(id, method, params);
        if asked {
            let question = client.hear(&mut reply).await;
            client.answer_question(&question, result).await;
        }
        stage.server().receives(call.process, &format!("\"{id}\"")).await;
        call.answer("asked");
        client.answer(reply).await;
    }
    client.end().await;
    stage
}

/// The process of the server ends during a call. The loss is told in the answer; the next call runs on a
/// new process.
pub(crate) async fn loss(cell: Cell) -> Stage {
    let mut stage = Stage::new(cell).await;
    let mut client = stage.client().await;
    call_again(&mut stage, &mut client, "1").await;
    let mut general = None;
    if cell.era == Era::Legacy && cell.transport == Transport::HttpSse {
        let mut stream = client.http_mut().get(None).await;
        stream.head().await;
        general = Some(stream);
    }
    let (reply, call) = begin(&mut stage, &mut client, "2").await;
    call.crash();
    client.answer(reply).await;
    if let Some(mut general) = general {
        while !general.next().await.unwrap().contains("notifications/message") {}
        general.close();
    }
    call_again(&mut stage, &mut client, "3").await;
    client.end().await;
    stage
}

/// A batch of 2025-03-26. Later revisions have none.
pub(crate) async fn batch(cell: Cell) -> Stage {
    let mut stage = Stage::new(cell).await;
    let mut client = stage.connect("test", None).await;
    client.initialize("2025-03-26", "{}").await;
    if stage.has_one_stream() {
        // Calls that open a link at once have no order; on an open link they have.
        call_again(&mut stage, &mut client, "0").await;
    }
    let second = work("2").with_meta(r#""x":"second""#);
    let calls = [work("\"a\"").text(cell.era), second.text(cell.era)];
    let batch = format!(
        r#"[{{"jsonrpc":"2.0","id":0,"method":"ping"}}, {{"jsonrpc":"2.0","method":"notifications/unknown"}},{},{}]"#,
        calls[0], calls[1]
    );
    let reply = client.send_text(&batch).await;
    if stage.has_one_stream() {
        client.read().await;
        let calls = [stage.server().call().await, stage.server().call().await];
        for call in calls {
            call.answer("done");
            client.read().await;
        }
    } else {
        stage.server().call().await.answer("first");
        stage.server().call().await.answer("second");
        client.answer(reply).await;
    }
    client.end().await;
    let mut later = stage.connect("test", None).await;
    later.initialize("2025-06-18", "{}").await;
    let reply = later.send_text(&batch).await;
    match cell.transport {
        Transport::HttpJson | Transport::HttpSse => drop(later.answer(reply).await),
        Transport::Stdio => drop(later.read().await),
        Transport::Sse => {}
    }
    later.end().await;
    stage
}

/// All servers at one place: the list, calls to each, and a name that leads nowhere.
pub(crate) async fn aggregate(cell: Cell) -> Stage {
    let mut stage = Stage::with(cell, &["one", "two"], json!({})).await;
    let mut client = stage.connect("", None).await;
    match cell.era {
        Era::Legacy => client.initialize(stage.version(), "{}").await,
        Era::Modern => {
            let reply = client.send(&Request::new("0", "server/discover")).await;
            client.answer(reply).await;
            stage.name(&mut client, "key:chat");
        }
    }
    let reply = client.send(&Request::new("\"l\"", "tools/list")).await;
    client.answer(reply).await;
    for (server, tool) in [(0, "one__work"), (1, "two__work"), (0, "one__work")] {
        let request = Request::call(&format!("\"{tool}\""), tool);
        let request = if stage.streams() { request.with_token("p") } else { request };
        let mut reply = client.send(&request).await;
        let call = stage.servers[server].call().await;
        if stage.streams() {
            call.progress(1);
            client.hear(&mut reply).await;
        }
        call.answer(tool);
        client.answer(reply).await;
    }
    let reply = client.send_for_json(&Request::call("9", "three__work")).await;
    client.answer(reply).await;
    client.end().await;
    stage
}

/// A token and its hash.
fn token(name: &str) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    let output = command.args(["token", name, "--json"]).output().unwrap();
    assert!(output.status.success());
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("token"), text("hash"))
}

/// A client without a token, one with a wrong token, and one that names the session of another owner.
pub(crate) async fn refused_owner(cell: Cell) -> Stage {
    let ((ann, anns), (bob, bobs)) = (token("ann"), token("bob"));
    let auth = json!({ "auth": { "tokens": { "ann": anns, "bob": bobs } } });
    let mut stage = Stage::with(cell, &["test"], auth).await;
    if cell.transport == Transport::Sse {
        return refused_on_the_old_transport(stage, &ann, &bob).await;
    }
    for token in [None, Some("wrong")] {
        let mut client = stage.connect("test", token).await;
        let reply = match cell.era {
            Era::Legacy => client.send_text(&crate::message::initialize("2025-11-25", "{}")).await,
            Era::Modern => client.send(&work("1")).await,
        };
        client.answer(reply).await;
    }
    let mut owner = stage.connect("test", Some(&ann)).await;
    let mut other = stage.connect("test", Some(&bob)).await;
    match cell.era {
        Era::Legacy => {
            owner.initialize("2025-11-25", "{}").await;
            other.http_mut().id = owner.http_mut().id.clone();
        }
        Era::Modern => {
            let reply = owner.send(&work("1")).await;
            let offer: Value = serde_json::from_str(&owner.answer(reply).await).unwrap();
            let handle = offer.pointer("/result/_meta/dev.stayput~1session").unwrap();
            for client in [&mut owner, &mut other] {
                stage.name(client, handle.as_str().unwrap());
            }
        }
    }
    let (reply, call) = begin(&mut stage, &mut owner, "2").await;
    let refused = other.send(&work("3")).await;
    other.answer(refused).await;
    if cell.era == Era::Legacy && stage.streams() {
        let last_event = reply.last_event();
        other.http_mut().get(Some(&last_event)).await.finish().await;
    }
    call.answer("done");
    owner.answer(reply).await;
    stage
}

async fn refused_on_the_old_transport(mut stage: Stage, ann: &str, bob: &str) -> Stage {
    for token in [None, Some("wrong")] {
        stage.refused_stream("test", token).await;
    }
    let mut owner = stage.connect("test", Some(ann)).await;
    owner.initialize(stage.version(), "{}").await;
    owner.tell_as(bob, &work("1").text(Era::Legacy)).await;
    call_again(&mut stage, &mut owner, "2").await;
    stage
}
