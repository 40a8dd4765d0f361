//! HTTP client towards servers without TLS, compared with hyper's connection that is polled beside the request, in the
//! same task: the control of the decision to write this client by hand.

mod control;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use stayput_http::{Client, ClientSettings, Proxy, Request, Target};
use tokio::runtime::{Builder, Runtime};

use self::control::Control;
use crate::{
    links::{
        load::{Load, Took, Tool, at_once, measure},
        ours::{self, Host},
    },
    report::{head, line, middle},
    server::HttpServer,
};

const ROUNDS: usize = 31;
/// Share of a call's processor time that hyper may cost more before a client by hand is worth its code.
const WORTH: f64 = 1.05;

/// Runs the measurements.
pub(crate) fn run() {
    // As in the gateway: a runtime of one thread.
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let server = HttpServer::start();
    head(&format!(
        "POST over HTTP, one thread: client CPU; medians of {ROUNDS} interleaved rounds"
    ));
    for (tool, at_once) in [(Tool::Small, 1), (Tool::Small, 32), (Tool::Large, 1)] {
        let all = if tool == Tool::Small { 2_048 } else { 256 };
        show(&runtime, &server, Load { tool, at_once, each: all / at_once });
    }
}

fn show(runtime: &Runtime, server: &HttpServer, load: Load) {
    let (ours, control, link) = runtime.block_on(compare(server, load));
    let many = if load.at_once == 1 { "one at a time" } else { "32 at once" };
    let size = if load.tool == Tool::Small { "small" } else { "100 kB" };
    let cpu = |of: &[Took]| middle(of.iter().map(|took| took.cpu).collect());
    line(
        &format!("{size} results, {many}: µs of ours, hyper, a call of a link"),
        &format!("{:.1} {:.1} {:.1}", cpu(&ours), cpu(&control), cpu(&link)),
        None,
    );
    let pairs = ours.iter().zip(&control);
    let ratio = middle(pairs.clone().map(|(ours, control)| control.cpu / ours.cpu).collect());
    line("  hyper for one of ours", &format!("{ratio:.3}"), None);
    let more =
        pairs.zip(&link).map(|((ours, control), link)| 1.0 + (control.cpu - ours.cpu) / link.cpu);
    let more = middle(more.collect());
    line(
        "  call of a link with hyper, for one as it is",
        &format!("{more:.3}"),
        Some(("> 1.05", more > WORTH)),
    );
}

/// Measures in turns, and the order changes with each round.
async fn compare(server: &HttpServer, load: Load) -> (Vec<Took>, Vec<Took>, Vec<Took>) {
    let links = ours::links(Host::Local);
    let link = Arc::new(ours::open(&links, &ours::over_http(&server.url)).await);
    let plain = Arc::new(Plain::new(&server.url));
    let control = Arc::new(Control::new(&server.url));
    let mut all = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let took = if round % 2 == 0 {
            let ours = by(&plain, load).await;
            (ours, by_control(&control, load).await)
        } else {
            let control = by_control(&control, load).await;
            (by(&plain, load).await, control)
        };
        let ((), link) = measure(load, ours::run(&link, load)).await;
        // The first round opens the connections.
        if round > 0 {
            all.0.push(took.0);
            all.1.push(took.1);
            all.2.push(link);
        }
    }
    drop(link);
    ours::close(&links).await;
    all
}

async fn by(plain: &Arc<Plain>, load: Load) -> Took {
    let run = at_once(load.at_once, || {
        let plain = plain.clone();
        async move {
            for n in 0..load.each {
                let body = plain.post(request(n, load.tool)).await;
                assert!(load.tool.fits(body.len()), "not the answer of this tool");
            }
        }
    });
    measure(load, run).await.1
}

async fn by_control(control: &Arc<Control>, load: Load) -> Took {
    let run = at_once(load.at_once, || {
        let control = control.clone();
        async move {
            for n in 0..load.each {
                let body = control.post(request(n, load.tool)).await;
                assert!(load.tool.fits(body.len()), "not the answer of this tool");
            }
        }
    });
    measure(load, run).await.1
}

fn request(id: usize, tool: Tool) -> Bytes {
    let params = tool.params();
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#).into()
}

/// Headers of a call.
fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        (header::CONTENT_TYPE, "application/json"),
        (header::ACCEPT, "application/json, text/event-stream"),
        (header::HeaderName::from_static("mcp-protocol-version"), "2025-11-25"),
        (header::HeaderName::from_static("mcp-session-id"), "0123456789abcdef0123456789abcdef"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
}

/// Our client.
struct Plain {
    client: Client,
    request: Request,
}

impl Plain {
    fn new(url: &str) -> Self {
        let settings = ClientSettings { proxy: Proxy::None, ..ClientSettings::default() };
        let request = Request {
            method: Method::POST,
            url: Target::parse(url).unwrap(),
            headers: headers(),
            body: Bytes::new(),
            first_byte: Duration::MAX,
            idle: Duration::MAX,
        };
        Self { client: Client::new(&settings).unwrap(), request }
    }

    async fn post(&self, body: Bytes) -> Bytes {
        let request = Request { body, ..self.request.clone() };
        let response = self.client.send(request).await.unwrap();
        response.body.collect(1 << 30).await.unwrap()
    }
}
