//! The benchmark. The CPU times come from this program; the library says what it measures.

use std::process::ExitCode;

fn main() -> ExitCode {
    onceward_bench::run()
}
