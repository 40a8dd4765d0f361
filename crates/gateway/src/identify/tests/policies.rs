//! Tests of the policies for requests that name no session.

use super::*;
use crate::config::UnidentifiedPolicy;

async fn world(unidentified: UnidentifiedPolicy) -> Fixture {
    Fixture::with(Identify { unidentified, ..Identify::default() }, Handles::Auto).await
}

fn reading() -> Request {
    Request { method: "resources/read", params: json!({ "uri": "x:y" }), ..Request::call(&ann()) }
}

/// R156, E29: nothing runs, nothing starts, and the answer tells how to continue.
#[tokio::test]
async fn offer_carries_a_working_handle() {
    let world = world(UnidentifiedPolicy::Offer).await;
    let Answer::Refused(offer) = world.ask(&Request::call(&ann())).await else { panic!() };
    assert_eq!((&offer["id"], &offer["result"]["isError"]), (&json!(7), &json!(true)));
    let handle = offer["result"]["_meta"]["dev.stayput/session"].as_str().unwrap();
    let text = offer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains(&format!("`\"session_id\": \"{handle}\"`")), "{text}");
    assert!(text.contains("not run") && text.contains("30 min after its last call"), "{text}");
    assert!(world.app.links.status().is_empty());
    let mut again = Request::call(&ann());
    again.params["arguments"]["session_id"] = handle.into();
    let id = world.ask(&again).await.id();
    world.pass(20).await;
    assert_eq!(world.ask(&again).await.id(), id, "it is wanted now, and lives as long as any");
    let foreign = Request { owner: eve(), ..again };
    assert!(world.ask(&foreign).await.refusal().contains("no such session"));
}

/// E40: a client that forgets every handle costs little.
#[tokio::test]
async fn unused_offers_are_few_and_expire_soon() {
    let world = world(UnidentifiedPolicy::Offer).await;
    for _ in 0..30 {
        world.ask(&Request::call(&ann())).await.refusal();
        world.clock.advance(Duration::from_millis(1));
    }
    assert_eq!(world.app.sessions.held_sessions().len(), 8);
    world.pass(3).await;
    assert!(world.app.sessions.held_sessions().is_empty());
}

#[tokio::test]
async fn mint_runs_the_call_and_returns_a_handle() {
    let world = world(UnidentifiedPolicy::Mint).await;
    let answer = world.ask(&Request::call(&ann())).await;
    let Answer::Session { id, given: Some(given), ephemeral: None, .. } = answer else {
        panic!("{answer:?}")
    };
    let mut again = Request::call(&ann());
    again.params["arguments"]["session_id"] = given.into();
    assert_eq!(world.ask(&again).await.id(), id);
    assert_ne!(world.ask(&Request::call(&ann())).await.id(), id);
}

/// R157: nothing else leads to that session.
#[tokio::test]
async fn owner_policy_uses_one_session_per_owner() {
    let world = world(UnidentifiedPolicy::Owner).await;
    let id = world.ask(&Request::call(&ann())).await.id();
    assert_eq!(world.ask(&Request::call(&ann())).await.id(), id);
    assert_eq!(world.ask(&reading()).await.id(), id);
    assert_ne!(world.ask(&Request::call(&eve())).await.id(), id);
    let mut named = Request::call(&ann());
    named.path = Some("all".to_owned());
    assert_ne!(world.ask(&named).await.id(), id, "no name leads there");
}

#[tokio::test]
async fn refuse_policy_runs_nothing_and_creates_no_session() {
    let world = world(UnidentifiedPolicy::Refuse).await;
    let text = world.ask(&Request::call(&ann())).await.refusal();
    assert!(
        text.contains("nothing says which session") && text.contains("session_start"),
        "{text}"
    );
    let Answer::Refused(error) = world.ask(&reading()).await else { panic!() };
    assert_eq!(error["error"]["code"], -32602);
    assert!(world.app.sessions.held_sessions().is_empty());
}

/// A method without an argument for a handle runs in its own session, which ends with the call.
#[tokio::test]
async fn method_without_a_handle_runs_in_an_ephemeral_session() {
    for policy in [UnidentifiedPolicy::Offer, UnidentifiedPolicy::Mint] {
        let world = world(policy).await;
        for method in ["resources/read", "prompts/get", "completion/complete", "resources/list"] {
            let request = Request { method, ..reading() };
            let answer = world.ask(&request).await;
            let Answer::Session { id, ephemeral: Some(guard), given: None, .. } = answer else {
                panic!("{answer:?}")
            };
            drop(world.app.sessions.find_by_id(&ann(), id).await.unwrap());
            drop(guard);
            let gone = async {
                while world.app.sessions.find_by_id(&ann(), id).await.is_ok() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap();
        }
    }
}
