use proptest::prelude::*;

use super::*;

const TYPE: &str = "multipart/form-data; boundary=xy";

/// Builds a form from these heads and values.
fn form(boundary: &str, parts: &[(&str, &str)]) -> String {
    let parts: String =
        parts.iter().map(|(head, value)| format!("--{boundary}\r\n{head}\r\n\r\n{value}\r\n")).collect();
    format!("{parts}--{boundary}--\r\n")
}

fn head(name: &str) -> String {
    format!("Content-Disposition: form-data; name=\"{name}\"")
}

/// Builds a form of text fields.
fn fields(pairs: &[(&str, &str)]) -> String {
    let heads: Vec<_> = pairs.iter().map(|(name, value)| (head(name), *value)).collect();
    form("xy", &heads.iter().map(|(head, value)| (head.as_str(), *value)).collect::<Vec<_>>())
}

#[test]
fn form_is_compared_by_named_parts() {
    let base = fields(&[("a", "1"), ("b", "2")]);
    for (other, same) in [
        (fields(&[("b", "2"), ("a", "1")]), true),
        (fields(&[("a", "1"), ("_onceward", "t"), ("b", "2")]), true),
        (fields(&[("_onceward", "t"), ("a", "1"), ("b", "2"), ("_onceward", "u")]), true),
        (fields(&[("a", "1"), ("b", "3")]), false),
        (fields(&[("a", "1"), ("c", "2")]), false),
        (fields(&[("a", "1")]), false),
        (fields(&[("a", "1"), ("b", "2"), ("b", "2")]), false),
        (fields(&[("a", "1"), ("b", "2\r\n")]), false),
        (form("xy", &[("content-disposition:form-data;NAME=a", "1"), (&head("b"), "2")]), true),
        (form("xy", &[(&format!("X-Y: z\r\n{}", head("a")), "1"), (&head("b"), "2")]), true),
        (form("xy", &[(&format!("Content-Type: text/plain\r\n{}", head("a")), "1"), (&head("b"), "2")]), false),
        (form("xy", &[(&format!("{}; filename=f", head("a")), "1"), (&head("b"), "2")]), false),
    ] {
        compare(TYPE, &Fields::all(), &base, &other, same);
    }
    let twice = fields(&[("a", "1"), ("a", "2")]);
    compare(TYPE, &Fields::all(), &twice, &fields(&[("a", "2"), ("a", "1")]), false);
}

#[test]
fn files_can_be_excluded() {
    let file = |name: &str, value| (format!("{}; {name}\r\nContent-Type: image/png", head("f")), value);
    let with = |name, value| {
        let (file, value) = file(name, value);
        form("xy", &[(&head("a"), "1"), (&file, value)])
    };
    let (one, other, without) = (with("filename=x", "1"), with("filename=\"x\"", "2"), fields(&[("a", "1")]));
    compare(TYPE, &Fields::all(), &one, &other, false);
    compare(TYPE, &Fields::all(), &one, &with("filename=y", "1"), false);
    compare(TYPE, &Fields::all().without_files(), &one, &other, true);
    compare(TYPE, &Fields::all().without_files(), &one, &without, true);
    compare(TYPE, &Fields::all().without_files(), &one, &with("filename*=UTF-8''x", "3"), true);
    compare(TYPE, &Fields::all().without_files(), &one, &fields(&[("a", "2")]), false);
    compare(TYPE, &only(&["/f"]).without_files(), &one, &other, true);
}

#[test]
fn multipart_parts_are_selected_by_name() {
    let base = fields(&[("a", "1"), ("b", "2")]);
    for (chosen, other, same) in [
        (only(&["/a"]), fields(&[("b", "3"), ("a", "1")]), true),
        (only(&["/a"]), fields(&[("a", "2"), ("b", "2")]), false),
        (only(&["/a"]), fields(&[("b", "2")]), false),
        (only(&["/c"]), fields(&[]), true),
        (all_but(&["/b"]), fields(&[("a", "1")]), true),
        (all_but(&["/b"]), fields(&[("a", "2")]), false),
    ] {
        compare(TYPE, &chosen, &base, &other, same);
    }
}

#[test]
fn invalid_multipart_is_digested_byte_by_byte() {
    let good = fields(&[("a", "1")]);
    let nameless = form("xy", &[("Content-Type: text/plain", "1")]);
    let folded = form("xy", &[("Content-Disposition: form-data; name=a\r\n x=\"1:2\"", "1")]);
    let twice = form("xy", &[(&format!("{}\r\n{}", head("a"), head("a")), "1")]);
    for bad in [
        "",
        "--xy",
        "--xy-",
        "--xy\r\n--xy--",
        "--xz--",
        "-----------",
        &good[..good.len() - 8],
        &format!("preamble\r\n{good}"),
        &format!("{good}epilogue"),
        &good.replace("\r\n", "\n"),
        &good.replace("--xy\r", "--xy z\r"),
        &nameless,
        &folded,
        &twice,
    ] {
        // A body that cannot be parsed has no fields to exclude.
        compare(TYPE, &all_but(&[""]), bad, &format!("{bad} "), false);
        compare("multipart/form-data", &all_but(&[""]), bad, &format!("{bad} "), false);
    }
    compare(TYPE, &all_but(&[""]), &good, &fields(&[]), true);
    compare("multipart/form-data", &all_but(&[""]), &good, &fields(&[]), false);
    compare(TYPE, &Fields::all(), &good, &good.replace("--xy\r", "--xy \t\r"), true);
}

proptest! {
    #[test]
    fn boundary_does_not_change_the_fingerprint(
        parts in proptest::collection::vec(("[a-c]{1,2}", "[ -~]{0,9}"), 0..5),
        one in "[a-z]{4}-{0,3}", other in "-{0,9}[A-Z]{4}",
    ) {
        let of = |boundary: &str| {
            let heads: Vec<_> = parts.iter().map(|(name, value)| (head(name), value)).collect();
            let parts: Vec<_> = heads.iter().map(|(head, value)| (head.as_str(), value.as_str())).collect();
            let content_type = format!("multipart/form-data; boundary=\"{boundary}\"");
            body(&content_type, form(boundary, &parts).as_bytes(), &Fields::all())
        };
        prop_assert_eq!(of(&one), of(&other));
    }

    #[test]
    fn almost_multipart_bodies_do_not_panic(pieces in proptest::collection::vec(
        proptest::sample::select(vec!["--xy", "\r\n", "--", "Content-Disposition: form-data; name=a", "t", " ", "\""]), 0..14)
    ) {
        body(TYPE, pieces.concat().as_bytes(), &Fields::all());
    }
}
