//! Attachments of child processes, and their use in another process.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use stayput_core::Generation;
use stayput_upstream::{
    Attachment, AttachmentError, AttachmentSink, AttachmentStoreError, ClientInfo, LinkOpenError,
    LinkOpenOptions, LinkOwner, Links, LossReason, PooledLink, SealKey, Server,
};

use crate::support::{
    LONG, alive, call, close, links, none_alive, place, quick, server_with, stdio, token,
};

/// Attachment store with sealed contents, like a database.
#[derive(Debug)]
struct Shelf {
    key: SealKey,
    kept: Mutex<Option<stayput_core::Attachment>>,
    fails: bool,
}

#[async_trait]
impl AttachmentSink for Shelf {
    async fn load(&self) -> Result<Option<Attachment>, AttachmentStoreError> {
        let kept = self.kept.lock().unwrap().clone();
        Ok(kept.map(|kept| Attachment::open(&kept, &self.key).unwrap()))
    }

    async fn save(&self, attachment: &Attachment) -> Result<(), AttachmentStoreError> {
        if self.fails {
            return Err(AttachmentStoreError::new("the disk is full"));
        }
        *self.kept.lock().unwrap() = Some(attachment.seal(&self.key).unwrap());
        Ok(())
    }
}

fn shelf(fails: bool) -> Arc<Shelf> {
    Arc::new(Shelf { key: SealKey::generate().unwrap(), kept: Mutex::default(), fails })
}

async fn open_kept(
    links: &Links,
    server: &Server,
    place: &LinkOwner,
    sink: &Arc<Shelf>,
) -> Result<PooledLink, Arc<LinkOpenError>> {
    let sink: Arc<dyn AttachmentSink> = sink.clone();
    let asking = LinkOpenOptions {
        client_info: ClientInfo::named("t", "1"),
        sink: Some(sink),
        ..LinkOpenOptions::default()
    };
    tokio::time::timeout(LONG, links.open(server, place, &asking)).await.unwrap()
}

/// Invariant 3, R118: a child does not outlive its holder, so the next holder reports the loss.
#[tokio::test]
async fn next_holder_begins_a_new_generation_and_reports_the_loss() {
    let (shelf, ann) = (shelf(false), place());
    let server = server_with(stdio(&[]), quick());
    let mut generation = Generation::default();
    for round in 0..3 {
        let links = links();
        let link = open_kept(&links, &server, &ann, &shelf).await.unwrap();
        assert_eq!(call(&link, "count", "{}").await, "1");
        let loss = link.loss().map(|loss| loss.reason());
        assert_eq!(loss, (round > 0).then_some(LossReason::Released));
        if round > 0 {
            generation = generation.next();
        }
        assert_eq!(link.generation(), generation);
        // In the same process the link is the same again.
        let again = open_kept(&links, &server, &ann, &shelf).await.unwrap();
        assert_eq!(call(&again, "count", "{}").await, "2");
        assert_eq!(again.generation(), generation);
        drop((link, again));
        close(&links).await;
    }
}

/// E23, E27: other credentials make it another server.
#[tokio::test]
async fn attachment_of_another_configuration_is_reconfigured() {
    let (shelf, ann) = (shelf(false), place());
    for (key, expected) in [("one", None), ("two", Some(LossReason::Reconfigured))] {
        let links = links();
        let server = server_with(stdio(&[]).env("KEY", key), quick());
        let link = open_kept(&links, &server, &ann, &shelf).await.unwrap();
        assert_eq!(link.loss().map(|loss| loss.reason()), expected);
        assert_eq!(link.generation().0, u64::from(expected.is_some()));
        drop(link);
        close(&links).await;
    }
}

#[tokio::test]
async fn attachment_is_readable_only_with_its_key() {
    let (shelf, ann, links) = (shelf(false), place(), links());
    let server = server_with(stdio(&[]).env("KEY", "s3cret"), quick());
    drop(open_kept(&links, &server, &ann, &shelf).await.unwrap());
    let kept = shelf.kept.lock().unwrap().clone().unwrap();
    assert!(!kept.body.contains("s3cret"));
    let read = Attachment::open(&kept, &shelf.key).unwrap();
    assert!(read.is_process && !read.can_resume() && !read.is_stateless());
    assert_eq!(read.initialize_result, "", "nobody goes on with a process");
    let again = read.seal(&shelf.key).unwrap();
    assert_eq!(Attachment::open(&again, &shelf.key).unwrap(), read);
    let mut with_session = read.clone();
    with_session.session = Some("an id".to_owned());
    let sealed = with_session.seal(&shelf.key).unwrap();
    assert!(!sealed.body.contains("an id"));
    assert_eq!(Attachment::open(&sealed, &shelf.key).unwrap(), with_session);
    let other = SealKey::generate().unwrap();
    assert!(matches!(Attachment::open(&sealed, &other), Err(AttachmentError::Seal(_))));
    for body in ["", "{}", "{\"v\":1}", "[]"] {
        let broken = stayput_core::Attachment { body: body.to_owned(), ..sealed.clone() };
        let error = Attachment::open(&broken, &shelf.key).unwrap_err();
        assert!(matches!(error, AttachmentError::Unreadable), "{body}: {error}");
    }
    close(&links).await;
}

/// Invariant 12: a link whose attachment cannot be saved is not used, and is ended.
#[tokio::test]
async fn link_that_cannot_be_saved_is_not_used() {
    let (shelf, ann, links, token) = (shelf(true), place(), links(), token());
    let server = server_with(stdio(&[]).env("TOKEN", token.as_str()), quick());
    let error = open_kept(&links, &server, &ann, &shelf).await.unwrap_err();
    assert!(matches!(&*error, LinkOpenError::Keep(_)), "{error}");
    assert!(error.to_string().contains("the disk is full"), "{error}");
    none_alive(&token).await;
    close(&links).await;
    assert!(alive(&token).is_empty());
}

/// The first link of a revived session begins with the requested generation.
#[tokio::test]
async fn first_link_begins_with_the_requested_generation() {
    let (ann, links) = (place(), links());
    let generation = Generation::default().next().next();
    let asking = LinkOpenOptions { generation, ..LinkOpenOptions::default() };
    let server = server_with(stdio(&[]), quick());
    let link = links.open(&server, &ann, &asking).await.unwrap();
    assert_eq!((link.generation(), link.loss().is_none()), (generation, true));
    links.restart(&server, &ann, LossReason::Restarted).await;
    let next = links.open(&server, &ann, &asking).await.unwrap();
    assert_eq!(next.generation(), generation.next());
    drop((link, next));
    close(&links).await;
}
