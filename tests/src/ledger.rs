//! Counts how often a handler ran, with nothing of Onceward in it: a file to which every run appends one line.

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
    /// A new, empty one.
    pub fn new() -> Self {
        let path = tempfile::NamedTempFile::new().expect("a temporary file").into_temp_path();
        Self { path: path.to_path_buf(), _own: Some(Arc::new(path)) }
    }

    /// One that another process has made.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), _own: None }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A handler ran for this order.
    pub fn record(&self, order: &str) {
        let file: File = OpenOptions::new().append(true).open(&self.path).expect("the ledger can be opened");
        // One write of one short line: appended whole, whoever else is writing.
        (&file).write_all(format!("{order}\n").as_bytes()).expect("the ledger can be written");
    }

    /// The order of each run, in the order of the runs.
    pub fn runs(&self) -> Vec<String> {
        read_to_string(&self.path).expect("the ledger can be read").lines().map(str::to_owned).collect()
    }

    /// How often a handler ran for this order.
    pub fn count(&self, order: &str) -> usize {
        self.runs().iter().filter(|run| *run == order).count()
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}
