//! A SQLite file that is deleted, or replaced by a backup, while a process has it open. SQLite goes on in the file that it has opened, and
//! a process that starts later opens another one: what the one has accepted, the other would accept again.

use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use tokio::time::Instant;

use super::base::Asked;
use super::dialect::{Answer, Question};
use super::failure::Failure;
use crate::store::async_trait;

/// A file, as its path led to it when it was opened.
pub(super) struct OpenedFile {
    path: PathBuf,
    identity: Option<Identity>,
}

/// What tells a file from another one of the same path: its device and its number there.
type Identity = (u64, u64);

impl OpenedFile {
    /// The file at this path, which is about to be opened.
    pub(super) fn at(path: &Path) -> Self {
        let path = absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { identity: identity(&path), path }
    }

    fn is_there(&self) -> bool {
        identity(&self.path) == self.identity
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// An open file cannot be deleted or replaced there.
#[cfg(not(unix))]
fn identity(_: &Path) -> Option<Identity> {
    None
}

/// A database in a file that has to stay where it is.
pub(super) struct InFile {
    base: Arc<dyn Asked>,
    file: OpenedFile,
}

impl InFile {
    pub(super) fn new(base: Arc<dyn Asked>, file: OpenedFile) -> Arc<Self> {
        Arc::new(Self { base, file })
    }
}

#[async_trait]
impl Asked for InFile {
    /// Asked before, nothing is changed in a file that nobody else finds. Asked again afterwards, nothing is believed that was changed in it.
    async fn ask(self: Arc<Self>, question: Question, deadline: Instant) -> Result<Answer, Failure> {
        if !self.file.is_there() {
            return Err(Failure::OtherFile { is_certain: true });
        }
        let answer = Arc::clone(&self.base).ask(question, deadline).await?;
        if self.file.is_there() { Ok(answer) } else { Err(Failure::OtherFile { is_certain: false }) }
    }

    fn epoch(&self) -> [u8; 8] {
        self.base.epoch()
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn file_that_was_deleted_or_replaced_is_another_one() {
        let folder = std::env::temp_dir().join(format!("onceward-{}", uuid::Uuid::new_v4()));
        fs::create_dir(&folder).unwrap();
        let [path, other, link] = ["store.db", "other.db", "link.db"].map(|name| folder.join(name));
        fs::write(&path, "a").unwrap();
        fs::write(&other, "a").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let (opened, linked) = (OpenedFile::at(&path), OpenedFile::at(&link));
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
