//! Named items, whose names may repeat: pairs of a query or a form, parts of a multipart body.

use onceward_api::header;

use super::content_digest::ContentDigest;
use super::fields::{Chosen, Pointer};

/// An item that has a name.
pub(super) trait Named {
    fn name(&self) -> &[u8];
    /// Writes everything except the name.
    fn write(&self, to: &mut ContentDigest);
}

/// Writes the included items, sorted by name. Items of the same name keep their order, which may carry meaning: the first price belongs to
/// the first item. The item that carries a token is never included, or a retry with a new token would have another fingerprint.
pub(super) fn write<T: Named>(mut all: Vec<T>, chosen: &Chosen, to: &mut ContentDigest) {
    all.retain(|one| one.name() != header::FIELD.as_bytes());
    all.sort_by(|one, other| one.name().cmp(other.name()));
    match chosen {
        Chosen::All => write_those(&all, |_| true, to),
        Chosen::AllBut(pointers) => write_those(&all, |one| !pointers.iter().any(|pointer| is_at(one, pointer)), to),
        Chosen::Only(pointers) => {
            for pointer in pointers {
                pointer.write(to);
                write_those(&all, |one| is_at(one, pointer), to);
            }
        }
    }
}

fn write_those<T: Named>(all: &[T], counts: impl Fn(&T) -> bool, to: &mut ContentDigest) {
    let those = || all.iter().filter(|one| counts(one));
    to.count(those().count());
    for one in those() {
        to.bytes(one.name());
        one.write(to);
    }
}

/// Returns whether a pointer names this item. An item has no inner fields, so a longer pointer names none.
fn is_at(one: &impl Named, pointer: &Pointer) -> bool {
    match pointer.names() {
        [] => true,
        [name] => one.name() == name.as_bytes(),
        _ => false,
    }
}
