//! Call through a hub, compared with the client of the official SDK: with one session held open, and with a session
//! opened for each call as most frameworks do.

use std::{collections::BTreeMap, path::Path, process::Command, sync::Arc, time::Duration};

use serde_json::json;
use stayput::{EraChoice, Http, Hub, Options, Session, Stdio, TransportConfig};
use tokio::runtime::{Builder, Runtime};

use crate::{
    links::{
        load::{Load, Took, Tool, at_once, measure},
        sdk::{self, Sdk},
    },
    report::{head, line, middle},
    server::{HttpServer, counter},
};

const ROUNDS: usize = 7;

/// Timeout for everything, even on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Number of runs of each build, and target of a comparison.
const BUILD_RUNS: usize = 5;
const BUILD_TARGET: f64 = 1.05;

/// Lines of a result, which the comparison of builds reads.
const CPU: &str = "µs of session, scope, rmcp";

/// Runs the measurements. `STAYPUT_BENCH_OTHER_AGENT` names another build of this program: then both are measured in
/// turns, and compared.
pub(crate) fn run() {
    if let Some(other) = std::env::var_os("STAYPUT_BENCH_OTHER_AGENT") {
        compare_builds(Path::new(&other));
        return;
    }
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    over_stdio(&runtime);
    over_http(&runtime);
}

/// Runs both builds in turns, and prints the ratio of each cost: the median of the pairs.
fn compare_builds(other: &Path) {
    head(&format!(
        "Calls by an agent: client CPU per call of this build, for one of the other; median of {BUILD_RUNS} pairs"
    ));
    let own = std::env::current_exe().unwrap();
    let mut ratios = BTreeMap::<String, Vec<f64>>::new();
    for pair in 0..BUILD_RUNS {
        // The build that runs first in one pair runs last in the next.
        let (own, other) = if pair % 2 == 0 {
            let own = costs(&own);
            (own, costs(other))
        } else {
            let other = costs(other);
            (costs(&own), other)
        };
        for (name, cost) in own {
            ratios.entry(name.clone()).or_default().push(cost / other[&name]);
        }
    }
    for (name, ratios) in ratios {
        let ratio = middle(ratios);
        let met = ratio <= BUILD_TARGET;
        line(&name, &format!("{ratio:.3}"), Some(("≤ 1.05", met)));
    }
}

/// Runs a build of this program. Returns the costs of a call, by name.
fn costs(program: &Path) -> BTreeMap<String, f64> {
    let mut command = Command::new(program);
    let output = command.arg("agent").env_remove("STAYPUT_BENCH_OTHER_AGENT").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (mut transport, mut costs) = ("", BTreeMap::new());
    for line in text.lines() {
        if let Some((_, rest)) = line.split_once("Calls over ") {
            transport = rest.split(' ').next().unwrap();
        }
        let Some((what, values)) = line.split_once(CPU) else { continue };
        let values = values.split_whitespace().map(|it| it.parse::<f64>().unwrap());
        for (way, cost) in ["session", "scope"].into_iter().zip(values) {
            costs.insert(format!("{transport}, {}{way}", what.trim_start()), cost);
        }
    }
    assert!(!costs.is_empty(), "{} printed no costs: {text}", program.display());
    costs
}

fn over_stdio(runtime: &Runtime) {
    let hub = hub(Stdio::new(counter()));
    let sdk = runtime.block_on(sdk::over_stdio());
    let each = || async { one(sdk::over_stdio().await).await };
    compare(runtime, "stdio", &hub, sdk, each);
}

fn over_http(runtime: &Runtime) {
    let server = HttpServer::start();
    let hub = hub(Http::new(&server.url));
    let sdk = runtime.block_on(sdk::over_http(&server.url));
    let each = || async { one(sdk::over_http(&server.url).await).await };
    compare(runtime, "HTTP", &hub, sdk, each);
}

fn hub(transport: impl Into<TransportConfig>) -> Hub {
    let options = Options { era: EraChoice::Legacy, ..Options::default() };
    Hub::builder().server_with("bench", transport, options).build().unwrap()
}

/// Makes one call on a new session, from its opening to its end.
async fn one(client: Sdk) {
    let client = Arc::new(client);
    sdk::run(&client, Load { tool: Tool::Small, at_once: 1, each: 1 }).await;
    let client = Arc::into_inner(client).unwrap();
    client.cancel().await.unwrap();
}

