//! Epochs of a store.

/// One uninterrupted life of a store's data.
///
/// A token contains the epoch in which it was issued. A store that lost records since then, or may have lost some, is in another epoch: the
/// guard rejects the token as `token_stale`. Zero means that the store does not distinguish epochs.
pub type Epoch = [u8; 8];
