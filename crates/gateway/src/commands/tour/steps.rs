//! Steps of the tour.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::{StepResult, chat::Chat};
use crate::commands::tour::{
    processes,
    report::{Reporter, seconds},
    setup::{NOTES, REMOTE, TourSetup},
};

/// Note that other chats must not read.
const SECRET: &str = "Ann's PIN is 4711";

/// Answer of an empty notebook.
const EMPTY: &str = "There are no notes.";

/// Number of concurrent calls.
const CONCURRENT_CALLS: usize = 50;

/// Timeout of an expected event.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs all steps.
pub(super) async fn play(setup: &mut TourSetup, reporter: &mut Reporter) -> StepResult<()> {
    expect(processes::is_possible(), || {
        "processes are counted in /proc, which is not here".into()
    })?;
    mixed(setup, reporter).await?;
    let bob = show_isolation(setup, reporter).await?;
    once(setup, reporter).await?;
    restart(setup, reporter, &bob).await
}

/// Shows that without Stayput two chats read each other's notes.
async fn mixed(setup: &TourSetup, reporter: &mut Reporter) -> StepResult<()> {
    reporter.step("mixed", "Without Stayput: two chats share one server");
    reporter.show_progress("starting the server");
    let server = setup.shared()?;
    let (ann, bob) = (Chat::new(&setup.links, &server), Chat::new(&setup.links, &server));
    note(&ann, reporter).await?;
    let read = list(&bob, reporter).await?;
    let (one, other) = (process(&ann).await?, process(&bob).await?);
    expect(one == other, || format!("process {one} and process {other} answered, not one"))?;
    expect(read.contains(SECRET), || {
        format!("Bob's chat should have read Ann's note, not {read}")
    })?;
    reporter.report_problem(&format!("Process {one} answers both: Bob reads what Ann wrote."));
    Ok(())
}

/// Shows that with Stayput each chat has its own notes.
async fn show_isolation(setup: &mut TourSetup, reporter: &mut Reporter) -> StepResult<Chat> {
    reporter.step("apart", "With Stayput: each chat has a server of its own");
    reporter.show_progress("starting the gateway");
    let gateway = setup.serve().await?;
    let (pid, address) = (gateway.pid, gateway.address);
    reporter.report_action("stayput serve", &format!("process {pid} listens on http://{address}"));
    reporter.show_progress("connecting");
    let server = setup.server_behind_gateway(NOTES)?;
    let (ann, bob) = (Chat::new(&setup.links, &server), Chat::new(&setup.links, &server));
    note(&ann, reporter).await?;
    let read = list(&bob, reporter).await?;
    expect(read == EMPTY, || format!("Bob's chat should have no notes, but reads: {read}"))?;
    let own = list_as("Ann", &ann, reporter).await?;
    expect(own.contains(SECRET), || format!("Ann's chat lost its note and reads: {own}"))?;
    let (one, other) = (process(&ann).await?, process(&bob).await?);
    expect(one != other, || format!("process {one} answers both"))?;
    reporter.shows(&format!("Process {one} answers Ann, process {other} answers Bob."));
    Ok(bob)
}

/// Shows that concurrent first calls start one process.
async fn once(setup: &TourSetup, reporter: &mut Reporter) -> StepResult<()> {
    reporter.step("once", "Fifty first calls at once");
    let chat = Chat::new(&setup.links, &setup.server_behind_gateway(NOTES)?);
    let _connected = chat.connect().await?;
    let before = servers(setup)?;
    reporter.show_progress("calling");
    let said = chat.ask_at_once("count", CONCURRENT_CALLS).await?;
    let mut counted: Vec<usize> = said.iter().filter_map(|it| it.parse().ok()).collect();
    counted.sort_unstable();
    let all = counted.iter().copied().eq(1..=CONCURRENT_CALLS);
    expect(all, || format!("the counts should be 1 to {CONCURRENT_CALLS}, and are {counted:?}"))?;
    reporter.report_action(
        "A new chat calls `count` fifty times",
        &format!("1 to {CONCURRENT_CALLS}, each once"),
    );
    let started = servers(setup)?.saturating_sub(before);
    expect(started == 1, || format!("{started} processes were started for them, not 1"))?;
    reporter.shows(&format!("{started} process was started for them."));
    Ok(())
}

