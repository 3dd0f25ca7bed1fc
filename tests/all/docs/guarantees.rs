//! `docs/guarantees.md` speaks of every event, and names a test for each. That those exist is looked at with the other pages.

const PAGE: &str = include_str!("../../../docs/guarantees.md");

/// What no test of ours can show.
const NOT_SHOWN: [&str; 1] = ["A standby takes over"];

/// The events that somebody who chooses a store asks about.
#[test]
fn every_event_that_may_befall_a_store_has_a_line() {
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
        assert!(page.contains(event), "{event}");
    }
}

#[test]
fn every_line_names_the_test_that_shows_it_or_is_known_to_have_none() {
    let lines: Vec<_> = PAGE.lines().filter_map(|line| line.strip_prefix("| **")).collect();
    assert!(lines.len() > 20, "{} lines", lines.len());
    for line in lines {
        let (event, rest) = line.split_once("**").unwrap();
        let shown_by = rest.trim_end_matches(" |").rsplit_once(" | ").unwrap().1;
        let names_a_test = shown_by.contains("](../tests/all/") || shown_by.contains("](../guard/src/");
        assert_eq!(names_a_test, !NOT_SHOWN.contains(&event), "{event}: {shown_by}");
    }
}