fn compare<F: Future<Output = ()>>(
    runtime: &Runtime,
    name: &str,
    hub: &Hub,
    sdk: Sdk,
    each: impl Fn() -> F,
) {
    head(&format!(
        "Calls over {name} by an agent: client CPU per call through a hub, for one of the SDK's client (rmcp) \
         that is held by hand"
    ));
    let sdk = Arc::new(sdk);
    let session = runtime.block_on(hub.session("bench")).unwrap();
    let mut kept = Took::WORST;
    for (tool, at_once) in [(Tool::Small, 1), (Tool::Small, 32), (Tool::Large, 1)] {
        let all = if tool == Tool::Small { 4_096 } else { 512 };
        let load = Load { tool, at_once, each: all / at_once };
        let took = runtime.block_on(in_turns(load, &session, &sdk));
        show(load, took);
        if tool == Tool::Small && at_once == 1 {
            kept = took[0];
        }
    }
    head(&format!(
        "One session for each call over {name}, as most frameworks do, beside one that is kept"
    ));
    let opened = runtime.block_on(opened(each));
    let both = |unit: &str, one: f64, other: f64| {
        line(
            &format!("{unit} of a session per call, of a hub"),
            &format!("{one:.0} {other:.0}"),
            None,
        );
        line("  times as much", &format!("{:.0}", one / other), None);
    };
    both("µs of client CPU", opened.cpu, kept.cpu);
    both("µs that a call takes", 1e6 / opened.rate, 1e6 / kept.rate);
    let _ = runtime.block_on(hub.close(LONG));
    if let Some(sdk) = Arc::into_inner(sdk) {
        let _ = runtime.block_on(sdk.cancel());
    }
}

/// Measures calls on a session by its name, in the scope of a run, and on a held SDK client; in turns, so that all see
/// the same machine.
async fn in_turns(load: Load, session: &Session, sdk: &Arc<Sdk>) -> [Took; 3] {
    let mut best = [Took::WORST; 3];
    for _ in 0..ROUNDS {
        let ((), named) = measure(load, named(session, load)).await;
        let ((), ambient) = measure(load, session.run(ambient(session.hub(), load))).await;
        let ((), by_hand) = measure(load, sdk::run(sdk, load)).await;
        for (best, took) in best.iter_mut().zip([named, ambient, by_hand]) {
            *best = best.best(took);
        }
    }
    best
}

/// Measures the opening of a session for each call.
async fn opened<F: Future<Output = ()>>(each: impl Fn() -> F) -> Took {
    let load = Load { tool: Tool::Small, at_once: 1, each: 10 };
    let mut best = Took::WORST;
    for _ in 0..3 {
        let calls = async {
            for _ in 0..load.each {
                each().await;
            }
        };
        best = best.best(measure(load, calls).await.1);
    }
    best
}

async fn call(call: stayput::ToolCall, tool: Tool) {
    let result = call.await.unwrap();
    assert!(tool.fits(result.text().len()), "not the answer of this tool");
}

async fn named(session: &Session, load: Load) {
    at_once(load.at_once, || {
        let session = session.clone();
        async move {
            for _ in 0..load.each {
                let arguments = json!({ "path": "notes/today.md", "limit": 10 });
                call(session.call("bench", load.tool.name(), arguments), load.tool).await;
            }
        }
    })
    .await;
}

async fn ambient(hub: &Hub, load: Load) {
    let tasks: Vec<_> = (0..load.at_once)
        .map(|_| {
            let hub = hub.clone();
            stayput::spawn(async move {
                for _ in 0..load.each {
                    let arguments = json!({ "path": "notes/today.md", "limit": 10 });
                    call(hub.call("bench", load.tool.name(), arguments), load.tool).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

fn show(load: Load, [named, ambient, by_hand]: [Took; 3]) {
    let many = if load.at_once == 1 { "one at a time" } else { "32 at once" };
    let size = if load.tool == Tool::Small { "small" } else { "100 kB" };
    line(
        &format!("{size} results, {many}: {CPU}"),
        &format!("{:.1} {:.1} {:.1}", named.cpu, ambient.cpu, by_hand.cpu),
        None,
    );
    line(
        "  calls/s of session, scope, rmcp",
        &format!("{:.0} {:.0} {:.0}", named.rate, ambient.rate, by_hand.rate),
        None,
    );
    for (way, took) in [("a session", named), ("a scope", ambient)] {
        let ratio = took.cpu / by_hand.cpu;
        let met = Some(("≤ 1.0", ratio <= 1.0));
        line(&format!("  CPU of {way} for one by hand"), &format!("{ratio:.2}"), met);
    }
}
