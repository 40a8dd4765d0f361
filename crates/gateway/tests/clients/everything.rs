//! Reference server through the gateway: a client sees the same as without the gateway.

use serde_json::{Value, json};
use stayput_testkit::peers::{self, Peer};
use tokio::{process::Command, time::timeout};

use crate::{
    recipe,
    support::{Gateway, LONG, gone, mark},
};

/// Runs the tour client against a URL or a command, and returns what it saw.
async fn tour(target: &[String]) -> Vec<Value> {
    let mut command = Command::from(peers::client("tour.mjs").command());
    let output = command.args(target).kill_on_drop(true).output();
    // The tour takes several seconds on an idle machine.
    let output = timeout(LONG * 2, output).await.unwrap().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{failed}");
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs both tours concurrently and compares them.
async fn is_as_direct(direct: &[String], through: String) {
    let (direct, through) = futures_util::future::join(tour(direct), tour(&[through])).await;
    assert!(direct.len() > 30, "{direct:?}");
    for (direct, through) in direct.iter().zip(&through) {
        assert_eq!(through, direct);
    }
    assert_eq!(direct.len(), through.len());
    let listed = direct.iter().find(|it| it["what"] == "tools").unwrap();
    // The server lists it only for clients that support sampling.
    assert!(listed.to_string().contains("trigger-sampling-request"), "{listed}");
}

/// R016, invariant 10: the server runs as a child process by its recipe.
#[tokio::test]
async fn everything_over_stdio_behaves_as_direct() {
    if peers::are_left_out() {
        return;
    }
    let mark = mark("everything");
    let (name, mut entry) = recipe::read("server-everything");
    entry["env"]["STAYPUT_TEST_TOKEN"] = json!(mark);
    let command = [&entry["command"]].into_iter().chain(entry["args"].as_array().unwrap());
    let direct: Vec<String> = command.map(|word| word.as_str().unwrap().to_owned()).collect();
    let gateway = Gateway::start(json!({ (name.clone()): entry })).await;
    is_as_direct(&direct, format!("{}/mcp/{name}", gateway.url)).await;
    // The client has closed its session.
    gone(&mark).await;
    drop(gateway);
}

/// R016, invariant 10: the server runs as an HTTP server.
#[tokio::test]
async fn everything_over_http_behaves_as_direct() {
    if peers::are_left_out() {
        return;
    }
    let Peer { program, args, .. } = peers::everything();
    let port = free_port();
    let mut command = Command::new(program);
    command.args(args).arg("streamableHttp").env("PORT", port.to_string());
    let _server = command.kill_on_drop(true).spawn().unwrap();
    let address = format!("127.0.0.1:{port}");
    until_it_listens(&address).await;
    let url = format!("http://{address}/mcp");
    let gateway = Gateway::start(json!({ "everything": { "url": url } })).await;
    is_as_direct(&[url], format!("{}/mcp/everything", gateway.url)).await;
    drop(gateway);
}

/// Returns a port without a listener, because the server does not print the port that it was given.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

async fn until_it_listens(address: &str) {
    let connect = async || tokio::net::TcpStream::connect(address).await.ok();
    stayput_testkit::until_some(&format!("{address} accepts connections"), connect).await;
}
