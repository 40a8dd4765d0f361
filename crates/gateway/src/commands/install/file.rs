//! File of a client: read as a whole, and replaced as a whole.

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
};

/// End of the name of a backup.
const BACKUP: &str = ".before-stayput";

/// File of a client, with its text.
pub(super) struct ClientFile {
    /// Path without symbolic links: the file that a link leads to is replaced, not the link.
    pub(super) path: PathBuf,
    pub(super) text: String,
    metadata: fs::Metadata,
}

impl ClientFile {
    /// Reads a file.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => format!(
                "{} does not exist, so the client has no servers there; add one in the client first, or name its \
                 file with --file",
                path.display()
            ),
            _ => format!("{} cannot be read: {error}", path.display()),
        };
        let whole = path.canonicalize().map_err(failed)?;
        let metadata = fs::metadata(&whole).map_err(failed)?;
        let text = fs::read_to_string(&whole).map_err(failed)?;
        Ok(Self { path: whole, text, metadata })
    }

    /// Returns the path of the backup.
    pub(super) fn backup(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(BACKUP);
        path.into()
    }

    pub(super) fn read_backup(&self) -> Option<String> {
        fs::read_to_string(self.backup()).ok()
    }

    /// Replaces the file by `text`. The backup is written before, or removed afterwards if there is none.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub(super) fn write(&self, text: &str, backup: Option<&str>) -> Result<(), String> {
        // The client may have written since it was read.
        if fs::read_to_string(&self.path).ok().as_ref() != Some(&self.text) {
            let path = self.path.display();
            return Err(format!(
                "{path} was changed in the meantime; nothing was written, try again"
            ));
        }
        if let Some(backup) = backup {
            self.replace(&self.backup(), backup)?;
        }
        self.replace(&self.path, text)?;
        if backup.is_none() {
            // Without a backup there is nothing to remove.
            let _ = fs::remove_file(self.backup());
        }
        Ok(())
    }

    /// Writes a file beside `path` and renames it, so that no reader sees a part. Permissions and owner are those of
    /// the client's file.
    fn replace(&self, path: &Path, text: &str) -> Result<(), String> {
        let mut beside = path.to_owned().into_os_string();
        beside.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(beside);
        let write = || {
            let mut options = fs::OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&beside)?;
            // Fails for the file of another user only, whose owner cannot be kept then.
            let _ = fchown(&file, Some(self.metadata.uid()), Some(self.metadata.gid()));
            file.write_all(text.as_bytes())?;
            file.set_permissions(fs::Permissions::from_mode(self.metadata.mode() & 0o7777))?;
            file.sync_all()?;
            fs::rename(&beside, path)
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&beside);
            format!("{} cannot be written: {error}", path.display())
        })
    }
}
