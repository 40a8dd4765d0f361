//! Counter that shows that a database is older than when it was last used.
//!
//! It grows with each change of a lease: when a process starts, every few seconds while it runs, and when it stops. The
//! same number is written to a file beside the database, after the database has it. So the database can only be behind
//! if it was replaced by an older copy.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// Value of the counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Count {
    /// Random name of the database. Numbers of different databases are not compared.
    pub(super) database: String,
    pub(super) number: u64,
}

/// Copy of the counter beside the database.
#[derive(Debug)]
pub(super) struct CounterFile(PathBuf);

impl CounterFile {
    pub(super) fn beside(database: &Path) -> Self {
        let mut name = database.as_os_str().to_owned();
        name.push("-counter");
        Self(name.into())
    }

    /// Returns the last number that was written. `None` if there is none, or it cannot be read.
    pub(super) fn read(&self) -> Option<Count> {
        let text = std::fs::read_to_string(&self.0).ok()?;
        let (database, number) = text.trim_end().split_once(' ')?;
        Some(Count { database: database.to_owned(), number: number.parse().ok()? })
    }

    /// Writes the number. It must be durable in the database. An error is ignored: then an older
    /// copy of the database may not be noticed.
    pub(super) fn write(&self, count: &Count) {
        let _ = self.try_write(count);
    }

    fn try_write(&self, count: &Count) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file =
            options.create(true).truncate(false).write(true).mode(0o600).open(&self.0)?;
        // The line has always the same length, so it is replaced in one step.
        file.write_all(format!("{} {:020}\n", count.database, count.number).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_file_returns_the_last_number() {
        let folder = tempfile::tempdir().unwrap();
        let file = CounterFile::beside(&folder.path().join("a.db"));
        assert_eq!(file.read(), None);
        for number in [9, 10, u64::MAX, 3] {
            let count = Count { database: "x".to_owned(), number };
            file.write(&count);
            assert_eq!(file.read(), Some(count));
        }
        std::fs::write(folder.path().join("a.db-counter"), "x y").unwrap();
        assert_eq!(file.read(), None);
    }
}
