//! `docs/guarantees.md` speaks of every event. That the tests which it names exist is looked at with the other pages.

/// The events that somebody who chooses a store asks about.
#[test]
fn every_event_that_may_befall_a_store_has_a_line() {
    let page = include_str!("../../docs/guarantees.md").to_lowercase();
    for event in [
        "crashes",
        "restarts",
        "takes over",
        "split brain",
        "evicts",
        "clock",
        "reply of the store is lost",
        "worker is killed",
    ] {
        assert!(page.contains(event), "{event}");
    }
}
