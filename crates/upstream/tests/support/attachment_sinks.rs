//! Attachment store that lives as long as the test, and can fail.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use async_trait::async_trait;
use stayput_upstream::{
    Attachment, AttachmentSink, AttachmentStoreError, ClientInfo, LinkOpenError, LinkOpenOptions,
    LinkOwner, Links, PooledLink, SealKey, Server,
};

use super::LONG;

/// Attachment store with sealed contents, like a database.
#[derive(Debug)]
pub(crate) struct Shelf {
    key: SealKey,
    kept: Mutex<Option<stayput_core::Attachment>>,
    pub(crate) saves: AtomicUsize,
    pub(crate) loads: AtomicUsize,
    pub(crate) cannot_save: AtomicBool,
    pub(crate) cannot_load: AtomicBool,
}

impl Shelf {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            key: SealKey::generate().unwrap(),
            kept: Mutex::default(),
            saves: AtomicUsize::new(0),
            loads: AtomicUsize::new(0),
            cannot_save: AtomicBool::new(false),
            cannot_load: AtomicBool::new(false),
        })
    }

    /// Returns the attachment in the form for a link.
    pub(crate) fn kept(&self) -> Option<Attachment> {
        let kept = self.kept.lock().unwrap().clone();
        kept.map(|kept| Attachment::open(&kept, &self.key).unwrap())
    }

    /// Returns the attachment in the form of the database.
    pub(crate) fn text(&self) -> String {
        self.kept.lock().unwrap().as_ref().unwrap().body.clone()
    }

    pub(crate) fn saved(&self) -> usize {
        self.saves.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl AttachmentSink for Shelf {
    async fn load(&self) -> Result<Option<Attachment>, AttachmentStoreError> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        if self.cannot_load.load(Ordering::SeqCst) {
            return Err(AttachmentStoreError::new("the database is away"));
        }
        Ok(self.kept())
    }

    async fn save(&self, attachment: &Attachment) -> Result<(), AttachmentStoreError> {
        if self.cannot_save.load(Ordering::SeqCst) {
            return Err(AttachmentStoreError::new("the disk is full"));
        }
        self.saves.fetch_add(1, Ordering::SeqCst);
        *self.kept.lock().unwrap() = Some(attachment.seal(&self.key).unwrap());
        Ok(())
    }
}

/// Opens a link whose attachment is saved in this store.
pub(crate) async fn open_kept(
    links: &Links,
    server: &Server,
    place: &LinkOwner,
    shelf: &Arc<Shelf>,
) -> Result<PooledLink, Arc<LinkOpenError>> {
    let sink: Arc<dyn AttachmentSink> = shelf.clone();
    let client_info = ClientInfo::named("test", "1");
    let asking = LinkOpenOptions { client_info, sink: Some(sink), ..LinkOpenOptions::default() };
    tokio::time::timeout(LONG, links.open(server, place, &asking)).await.unwrap()
}
