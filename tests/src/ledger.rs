//! Counts handler runs independently of Onceward: a file to which every run appends one line.

use std::fs::{File, OpenOptions, read_to_string};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempPath;

/// A file that several processes append to.
#[derive(Clone)]
pub struct Ledger {
    path: PathBuf,
    _own: Option<Arc<TempPath>>,
}

impl Ledger {
    /// Creates an empty ledger in a temporary file.
    pub fn new() -> Self {
        let path = tempfile::NamedTempFile::new().expect("a temporary file").into_temp_path();
        Self { path: path.to_path_buf(), _own: Some(Arc::new(path)) }
    }

    /// Opens a ledger that another process has created.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), _own: None }
    }

    /// The path of its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records that a handler ran for this order.
    pub fn record(&self, order: &str) {
        let file: File = OpenOptions::new().append(true).open(&self.path).expect("the ledger can be opened");
        // One write of one short line is appended atomically, also with concurrent writers.
        (&file).write_all(format!("{order}\n").as_bytes()).expect("the ledger can be written");
    }

    /// Returns the recorded order of each run, oldest first.
    pub fn runs(&self) -> Vec<String> {
        read_to_string(&self.path).expect("the ledger can be read").lines().map(str::to_owned).collect()
    }

    /// Returns the number of runs for this order.
    pub fn count(&self, order: &str) -> usize {
        self.runs().iter().filter(|run| *run == order).count()
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}
