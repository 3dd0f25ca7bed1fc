//! A wall clock that a test can move for a process that it starts. The monotonic clocks of the process stay as they are.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// The library that moves the clock, and the file with the offset, in one folder.
const NAMES: (&str, &str) = ("ahead.so", "ahead");

/// A wall clock that a test can move.
pub struct WallClock {
    folder: TempDir,
}

impl WallClock {
    /// A clock that is right until it [jumps](Self::jump).
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // A server that runs as another user reads it too.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("its own folder");
        compile(folder.path());
        Self { folder }
    }

    /// Makes the process of this command use this clock.
    pub fn set(&self, command: &mut Command) {
        set(self.folder.path(), command);
    }

    /// Sets the clock this many seconds ahead of the real time, or behind it if the number is negative.
    pub fn jump(&self, seconds: i64) {
        let whole = self.folder.path().join("next");
        fs::write(&whole, seconds.to_string()).expect("the folder can be written");
        fs::rename(whole, self.folder.path().join(NAMES.1)).expect("the folder can be written");
    }
}

impl Default for WallClock {
    fn default() -> Self {
        Self::new()
    }
}

/// Compiles the library in a folder.
pub(crate) fn compile(folder: &Path) {
    let source = folder.join("wall_clock.c");
    fs::write(&source, include_str!("wall_clock.c")).expect("the folder can be written");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-o"]).arg(folder.join(NAMES.0)).arg(source);
    assert!(compile.status().expect("cc is missing; install it with: apt-get install gcc").success());
}

/// Makes a command use the library in this folder, if there is one.
pub(crate) fn set(folder: &Path, command: &mut Command) {
    let library = folder.join(NAMES.0);
    if library.exists() {
        command.env("LD_PRELOAD", library).env("AHEAD", folder.join(NAMES.1));
    }
}

/// Moves the clock of the processes of this folder two days ahead.
pub(crate) fn leap(folder: &Path) {
    fs::write(folder.join(NAMES.1), "").expect("the folder can be written");
}
