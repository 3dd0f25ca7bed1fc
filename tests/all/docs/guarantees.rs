//! Checks that `docs/guarantees.md` covers every event and names a test for each. `links.rs` checks that these tests exist.

const PAGE: &str = include_str!("../../../docs/guarantees.md");

/// Events without a test.
const NOT_SHOWN: [&str; 1] = ["A standby takes over"];

/// The events that matter for choosing a store.
#[test]
fn guarantees_page_covers_every_store_event() {
    let page = PAGE.to_lowercase();
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
        assert!(page.contains(event), "the page does not mention {event:?}");
    }
}

#[test]
fn every_guarantee_names_a_test_or_is_exempt() {
    let lines: Vec<_> = PAGE.lines().filter_map(|line| line.strip_prefix("| **")).collect();
    assert!(lines.len() > 20, "found only {} events", lines.len());
    for line in lines {
        let (event, rest) = line.split_once("**").unwrap();
        let shown_by = rest.trim_end_matches(" |").rsplit_once(" | ").unwrap().1;
        let names_a_test = shown_by.contains("](../tests/all/") || shown_by.contains("](../guard/src/");
        assert_eq!(names_a_test, !NOT_SHOWN.contains(&event), "{event}: {shown_by}");
    }
}
