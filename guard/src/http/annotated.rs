//! The values in the code that `#[once]` generates. The attribute has checked them. Not part of the public API.

use std::time::Duration;

use super::key_source::KeySource;
use super::request::RequestHead;
use crate::policy::IntervalRules;

/// Reads the key from a field of the body.
///
/// # Panics
/// If `pointer` is not a JSON pointer.
pub fn body_key<R: RequestHead>(pointer: &str) -> KeySource<R> {
    KeySource::body(pointer).expect("`#[once]` has checked the pointer")
}

/// Creates the rules of an interval of this many milliseconds.
///
/// # Panics
/// If it is zero.
pub fn interval(millis: u64) -> IntervalRules {
    IntervalRules::new().every(Duration::from_millis(millis)).expect("`#[once]` has checked the interval")
}
