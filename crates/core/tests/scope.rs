//! Current session of a task (R001, R003–R008, R027, R035, R041, R107).

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

/// Returns the session that nested code sees without a parameter (R006).
async fn current_session() -> Option<SessionId> {
    yield_now().await;
    scope::current().and_then(|scope| scope.session())
}

/// R001, R008: the session is set inside the scope only.
#[tokio::test]
async fn scope_begins_and_ends_with_its_future() {
    let id = session();
    assert_eq!(current_session().await, None);
    assert_eq!(async { current_session().await }.in_session(id).await, Some(id));
    assert_eq!(current_session().await, None);
}

/// R003: the scope follows nested futures, `join!`, `select!` and unordered streams of futures.
#[tokio::test]
async fn scope_follows_the_task() {
    let id = session();
    let work = async {
        let (one, two) = tokio::join!(current_session(), async { current_session().await });
        assert_eq!((one, two), (Some(id), Some(id)));
        tokio::select! {
            it = current_session() => assert_eq!(it, Some(id)),
            it = async { yield_now().await; current_session().await } => assert_eq!(it, Some(id)),
        }
        let mut many: FuturesUnordered<_> = (0..5).map(|_| current_session()).collect();
        while let Some(it) = many.next().await {
            assert_eq!(it, Some(id));
        }
    };
    work.in_session(id).await;
}

/// R004: a nested scope affects neither its parent nor its siblings.
#[tokio::test]
async fn nested_scope_does_not_leak() {
    let (outer, inner) = (session(), session());
    let work = async {
        let child = async {
            (
                current_session().await,
                current_session().in_session(inner).await,
                current_session().await,
            )
        };
        let (child, sibling) = tokio::join!(child.in_session(inner), async {
            let before = current_session().await;
            yield_now().await;
            (before, current_session().await)
        });
        assert_eq!(child, (Some(inner), Some(inner), Some(inner)));
        assert_eq!(sibling, (Some(outer), Some(outer)));
        assert_eq!(current_session().await, Some(outer));
    };
    work.in_session(outer).await;
}

/// R005: concurrent requests never see each other, on any thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_scopes_are_separate() {
    let tasks = (0..200).map(|_| {
        let id = session();
        scope::spawn(
            async move {
                for _ in 0..20 {
                    assert_eq!(current_session().await, Some(id));
                    let child = scope::spawn(current_session()).await.unwrap();
                    assert_eq!(child, Some(id));
                }
            }
            .in_session(id),
        )
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    assert_eq!(current_session().await, None);
}

/// A new task inherits the scope through `scope::spawn` only.
#[tokio::test]
#[allow(clippy::disallowed_methods)]
async fn spawned_task_inherits_the_scope() {
    let id = session();
    let work = async {
        assert_eq!(scope::spawn(current_session()).await.unwrap(), Some(id));
        assert_eq!(tokio::spawn(current_session()).await.unwrap(), None);
        scope::spawn(async move { scope::spawn(current_session()).await.unwrap() }).await.unwrap()
    };
    assert_eq!(work.in_session(id).await, Some(id));
    assert_eq!(scope::spawn(current_session()).await.unwrap(), None, "no scope outside");
}

/// E03: the scope also ends when its future panics or is dropped.
#[tokio::test]
async fn scope_ends_when_its_future_panics_or_is_dropped() {
    let id = session();
    let panics = scope::spawn(async { panic!("on purpose") }.in_session(id)).await;
    assert!(panics.is_err());
    assert_eq!(current_session().await, None);
    let mut half = Box::pin(
        async {
            yield_now().await;
            current_session().await
        }
        .in_session(id),
    );
    assert!(futures_util::poll!(&mut half).is_pending());
    drop(half);
    assert_eq!(current_session().await, None);
}

/// R035: an extension can follow the task without effect on readers of the id.
#[tokio::test]
async fn scope_carries_an_extension() {
    let id = session();
    let scope = Scope::new(id).with_extension(Arc::new("policy".to_owned()));
    let work = async {
        let scope = scope::current().unwrap();
        assert_eq!(scope.extension::<String>().as_deref().map(String::as_str), Some("policy"));
        assert!(scope.extension::<u32>().is_none());
        current_session().await
    };
    assert_eq!(work.in_session(scope).await, Some(id));
}
