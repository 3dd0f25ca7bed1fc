//! Checks the file of an SQLite database that cannot be used.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf, absolute};

use onceward::store::{SqlError, StoreError};

use super::finding::Finding;

/// What gives a user a file.
const CHOWN: &str = "Give the file and its folder to the user that runs Onceward (chown), and leave the folder writable: SQLite makes other \
     files beside it.";

/// The file that an address names, behind `sqlite:`.
pub(super) fn named(address: &str) -> PathBuf {
    let path = address.split('?').next().unwrap_or_default();
    let path = Path::new(path.strip_prefix("//").unwrap_or(path));
    absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Why a file that is not there cannot be made; `None` if it can. Another one is made, under a name that nobody else has, and is taken away
/// again.
pub(super) fn unwritable(file: &Path) -> Option<Finding> {
    if file.exists() {
        return None;
    }
    let folder = file.parent()?;
    let tried = folder.join(format!(".onceward-check-{}", uuid::Uuid::new_v4()));
    let error = File::create_new(&tried).and_then(|_| fs::remove_file(&tried)).err()?;
    Some(Finding::problem("file", format!("The folder {} cannot be written: {error}.", folder.display()), CHOWN))
}

/// What is wrong with the file, if it is the file that is.
pub(super) fn problem(error: &SqlError, file: &Path) -> Option<Finding> {
    let fix = match error {
        SqlError::NoFolder { folder, .. } => {
            format!(
                "mkdir -p {0}, and give it to the user that runs Onceward; or name another file in --store.",
                folder.display()
            )
        }
        SqlError::NotAFile { .. } => {
            "Name a file of Onceward's own in --store, as in sqlite:/var/lib/onceward.db; `onceward migrate` makes it."
                .to_owned()
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

/// A file that can be read and takes no record.
pub(super) fn refused(error: &StoreError, file: &Path) -> Option<Finding> {
    let says = error.to_string();
    says.contains("readonly database").then(|| denied("attempt to write a readonly database", file))
}

fn denied(why: &str, file: &Path) -> Finding {
    let folder = file.parent().unwrap_or(file).display().to_string();
    // What the system says is more exact than what SQLite does.
    let why = File::options()
        .read(true)
        .append(true)
        .open(file)
        .err()
        .map_or(why.to_owned(), |error: io::Error| error.to_string());
    let says = format!(
        "{} cannot be opened by this user for writing, or the folder {folder} cannot be written: {why}.",
        file.display()
    );
    Finding::problem("file", says, CHOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_named_however_its_address_is_written() {
        for address in ["/var/lib/store.db", "///var/lib/store.db", "/var/lib/store.db?mode=rwc"] {
            assert_eq!(named(address), Path::new("/var/lib/store.db"), "{address}");
        }
        assert!(named("store.db").is_absolute());
    }
}
