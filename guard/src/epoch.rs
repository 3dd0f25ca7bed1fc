//! One uninterrupted life of a store's data.

/// One uninterrupted life of a store's data. A token carries the epoch in which it was issued; a store that has lost or may have lost
/// records since then is in another epoch, and rejects the token as `token_stale`. Zero stands for a store that cannot tell.
pub type Epoch = [u8; 8];
