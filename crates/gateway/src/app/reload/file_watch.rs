//! Files that are looked at from time to time.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use stayput_core::{Digest, content_digest};

/// How often they are looked at. A file counts as changed once it was the same twice: who is still writing
/// is waited for.
const EVERY: Duration = Duration::from_secs(1);

/// What tells, without reading it, that a file is another: one that was put in its place, too.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &Path) -> Option<Self> {
        // What a link leads to: some put files in place by turning one.
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

/// What was found when a file was looked at.
#[derive(Clone, Debug)]
pub(super) struct Look {
    file: PathBuf,
    /// None if it cannot be read.
    stamp: Option<Stamp>,
    /// As a hash: it holds secrets.
    content: Digest,
}

/// Looks at files.
pub(super) fn look(files: &[PathBuf]) -> Vec<Look> {
    // First the stamp: what is written in between is seen as a change.
    let look = |file: &PathBuf| {
        let stamp = Stamp::of(file);
        let content = content_digest(&fs::read(file).unwrap_or_default());
        Look { file: file.clone(), stamp, content }
    };
    files.iter().map(look).collect()
}

/// The files of a configuration, as they were when it was read last.
pub(super) struct Watch {
    files: Vec<PathBuf>,
    known: Vec<Look>,
}

impl Watch {
    /// These files were read. Those that were known were looked at before, so that what was written meanwhile
    /// is seen as a change.
    pub(super) fn new(before: Vec<Look>, files: &[PathBuf]) -> Self {
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

    /// Waits until a file is another, and has been so for a while.
    pub(super) async fn changed(&mut self) {
        let mut last = self.stamps();
        loop {
            tokio::time::sleep(EVERY).await;
            let now = self.stamps_now().await;
            let settled = now == last && now != self.stamps();
            last = now;
            if !settled {
                continue;
            }
            if !self.is_as_before().await {
                return;
            }
            // Touched, and not changed.
            for (known, stamp) in self.known.iter_mut().zip(&last) {
                known.stamp.clone_from(stamp);
            }
        }
    }

    /// Whether what is in the files is what was in them when they were read last.
    pub(super) async fn is_as_before(&self) -> bool {
        let files = self.files.clone();
        let now = tokio::task::spawn_blocking(move || look(&files)).await.unwrap_or_default();
        now.iter().map(|it| &it.content).eq(self.known.iter().map(|it| &it.content))
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        self.known.iter().map(|it| it.stamp.clone()).collect()
    }

    /// A look that may take long without holding up anybody.
    async fn stamps_now(&self) -> Vec<Option<Stamp>> {
        let files = self.files.clone();
        let look = move || files.iter().map(|file| Stamp::of(file)).collect();
        tokio::task::spawn_blocking(look).await.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    async fn settles(watch: &mut Watch) -> bool {
        tokio::time::timeout(EVERY * 30, watch.changed()).await.is_ok()
    }

    /// A file that is written again, put in place by a new name, or only touched.
    #[tokio::test]
    async fn a_file_counts_as_changed_if_something_else_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&file, "one").unwrap();
        let read = |files: &[PathBuf]| Watch::new(look(files), files);
        let mut watch = read(slice::from_ref(&file));
        assert!(watch.is_as_before().await);
        fs::write(&file, "two").unwrap();
        assert!(settles(&mut watch).await);
        let mut watch = read(slice::from_ref(&file));
        fs::write(&other, "six").unwrap();
        fs::rename(&other, &file).unwrap();
        assert!(settles(&mut watch).await, "put in its place");
        let mut watch = read(&[file.clone(), other.clone()]);
        fs::write(&file, "six").unwrap();
        let quiet = tokio::time::timeout(EVERY * 4, watch.changed()).await;
        assert!(quiet.is_err(), "touched");
        fs::write(&other, "there").unwrap();
        assert!(settles(&mut watch).await, "what was not there is there");
        let begun = look(slice::from_ref(&file));
        fs::write(&file, "seven").unwrap();
        let mut watch = Watch::new(begun, &[file]);
        assert!(settles(&mut watch).await, "written while it was read");
    }
}
