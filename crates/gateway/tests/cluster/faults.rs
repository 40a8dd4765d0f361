//! Faults of replicas while clients call, from a seed.

use std::collections::HashMap;

use serde_json::{Value, json};
use stayput_testkit::{Random, mcp::TestServer};

use crate::{
    replicas::{Database, Replicas},
    support::{Client, gone, mark, stdio},
};

/// Count that a client expects, and whether its last call may have run.
#[derive(Default)]
struct Expected {
    count: u64,
    may_have_run: bool,
}

/// Calls `count` and checks the answer: it goes on, or says that the call may have run, or reports a loss.
async fn check_call(client: &Client, replicas: &Replicas, turn: usize, known: &mut Expected) {
    let gateway = &replicas.all[turn % replicas.all.len()];
    let answer: Value = client.call(gateway, "count", json!({})).await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    if answer["result"]["isError"] != true {
        let count: u64 = text.parse().unwrap_or_else(|_| panic!("{answer}"));
        let most = known.count + 1 + u64::from(known.may_have_run);
        assert!((known.count + 1..=most).contains(&count), "{count} after {}", known.count);
        *known = Expected { count, may_have_run: false };
    } else if text.contains("may or may not have been carried out") {
        known.may_have_run = true;
    } else if text.contains("was lost") {
        *known = Expected::default();
    } else {
        // Nothing was run: the next call goes on.
        assert!(text.contains("lease") || text.contains("held"), "{answer}");
    }
}

/// §7, invariants 2, 3 and 12: no call runs twice, no loss is silent, no old state returns, whichever replica is killed or
/// stopped.
#[tokio::test]
async fn replicas_that_are_killed_or_stopped_lose_nothing_silently() {
    let (mark, database) = (mark("cluster-faults"), Database::redis().await);
    let web = TestServer::http(&["--era", "legacy"]).await;
    let servers = json!({ "local": stdio(&mark, &[]), "web": { "url": web.url() } });
    let mut replicas = Replicas::start(&servers, database.url()).await;
    let mut random = Random::new(7);
    let mut clients = Vec::new();
    for number in 0..6 {
        let server = if number % 2 == 0 { "local" } else { "web" };
        clients.push((replicas.next().client(server).await, Expected::default()));
    }
    let mut faults = HashMap::<&str, usize>::new();
    for round in 0..4 {
        let target = random.below(3);
        let fault = if round % 2 == 0 { "kill" } else { "stop" };
        *faults.entry(fault).or_default() += 1;
        match fault {
            "kill" => replicas.all[target].kill(),
            _ => replicas.all[target].signal("-STOP"),
        }
        for turn in 1..=2 {
            for (client, known) in &mut clients {
                // The replica with the fault takes no requests meanwhile.
                check_call(client, &replicas, target + turn, known).await;
            }
        }
        match fault {
            "kill" => replicas.all[target].restart().await,
            _ => replicas.all[target].signal("-CONT"),
        }
        for turn in 0..3 {
            for (client, known) in &mut clients {
                check_call(client, &replicas, turn, known).await;
            }
        }
    }
    assert_eq!(faults.values().sum::<usize>(), 4);
    let counted: u64 = clients.iter().skip(1).step_by(2).map(|(_, known)| known.count).sum();
    assert!(counted >= 3 * 8, "sessions on the HTTP server went on: {counted}");
    drop(replicas);
    gone(&mark).await;
}
