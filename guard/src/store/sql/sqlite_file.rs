//! Detection of a SQLite file that is deleted, or replaced by a backup, while a process has it open. SQLite keeps using the file that
//! it has opened, and a process that starts later opens another one, which would accept again what the first has accepted.

use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use tokio::time::Instant;

use super::dialect::{Operation, StatementOutcome};
use super::error::StatementError;
use super::pool::SqlBackend;
use crate::store::async_trait;

/// A SQLite file, with its identity when it was opened.
pub(super) struct SqliteFile {
    path: PathBuf,
    identity: Option<FileIdentity>,
}

/// The identity of a file, regardless of its path: device and inode.
type FileIdentity = (u64, u64);

impl SqliteFile {
    /// Records the identity of the file at this path, which is about to be opened.
    pub(super) fn at(path: &Path) -> Self {
        let path = absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { identity: identity(&path), path }
    }

    fn is_there(&self) -> bool {
        identity(&self.path) == self.identity
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<FileIdentity> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// On other systems an open file cannot be deleted or replaced.
#[cfg(not(unix))]
fn identity(_: &Path) -> Option<FileIdentity> {
    None
}

/// A database in a file that must not be moved or replaced.
pub(super) struct SqliteFileBackend {
    backend: Arc<dyn SqlBackend>,
    file: SqliteFile,
}

impl SqliteFileBackend {
    pub(super) fn new(backend: Arc<dyn SqlBackend>, file: SqliteFile) -> Arc<Self> {
        Arc::new(Self { backend, file })
    }
}

#[async_trait]
impl SqlBackend for SqliteFileBackend {
    /// Checks the file before the statement, so that nothing is changed in a file that other processes cannot find, and again after it,
    /// so that a change to such a file is not reported as done.
    async fn ask(self: Arc<Self>, operation: Operation, deadline: Instant) -> Result<StatementOutcome, StatementError> {
        if !self.file.is_there() {
            return Err(StatementError::OtherFile { is_certain: true });
        }
        let answer = Arc::clone(&self.backend).ask(operation, deadline).await?;
        if self.file.is_there() { Ok(answer) } else { Err(StatementError::OtherFile { is_certain: false }) }
    }

    fn epoch(&self) -> [u8; 8] {
        self.backend.epoch()
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn deleted_or_replaced_file_is_detected() {
        let folder = std::env::temp_dir().join(format!("onceward-{}", uuid::Uuid::new_v4()));
        fs::create_dir(&folder).unwrap();
        let [path, other, link] = ["store.db", "other.db", "link.db"].map(|name| folder.join(name));
        fs::write(&path, "a").unwrap();
        fs::write(&other, "a").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let (opened, linked) = (SqliteFile::at(&path), SqliteFile::at(&link));
        fs::write(&path, "changed").unwrap();
        assert!(opened.is_there() && linked.is_there());
        fs::rename(&path, folder.join("away.db")).unwrap();
        assert!(!opened.is_there() && !linked.is_there());
        fs::rename(&other, &path).unwrap();
        assert!(!opened.is_there() && !linked.is_there());
        fs::rename(folder.join("away.db"), &path).unwrap();
        assert!(opened.is_there() && linked.is_there());
        fs::remove_dir_all(&folder).unwrap();
    }
}