/// Shows that after `kill -9` sessions over HTTP continue, a lost session is reported, and no process is left.
async fn restart(setup: &mut TourSetup, reporter: &mut Reporter, bob: &Chat) -> StepResult<()> {
    reporter.step("restart", "kill -9 of the gateway, and a new start");
    let ann = Chat::new(&setup.links, &setup.server_behind_gateway(REMOTE)?);
    reporter.report_action("Ann's chat counts, on a server over HTTP", &count(&ann, "1").await?);
    reporter.report_action("Bob's chat counts, on its process", &count(bob, "1").await?);
    let left = processes::below(setup.gateway()?.pid);
    expect(!left.is_empty(), || "the gateway has no processes to leave behind".into())?;
    let pid = setup.gateway()?.pid;
    let killed = Instant::now();
    setup.kill().await?;
    reporter.show_progress("looking for orphans");
    until(|| left.iter().all(|it| !it.lives()), "processes of the gateway outlive it").await?;
    let (count_left, after) = (left.len(), seconds(killed.elapsed()));
    reporter.report_action(
        &format!("kill -9 {pid}"),
        &format!("its {count_left} processes are gone, too"),
    );
    reporter.shows(&format!("No orphans, {after} after the kill."));
    reporter.show_progress("starting the gateway again");
    let pid = setup.serve().await?.pid;
    reporter.report_action("stayput serve, on the same store", &format!("process {pid} listens"));
    reconnect(&[&ann, bob]).await?;
    reporter.report_action("Ann's chat counts on", &count(&ann, "2").await?);
    reporter.shows("A session on a server over HTTP goes on where it was.");
    let told = bob.call("count", json!({})).await?;
    expect(told.lost, || format!("Bob's chat should be told of its loss, not {}", told.text))?;
    reporter.report_action("Bob's chat counts on", &told.text);
    let again = after_the_loss(bob).await?;
    expect(again == "1", || format!("a new process should count 1, not {again}"))?;
    reporter.report_action("Bob's chat counts again", &again);
    reporter
        .shows("A process cannot outlive its gateway, so its chat is told, and goes on afresh.");
    Ok(())
}

async fn note(ann: &Chat, reporter: &mut Reporter) -> StepResult<()> {
    let noted = ann.ask("note_add", json!({ "text": SECRET })).await?;
    reporter.report_action(&format!("Ann's chat notes \"{SECRET}\""), &noted);
    Ok(())
}

async fn list(bob: &Chat, reporter: &mut Reporter) -> StepResult<String> {
    list_as("Bob", bob, reporter).await
}

async fn list_as(name: &str, chat: &Chat, reporter: &mut Reporter) -> StepResult<String> {
    let read = chat.ask("note_list", json!({})).await?;
    reporter.report_action(&format!("{name}'s chat lists its notes"), &read);
    Ok(read)
}

/// Returns the process that answers a chat.
async fn process(chat: &Chat) -> StepResult<String> {
    let said = chat.ask("whoami", json!({})).await?;
    Ok(said.trim_start_matches("process ").to_owned())
}

async fn count(chat: &Chat, expected: &str) -> StepResult<String> {
    let counted = chat.ask("count", json!({})).await?;
    expect(counted == expected, || format!("it should count {expected}, and counts {counted}"))?;
    Ok(counted)
}

/// Returns the number of server processes of the gateway.
fn servers(setup: &TourSetup) -> StepResult<usize> {
    let below = processes::below(setup.gateway()?.pid);
    Ok(below.iter().filter(|it| it.has_word("demo-server")).count())
}

/// Waits until each chat can reach the new gateway. The old connections are dead, and a ping, which is safe to repeat,
/// detects that.
async fn reconnect(chats: &[&Chat]) -> StepResult<()> {
    let end = Instant::now() + STEP_TIMEOUT;
    for chat in chats {
        while let Err(problem) = chat.ping().await {
            expect(Instant::now() < end, || format!("the gateway cannot be reached: {problem}"))?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

/// Calls until the loss is no longer reported. The acknowledgement is stored after the answer that reports the loss, so
/// the loss may be reported once more.
async fn after_the_loss(chat: &Chat) -> StepResult<String> {
    let end = Instant::now() + STEP_TIMEOUT;
    loop {
        let said = chat.call("count", json!({})).await?;
        if !said.lost {
            return Ok(said.text);
        }
        expect(Instant::now() < end, || "the loss is told without end".into())?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a condition holds.
async fn until(is_so: impl Fn() -> bool, otherwise: &str) -> StepResult<()> {
    let end = Instant::now() + STEP_TIMEOUT;
    while !is_so() {
        expect(Instant::now() < end, || format!("{otherwise}, even after {STEP_TIMEOUT:?}"))?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

fn expect(is_so: bool, otherwise: impl FnOnce() -> String) -> StepResult<()> {
    if is_so { Ok(()) } else { Err(otherwise()) }
}
