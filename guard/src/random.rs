//! Randomness from the operating system.

/// Bytes that nobody can guess.
///
/// # Panics
/// If the operating system has none to give: nothing that is promised here would hold then.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}
