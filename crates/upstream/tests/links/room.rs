//! Caps on processes and links: eviction and waiting.

use std::time::Duration;

use stayput_upstream::{
    CallOptions, Isolation, Limits, LinkOpenError, LossReason, Obstacle, Options, PerOwner, Server,
};

use crate::support::{
    LONG, alive, call, close, kill, links_with, open, params, place, place_of, quick, server_with,
    stdio, token, try_call, try_open, until,
};

fn server() -> Server {
    server_with(stdio(&[]), quick())
}

fn processes(processes: usize) -> Limits {
    Limits { processes, ..Limits::default() }
}

/// Design §4.2: at a cap the least recently used idle link is evicted, and its session gets a report.
#[tokio::test]
async fn least_recently_used_idle_link_is_evicted() {
    for limits in [processes(2), Limits { links: 2, ..Limits::default() }] {
        let links = links_with(limits);
        let (server, ann, bob, eve) = (server(), place(), place(), place());
        for place in [&ann, &bob, &ann] {
            call(&*open(&links, &server, place).await, "count", "{}").await;
        }
        let third = open(&links, &server, &eve).await;
        assert_eq!(call(&third, "count", "{}").await, "1");
        assert_eq!(links.used().processes, 2);
        // The link that was used last is still there.
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

/// Invariant 7: a link that is held or has a call in flight is not evicted. A request that waits in vain fails with
/// advice.
#[tokio::test]
async fn link_in_use_is_not_evicted() {
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
    // A link is idle as soon as its call is dropped.
    drop(slow);
    drop(open(&links, &server, &place()).await);
    assert_eq!(call(&held, "count", "{}").await, "1");
    drop(held);
    close(&links).await;
}

/// A waiting request gets the place of a link that becomes idle, in whichever way.
#[tokio::test]
async fn waiting_request_gets_the_first_idle_link() {
    let links = links_with(processes(1));
    let (server, ann) = (server(), place());
    let soon = Some(Duration::from_millis(300));
    let slow = params("slow", r#"{"ms":60000}"#);
    // The link is released; its only call ends, is dropped, or times out.
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

/// A link with a dead child has already freed its place, so another link has to be evicted.
#[tokio::test]
async fn dead_link_is_not_taken_for_an_idle_one() {
    let links = links_with(processes(2));
    let token = token();
    let dying = server_with(stdio(&[]).env("TOKEN", token.as_str()), quick());
    drop(open(&links, &dying, &place()).await);
    kill(&token);
    until("its place is free", || links.used().links == 0).await;
    let server = server();
    for _ in 0..4 {
        // The oldest entry is that of the dead link, and its session does not return.
        let opened = tokio::time::timeout(LONG / 3, open(&links, &server, &place())).await;
        drop(opened.unwrap());
    }
    assert_eq!(links.status().len(), 2);
    close(&links).await;
}

/// An owner at its own cap evicts no link of another owner.
#[tokio::test]
async fn owner_at_its_cap_loses_its_own_links() {
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

/// Invariant 6: a request that leaves the queue leaves nothing behind, and the queue is served in order.
#[tokio::test]
async fn queue_is_fair_and_can_be_left() {
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
        // The link is opened although its request was dropped, and is evicted for the next one.
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

/// Invariant 6: a link whose opener was cancelled meanwhile is evicted for a waiting request.
#[tokio::test]
async fn link_without_an_opener_is_evicted() {
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

/// Sessions that need the only place in turn all make progress: a link is not evicted before its use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sessions_take_turns_with_one_place() {
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
    // Twenty calls on at most twenty generations: no link was evicted before its use.
    let generations: u64 = links.status().iter().filter_map(|it| Some(it.generation?.0)).sum();
    assert!(generations < 5, "{generations}");
    close(&links).await;
}

/// Design §4.5: a shared link counts for no owner.
#[tokio::test]
async fn shared_link_counts_as_one_link() {
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
    // The end of one session does not end the shared link.
    assert!(links.end(ann.session).await.is_empty());
    assert_eq!(call(&*open(&links, &shared, &bob).await, "count", "{}").await, "3");
    let error = try_open(&links, &server(), &ann).await.unwrap_err();
    assert!(matches!(&*error, LinkOpenError::AtCapacity(_)), "{error}");
    close(&links).await;
}

/// Above the memory limit a new process replaces another.
#[tokio::test]
async fn process_above_the_memory_limit_evicts_another() {
    let token = token();
    let limits = Limits { memory: Some(64 << 20), ..processes(10) };
    let links = links_with(limits);
    let large = stdio(&["--memory-mb", "96"]).env("TOKEN", token.as_str());
    let server = server_with(large, quick());
    let (ann, bob) = (place(), place());
    assert_eq!(call(&*open(&links, &server, &ann).await, "count", "{}").await, "1");
    // Their memory has not been measured yet.
    assert_eq!(call(&*open(&links, &server, &bob).await, "count", "{}").await, "1");
    assert_eq!(alive(&token).len(), 2);
    tokio::time::timeout(LONG, async {
        while links.used().processes == 2 {
            // Once memory was measured, each new process replaces another.
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
