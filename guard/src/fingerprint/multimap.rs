//! Things that have names, several of them perhaps the same: pairs of a query or a form, parts of a multipart body.

use onceward_api::header;

use super::content_digest::ContentDigest;
use super::fields::{Chosen, Pointer};

/// Something that has a name.
pub(super) trait Named {
    fn name(&self) -> &[u8];
    /// Writes all that it is, but for its name.
    fn write(&self, to: &mut ContentDigest);
}

/// Writes what counts of them, by name. Those of one name keep their order: it may say which item a price belongs to.
/// What carries a token never counts, or a second try with a new token would say something else.
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

/// There is nothing within a field, so a longer pointer points to nothing.
fn is_at(one: &impl Named, pointer: &Pointer) -> bool {
    match pointer.names() {
        [] => true,
        [name] => one.name() == name.as_bytes(),
        _ => false,
    }
}
