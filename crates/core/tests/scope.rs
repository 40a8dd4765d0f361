//! The current session of a task (R001, R003–R008, R027, R035, R041, R107).

use std::sync::Arc;

use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use stayput_core::{
    SessionId, Timestamp,
    scope::{self, InSession, Scope},
};
use tokio::task::yield_now;

fn session() -> SessionId {
    SessionId::generate(Timestamp::from_millis(1))
}

/// What code deep inside sees, without a parameter on the way (R006).
async fn seen() -> Option<SessionId> {
    yield_now().await;
    scope::current().map(|scope| scope.session())
}

/// R001, R008: no scope means root; inside, the session is there; afterwards it is gone.
#[tokio::test]
async fn a_scope_begins_and_ends_with_its_future() {
    let id = session();
    assert_eq!(seen().await, None);
    assert_eq!(async { seen().await }.in_session(id).await, Some(id));
    assert_eq!(seen().await, None);
}

/// R003: it flows through nested futures, `join!`, `select!` and unordered streams of futures.
#[tokio::test]
async fn a_scope_follows_the_task() {
    let id = session();
    let work = async {
        let (one, two) = tokio::join!(seen(), async { seen().await });
        assert_eq!((one, two), (Some(id), Some(id)));
        tokio::select! {
            it = seen() => assert_eq!(it, Some(id)),
            it = async { yield_now().await; seen().await } => assert_eq!(it, Some(id)),
        }
        let mut many: FuturesUnordered<_> = (0..5).map(|_| seen()).collect();
        while let Some(it) = many.next().await {
            assert_eq!(it, Some(id));
        }
    };
    work.in_session(id).await;
}

/// R004: what a child does reaches neither its parent nor its siblings.
#[tokio::test]
async fn a_child_changes_nothing_outside() {
    let (outer, inner) = (session(), session());
    let work = async {
        let child = async { (seen().await, seen().in_session(inner).await, seen().await) };
        let (child, sibling) = tokio::join!(child.in_session(inner), async {
            let before = seen().await;
            yield_now().await;
            (before, seen().await)
        });
        assert_eq!(child, (Some(inner), Some(inner), Some(inner)));
        assert_eq!(sibling, (Some(outer), Some(outer)));
        assert_eq!(seen().await, Some(outer));
    };
    work.in_session(outer).await;
}

/// R005: two requests at once never meet, whatever thread they run on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_scopes_at_once_never_meet() {
    let tasks = (0..200).map(|_| {
        let id = session();
        scope::spawn(
            async move {
                for _ in 0..20 {
                    assert_eq!(seen().await, Some(id));
                    let child = scope::spawn(seen()).await.unwrap();
                    assert_eq!(child, Some(id));
                }
            }
            .in_session(id),
        )
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    assert_eq!(seen().await, None);
}

/// A task of its own carries the scope by `spawn`, and by nothing else.
#[tokio::test]
#[allow(clippy::disallowed_methods)]
async fn spawn_carries_the_scope() {
    let id = session();
    let work = async {
        assert_eq!(scope::spawn(seen()).await.unwrap(), Some(id));
        assert_eq!(tokio::spawn(seen()).await.unwrap(), None);
        scope::spawn(async move { scope::spawn(seen()).await.unwrap() }).await.unwrap()
    };
    assert_eq!(work.in_session(id).await, Some(id));
    assert_eq!(scope::spawn(seen()).await.unwrap(), None, "outside there is nothing to carry");
}

/// R095: a session that is named wins over the current one.
#[tokio::test]
async fn explicit_beats_ambient() {
    let (ambient, explicit) = (session(), session());
    assert_eq!(scope::resolve(None), None);
    assert_eq!(scope::resolve(Some(explicit)), Some(explicit));
    let work = async { (scope::resolve(Some(explicit)), scope::resolve(None)) };
    assert_eq!(work.in_session(ambient).await, (Some(explicit), Some(ambient)));
}

/// E03: the scope is gone also when what ran in it failed or was dropped half-way.
#[tokio::test]
async fn a_scope_ends_however_its_future_ends() {
    let id = session();
    let panics = scope::spawn(async { panic!("on purpose") }.in_session(id)).await;
    assert!(panics.is_err());
    assert_eq!(seen().await, None);
    let mut half = Box::pin(
        async {
            yield_now().await;
            seen().await
        }
        .in_session(id),
    );
    assert!(futures_util::poll!(&mut half).is_pending());
    drop(half);
    assert_eq!(seen().await, None);
}

/// R035: more than an id can follow the task, and nobody who asks for the id notices.
#[tokio::test]
async fn a_scope_can_carry_more() {
    let id = session();
    let scope = Scope::new(id).carrying(Arc::new("policy".to_owned()));
    let work = async {
        let scope = scope::current().unwrap();
        assert_eq!(scope.carried::<String>().as_deref().map(String::as_str), Some("policy"));
        assert!(scope.carried::<u32>().is_none());
        seen().await
    };
    assert_eq!(work.in_session(scope).await, Some(id));
}
