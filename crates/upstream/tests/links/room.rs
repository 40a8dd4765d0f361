//! A cap on processes and links: who has to go, and who waits.

use std::time::Duration;

use stayput_upstream::{
    CallOptions, Isolation, Limits, LinkOpenError, LossReason, Obstacle, Options, PerOwner, Server,
};

use crate::world::{
    LONG, alive, call, close, kill, links_with, open, params, place, place_of, quick, server_with,
    stdio, token, try_call, try_open, until,
};

fn server() -> Server {
    server_with(stdio(&[]), quick())
}

fn processes(processes: usize) -> Limits {
    Limits { processes, ..Limits::default() }
}

/// Design §4.2: at a cap the least recently used idle link goes, and its session hears of it.
#[tokio::test]
async fn the_link_that_was_idle_for_longest_makes_room() {
    for limits in [processes(2), Limits { links: 2, ..Limits::default() }] {
        let links = links_with(limits);
        let (server, ann, bob, eve) = (server(), place(), place(), place());
        for place in [&ann, &bob, &ann] {
            call(&*open(&links, &server, place).await, "count", "{}").await;
        }
        let third = open(&links, &server, &eve).await;
        assert_eq!(call(&third, "count", "{}").await, "1");
        assert_eq!(links.used().processes, 2);
        // The one that was used last is still there.
        let kept = open(&links, &server, &ann).await;
        assert_eq!(call(&kept, "count", "{}").await, "3");
        assert!(kept.loss().is_none());
        drop((third, kept));
        let back = open(&links, &server, &bob).await;
        assert_eq!(back.loss().unwrap().reason(), LossReason::Evicted);
        assert_eq!(back.generation().0, 1);
        assert_eq!(call(&back, "count", "{}").await, "1");
        drop(back);
        close(&links).await;
    }
}

