//! Watches files by polling.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use stayput_core::{Digest, content_digest};

/// Poll interval. A file counts as changed when two polls in a row see the same new stamp, so that a writer can finish.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// File metadata that shows a change without reading the file. It also differs if another file was renamed over it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    fn read(file: &Path) -> Option<Self> {
        // Follows symbolic links: some deployments replace a file by moving a link.
        let of = fs::metadata(file).ok()?;
        Some(Self {
            device: of.dev(),
            inode: of.ino(),
            size: of.size(),
            written: (of.mtime(), of.mtime_nsec()),
            changed: (of.ctime(), of.ctime_nsec()),
        })
    }
}

/// Stamp and content of a file at one time.
#[derive(Clone, Debug)]
pub(super) struct FileSnapshot {
    file: PathBuf,
    /// `None` if the file cannot be read.
    stamp: Option<FileStamp>,
    /// Hash, because the file holds secrets.
    content: Digest,
}

/// Reads the stamp and the content of files.
pub(super) fn look(files: &[PathBuf]) -> Vec<FileSnapshot> {
    // The stamp is read first, so that a write in between shows as a change.
    let look = |file: &PathBuf| {
        let stamp = FileStamp::read(file);
        let content = content_digest(&fs::read(file).unwrap_or_default());
        FileSnapshot { file: file.clone(), stamp, content }
    };
    files.iter().map(look).collect()
}

/// Files of a configuration, as they were when it was last read.
pub(super) struct Watch {
    files: Vec<PathBuf>,
    known: Vec<FileSnapshot>,
}

impl Watch {
    /// Watches `files`, which were just read. `before` holds the looks that were taken before they were read, so that a
    /// write during the read shows as a change.
    pub(super) fn new(before: Vec<FileSnapshot>, files: &[PathBuf]) -> Self {
        let mut known = before;
        known.retain(|it| files.contains(&it.file));
        let new = files.iter().filter(|file| !known.iter().any(|it| it.file == **file));
        let new: Vec<PathBuf> = new.cloned().collect();
        known.extend(look(&new));
        let files = known.iter().map(|it| it.file.clone()).collect();
        Self { files, known }
    }

    pub(super) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Waits until the content of a file has changed and its stamp is stable.
    pub(super) async fn changed(&mut self) {
        let mut last = self.stamps();
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let now = self.stamps_now().await;
            let settled = now == last && now != self.stamps();
            last = now;
            if !settled {
                continue;
            }
            if !self.is_as_before().await {
                return;
            }
            // The stamp changed, the content did not.
            for (known, stamp) in self.known.iter_mut().zip(&last) {
                known.stamp.clone_from(stamp);
            }
        }
    }

    /// Whether the content of the files is the same as when they were last read.
    pub(super) async fn is_as_before(&self) -> bool {
        let files = self.files.clone();
        let now = tokio::task::spawn_blocking(move || look(&files)).await.unwrap_or_default();
        now.iter().map(|it| &it.content).eq(self.known.iter().map(|it| &it.content))
    }

    fn stamps(&self) -> Vec<Option<FileStamp>> {
        self.known.iter().map(|it| it.stamp.clone()).collect()
    }

    /// Reads the stamps on a blocking thread, because a file system can be slow.
    async fn stamps_now(&self) -> Vec<Option<FileStamp>> {
        let files = self.files.clone();
        let look = move || files.iter().map(|file| FileStamp::read(file)).collect();
        tokio::task::spawn_blocking(look).await.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    async fn is_stable(watch: &mut Watch) -> bool {
        tokio::time::timeout(POLL_INTERVAL * 30, watch.changed()).await.is_ok()
    }

    /// Covers a file that is rewritten, renamed over, or only touched.
    #[tokio::test]
    async fn file_counts_as_changed_when_its_content_differs() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&file, "one").unwrap();
        let read = |files: &[PathBuf]| Watch::new(look(files), files);
        let mut watch = read(slice::from_ref(&file));
        assert!(watch.is_as_before().await);
        fs::write(&file, "two").unwrap();
        assert!(is_stable(&mut watch).await);
        let mut watch = read(slice::from_ref(&file));
        fs::write(&other, "six").unwrap();
        fs::rename(&other, &file).unwrap();
        assert!(is_stable(&mut watch).await, "put in its place");
        let mut watch = read(&[file.clone(), other.clone()]);
        fs::write(&file, "six").unwrap();
        let quiet = tokio::time::timeout(POLL_INTERVAL * 4, watch.changed()).await;
        assert!(quiet.is_err(), "touched");
        fs::write(&other, "there").unwrap();
        assert!(is_stable(&mut watch).await, "what was not there is there");
        let begun = look(slice::from_ref(&file));
        fs::write(&file, "seven").unwrap();
        let mut watch = Watch::new(begun, &[file]);
        assert!(is_stable(&mut watch).await, "written while it was read");
    }
}
