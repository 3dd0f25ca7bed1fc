//! Randomness from the operating system.

use std::cell::Cell;

use uuid::{Builder, Uuid};

/// How many names a thread fetches at once: to ask the operating system for each would cost more than all that a name is
/// needed for.
const STOCK: usize = 64;

/// A name that nobody else has.
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

/// Bytes that nobody can guess.
///
/// # Panics
/// If the operating system has none to give: nothing that is promised here would hold then.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}
