//! The benchmark with an allocator that counts. Apart from that it is `onceward-bench`: counting would disturb the CPU times.

use std::alloc::System;
use std::process::ExitCode;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    onceward_bench::run()
}
