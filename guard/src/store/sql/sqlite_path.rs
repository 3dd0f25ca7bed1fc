//! Checks of the path of a SQLite database before it is opened: SQLite itself reports only that it cannot open the file.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, absolute};

use super::error::SqlError;

/// The first bytes of every SQLite database.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Returns whether the file exists; `false` means that it can be created.
///
/// # Errors
/// If the file cannot be created there, or is not a SQLite database.
pub(super) fn examine(path: &Path) -> Result<bool, SqlError> {
    let path = absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().unwrap_or(&path);
    match fs::metadata(folder) {
        Ok(found) if !found.is_dir() => {
            return Err(SqlError::NoFolder { folder: folder.to_owned(), why: "is not a folder" });
        }
        Err(error) if is_missing(&error) => {
            return Err(SqlError::NoFolder { folder: folder.to_owned(), why: "does not exist" });
        }
        // If the folder cannot be inspected, SQLite reports the error.
        _ => {}
    }
    let what = match fs::metadata(&path) {
        Ok(found) if found.is_dir() => "a folder",
        Ok(found) if !found.is_file() => "neither a file nor a folder",
        Ok(_) if is_something_else(&path) => "not a SQLite database",
        Ok(_) => return Ok(true),
        Err(error) if is_missing(&error) => return Ok(false),
        Err(_) => return Ok(true),
    };
    Err(SqlError::NotAFile { path, what })
}

fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// Returns whether the file starts unlike a SQLite database. An empty file is accepted.
fn is_something_else(path: &Path) -> bool {
    let mut head = Vec::with_capacity(MAGIC.len());
    let read = File::open(path).and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut head));
    read.is_ok() && !head.is_empty() && head != MAGIC
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlite_path_is_distinguished_from_other_addresses() {
        let folder = std::env::temp_dir().join(format!("onceward-{}", uuid::Uuid::new_v4()));
        fs::create_dir(&folder).unwrap();
        let [empty, text, short, database] = ["empty", "text", "short", "database"].map(|name| folder.join(name));
        fs::write(&empty, "").unwrap();
        fs::write(&text, "a letter, and not a database").unwrap();
        fs::write(&short, "SQLite").unwrap();
        fs::write(&database, [&MAGIC[..], &[0; 100]].concat()).unwrap();
        let is = |path: &Path| examine(path).map_err(|error| error.to_string());
        assert_eq!((is(&empty), is(&database), is(&folder.join("new"))), (Ok(true), Ok(true), Ok(false)));
        for (path, says) in [
            (text.clone(), "not a SQLite database"),
            (short, "not a SQLite database"),
            (folder.clone(), "is a folder"),
            ("/dev/null".into(), "neither a file nor a folder"),
            (folder.join("missing/new"), "does not exist"),
            (folder.join("missing/deeper/new"), "does not exist"),
            (text.join("new"), "is not a folder"),
        ] {
            let error = is(&path).unwrap_err();
            assert!(
                error.contains(says) && error.contains(&*folder.to_string_lossy()) || path.starts_with("/dev"),
                "{error}"
            );
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
