//! Checks the file of an SQLite database that cannot be used.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf, absolute};

use onceward::store::{SqlError, StoreError};

use super::finding::Finding;

/// The fix for missing permissions on a file.
const CHOWN: &str = "Give the file and its folder to the user that runs Onceward (chown). The folder must be writable: SQLite creates \
     more files in it.";

/// Returns the file that an address names after `sqlite:`.
pub(super) fn named(address: &str) -> PathBuf {
    let path = address.split('?').next().unwrap_or_default();
    let path = Path::new(path.strip_prefix("//").unwrap_or(path));
    absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns why a missing file cannot be created; `None` if it can. Creates another file under a unique name to find out, and removes it.
pub(super) fn unwritable(file: &Path) -> Option<Finding> {
    if file.exists() {
        return None;
    }
    let folder = file.parent()?;
    let tried = folder.join(format!(".onceward-check-{}", uuid::Uuid::new_v4()));
    let error = File::create_new(&tried).and_then(|_| fs::remove_file(&tried)).err()?;
    Some(Finding::problem("file", format!("The folder {} is not writable: {error}.", folder.display()), CHOWN))
}

/// Returns the problem with the file, if the error is about the file.
pub(super) fn problem(error: &SqlError, file: &Path) -> Option<Finding> {
    let fix = match error {
        SqlError::NoFolder { folder, .. } => {
            format!(
                "mkdir -p {0}, and give it to the user that runs Onceward; or name another file in --store.",
                folder.display()
            )
        }
        SqlError::NotAFile { .. } => {
            "Name a file for Onceward alone in --store, as in sqlite:/var/lib/onceward.db.".to_owned()
        }
        SqlError::NoRights(why) => return Some(denied(why, file)),
        _ => return None,
    };
    let says = error.to_string();
    let mut letters = says.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    let says: String = first.into_iter().chain(letters).collect();
    Some(Finding::problem("file", format!("{}.", says.split("; ").next().unwrap_or(&says)), fix))
}

/// Returns the problem with a file that can be read but not written.
pub(super) fn refused(error: &StoreError, file: &Path) -> Option<Finding> {
    let says = error.to_string();
    says.contains("readonly database").then(|| denied("attempt to write a readonly database", file))
}

fn denied(why: &str, file: &Path) -> Finding {
    let folder = file.parent().unwrap_or(file).display().to_string();
    // The error of the operating system is more exact than that of SQLite.
    let why = File::options()
        .read(true)
        .append(true)
        .open(file)
        .err()
        .map_or(why.to_owned(), |error: io::Error| error.to_string());
    let says = format!(
        "{} cannot be opened by this user for writing, or the folder {folder} is not writable: {why}.",
        file.display()
    );
    Finding::problem("file", says, CHOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlite_file_is_named_for_every_address_form() {
        for address in ["/var/lib/store.db", "///var/lib/store.db", "/var/lib/store.db?mode=rwc"] {
            assert_eq!(named(address), Path::new("/var/lib/store.db"), "{address}");
        }
        assert!(named("store.db").is_absolute());
    }
}
