//! Randomness from the operating system.

use std::cell::Cell;

use uuid::{Builder, Uuid};

/// Number of ids that a thread generates per system call: a call for each id would cost more than all other work with the id.
const STOCK: usize = 64;

/// Returns a random, unique id.
pub(crate) fn id() -> Uuid {
    thread_local! {
        static NAMES: Cell<Vec<[u8; 16]>> = const { Cell::new(Vec::new()) };
    }
    let mut names = NAMES.take();
    if names.is_empty() {
        names = random::<{ STOCK * 16 }>().as_chunks().0.to_vec();
    }
    let name = names.pop().unwrap_or_else(random);
    NAMES.set(names);
    Builder::from_random_bytes(name).into_uuid()
}

/// Returns unpredictable random bytes.
///
/// # Panics
/// If the operating system provides no random bytes: without them, no guarantee of this crate would hold.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system provides random bytes");
    bytes
}