/// Invariant 7: neither what is held nor what has a call in flight makes room, and who waits in vain
/// is told what to do.
#[tokio::test]
async fn what_is_in_use_does_not_make_room() {
    let wait = Duration::from_millis(300);
    let links = links_with(Limits { wait, ..processes(2) });
    let (server, ann, bob) = (server(), place(), place());
    let held = open(&links, &server, &ann).await;
    let link = open(&links, &server, &bob).await;
    let slow = params("slow", r#"{"ms":60000}"#);
    let slow = link.call("tools/call", Some(&slow), CallOptions::default()).await.unwrap();
    drop(link);
    let error = try_open(&links, &server, &place()).await.unwrap_err();
    let LinkOpenError::AtCapacity(full) = &*error else { panic!("{error}") };
    assert_eq!(full.obstacle, Obstacle::Processes(2));
    assert_eq!(
        error.to_string(),
        "at capacity: there are 2 server processes, as many as are allowed, and none of them is \
         idle; end a session, raise the limit, or try again in 5 seconds"
    );
    assert_eq!(links.used().waiting, 0);
    // As soon as a call is given up, its link is idle.
    drop(slow);
    drop(open(&links, &server, &place()).await);
    assert_eq!(call(&held, "count", "{}").await, "1");
    drop(held);
    close(&links).await;
}

/// Whoever waits gets the place of a link that becomes idle, however it does.
#[tokio::test]
async fn who_waits_gets_the_first_link_that_becomes_idle() {
    let links = links_with(processes(1));
    let (server, ann) = (server(), place());
    let soon = Some(Duration::from_millis(300));
    let slow = params("slow", r#"{"ms":60000}"#);
    // Let go of; its only call ends, is given up, takes too long.
    for way in 0..4 {
        let link = open(&links, &server, &ann).await;
        let limit = soon.filter(|_| way == 3);
        let options = CallOptions { limit, ..CallOptions::default() };
        let in_flight = match way {
            0 => None,
            1 => {
                let short = params("slow", r#"{"ms":300}"#);
                Some(link.call("tools/call", Some(&short), options).await.unwrap())
            }
            _ => Some(link.call("tools/call", Some(&slow), options).await.unwrap()),
        };
        let bob = place();
        let opening = open(&links, &server, &bob);
        let using = async {
            until("somebody waits", || links.used().waiting == 1).await;
            drop(link);
            match in_flight {
                Some(call) if way == 2 => call.cancel(),
                Some(call) => drop(call.answer().await),
                None => {}
            }
        };
        let (opened, ()) = tokio::join!(opening, using);
        assert_eq!(call(&opened, "count", "{}").await, "1", "way {way}");
    }
    close(&links).await;
}

/// A link whose child died makes no room that does not come by itself: another one has to go.
#[tokio::test]
async fn a_dead_link_is_not_taken_for_an_idle_one() {
    let links = links_with(processes(2));
    let token = token();
    let dying = server_with(stdio(&[]).env("TOKEN", token.as_str()), quick());
    drop(open(&links, &dying, &place()).await);
    kill(&token);
    until("its place is free", || links.used().links == 0).await;
    let server = server();
    for _ in 0..4 {
        // The oldest slot is the dead one's, and nobody comes back to it.
        let opened = tokio::time::timeout(LONG / 3, open(&links, &server, &place())).await;
        drop(opened.unwrap());
    }
    assert_eq!(links.status().len(), 2);
    close(&links).await;
}

/// One owner at its own cap costs nobody else a link.
#[tokio::test]
async fn an_owner_at_its_cap_loses_its_own_links() {
    let limits = Limits {
        per_owner: PerOwner { processes: 1, ..PerOwner::default() },
        wait: Duration::from_millis(300),
        ..processes(10)
    };
    let links = links_with(limits);
    let (server, ann, bob) = (server(), place_of("ann"), place_of("bob"));
    call(&*open(&links, &server, &bob).await, "count", "{}").await;
    let first = open(&links, &server, &ann).await;
    let error = try_open(&links, &server, &place_of("ann")).await.unwrap_err();
    let LinkOpenError::AtCapacity(full) = &*error else { panic!("{error}") };
    assert_eq!(full.obstacle, Obstacle::OwnerProcesses(1));
    drop(first);
    drop(open(&links, &server, &place_of("ann")).await);
    assert_eq!(call(&*open(&links, &server, &bob).await, "count", "{}").await, "2");
    let back = open(&links, &server, &ann).await;
    assert_eq!(back.loss().unwrap().reason(), LossReason::Evicted);
    drop(back);
    close(&links).await;
}

/// Invariant 6: who leaves the line leaves nothing behind, and who came first is served first.
#[tokio::test]
async fn waiting_in_line_is_fair_and_can_be_given_up() {
    let links = links_with(processes(1));
    let server = server();
    let held = open(&links, &server, &place()).await;
    let order = std::sync::Mutex::new(Vec::new());
    let one = |number: usize| {
        let (links, server, order) = (&links, &server, &order);
        async move {
            until("it is its turn to join", || links.used().waiting == number).await;
            let link = open(links, server, &place()).await;
            order.lock().unwrap().push(number);
            call(&link, "count", "{}").await;
        }
    };
    let gives_up = async {
        until("all are in line", || links.used().waiting == 4).await;
        let given_up =
            tokio::time::timeout(Duration::from_millis(100), open(&links, &server, &place())).await;
        assert!(given_up.is_err(), "there was room");
        // It is opened for nobody, and makes room for the next.
        drop(held);
    };
    tokio::time::timeout(LONG * 2, async {
        tokio::join!(one(0), one(1), one(2), one(3), gives_up)
    })
    .await
    .unwrap();
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
    until("the last one is idle", || links.used().waiting == 0).await;
    close(&links).await;
}

/// Invariant 6: what is opened for somebody who was cancelled meanwhile makes room for who waits.
#[tokio::test]
async fn a_link_that_was_opened_for_nobody_makes_room() {
    let links = links_with(processes(1));
    let (server, bob) = (server(), place());
    let held = open(&links, &server, &place()).await;
    {
        let cancelled = open(&links, &server, &bob);
        tokio::pin!(cancelled);
        tokio::select! {
            _ = &mut cancelled => panic!("there is no room"),
            () = until("it is in line", || links.used().waiting == 1) => {}
        }
    }
    let eve = place();
    let opening = open(&links, &server, &eve);
    let using = async {
        until("another one is in line", || links.used().waiting == 2).await;
        drop(held);
    };
    let (opened, ()) = tokio::join!(opening, using);
    assert_eq!(call(&opened, "count", "{}").await, "1");
    drop(opened);
    close(&links).await;
}

/// Two sessions that need the only place in turn both get on: nobody loses a link that he waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sessions_share_one_place() {
    let links = links_with(Limits { wait: LONG * 4, ..processes(1) });
    let server = server();
    let rounds = (0..4).map(|_| {
        let (links, server, place) = (links.clone(), server.clone(), place());
        tokio::runtime::Handle::current().spawn(async move {
            for _ in 0..5 {
                let link = open(&links, &server, &place).await;
                call(&link, "count", "{}").await;
            }
        })
    });
    for round in futures_util::future::join_all(rounds).await {
        round.unwrap();
    }
    let used = links.used();
    assert!(used.processes <= 1 && used.waiting == 0, "{used:?}");
    // Twenty calls on at most twenty generations: nobody's link went before it was used.
    let generations: u64 = links.status().iter().filter_map(|it| Some(it.generation?.0)).sum();
    assert!(generations < 5, "{generations}");
    close(&links).await;
}

/// Design §4.5: a link that all share belongs to nobody's budget.
#[tokio::test]
async fn a_shared_link_is_one_link() {
    let limits = Limits {
        per_owner: PerOwner { processes: 0, links: 0 },
        wait: Duration::from_millis(200),
        ..processes(1)
    };
    let links = links_with(limits);
    let isolation = Some(Isolation::Shared);
    let shared = server_with(stdio(&[]), Options { isolation, ..quick() });
    let (ann, bob) = (place_of("ann"), place_of("bob"));
    assert_eq!(call(&*open(&links, &shared, &ann).await, "count", "{}").await, "1");
    assert_eq!(call(&*open(&links, &shared, &bob).await, "count", "{}").await, "2");
    // The end of one session is not the end of the others' link.
    assert!(links.end(ann.session).await.is_empty());
    assert_eq!(call(&*open(&links, &shared, &bob).await, "count", "{}").await, "3");
    let error = try_open(&links, &server(), &ann).await.unwrap_err();
    assert!(matches!(&*error, LinkOpenError::AtCapacity(_)), "{error}");
    close(&links).await;
}

/// Above the limit on memory a process comes only for one that goes.
#[tokio::test]
async fn above_the_memory_limit_one_has_to_go() {
    let token = token();
    let limits = Limits { memory: Some(64 << 20), ..processes(10) };
    let links = links_with(limits);
    let large = stdio(&["--memory-mb", "96"]).env("TOKEN", token.as_str());
    let server = server_with(large, quick());
    let (ann, bob) = (place(), place());
    assert_eq!(call(&*open(&links, &server, &ann).await, "count", "{}").await, "1");
    // Nobody knows yet how much that is.
    assert_eq!(call(&*open(&links, &server, &bob).await, "count", "{}").await, "1");
    assert_eq!(alive(&token).len(), 2);
    tokio::time::timeout(LONG, async {
        while links.used().processes == 2 {
            // Each is one more for one that goes, once it was measured.
            let before = links.used().processes;
            let eve = place();
            let link = open(&links, &server, &eve).await;
            try_call(&link, "count", "{}").await.unwrap();
            drop(link);
            let more = links.used().processes > before;
            assert!(links.end(eve.session).await.is_empty());
            if more {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    })
    .await
    .unwrap();
    let back = open(&links, &server, &ann).await;
    assert_eq!(back.loss().map(|loss| loss.reason()), Some(LossReason::Evicted));
    drop(back);
    close(&links).await;
}
