//! Tests of which contents have the same fingerprint: tables of pairs, and properties.

mod json;
mod multipart;

use proptest::prelude::*;

use super::*;
use crate::clock::Clock;

const FORM: &str = "application/x-www-form-urlencoded";

const PLAIN: Content<'static> =
    Content { method: "POST", path: "/pay", query: "", content_type: Some("text/plain"), body: b"hello" };

fn of(content: Content<'_>) -> Fingerprint {
    content.fingerprint(&Fields::all())
}

fn body(content_type: &str, body: &[u8], fields: &Fields) -> Fingerprint {
    Content { content_type: Some(content_type), body, ..PLAIN }.fingerprint(fields)
}

/// Asserts that two bodies of one type have the same fingerprint, or different ones.
#[track_caller]
fn compare(content_type: &str, fields: &Fields, one: &str, other: &str, same: bool) {
    let of = |text: &str| body(content_type, text.as_bytes(), fields);
    assert_eq!(of(one) == of(other), same, "{one} and {other} as {content_type} with {fields:?}");
}

fn only(pointers: &[&str]) -> Fields {
    Fields::only(pointers).unwrap()
}

fn all_but(pointers: &[&str]) -> Fields {
    Fields::all_but(pointers).unwrap()
}

#[test]
fn every_part_of_a_request_changes_the_fingerprint() {
    let all = [
        PLAIN,
        Content { method: "PUT", ..PLAIN },
        Content { method: "post", ..PLAIN },
        Content { path: "/pay/", ..PLAIN },
        Content { path: "/Pay", ..PLAIN },
        Content { path: "/%2Fpay", ..PLAIN },
        Content { path: "//pay", ..PLAIN },
        Content { query: "a", ..PLAIN },
        Content { content_type: None, ..PLAIN },
        Content { content_type: Some(""), ..PLAIN },
        Content { content_type: Some("text/html"), ..PLAIN },
        Content { body: b"", ..PLAIN },
        Content { body: b"hello\n", ..PLAIN },
        Content { path: "/pa", query: "y", ..PLAIN },
        Content { method: "POST/", path: "pay", ..PLAIN },
    ];
    for (at, one) in all.iter().enumerate() {
        assert_eq!(of(*one), of(*one));
        for other in &all[at + 1..] {
            assert_ne!(of(*one), of(*other), "{one:?} {other:?}");
        }
    }
}

#[test]
fn path_spellings_have_the_same_fingerprint() {
    for path in ["/%70ay", "/p%61y", "/%70%61%79"] {
        assert_eq!(of(Content { path, ..PLAIN }), of(PLAIN), "{path}");
    }
    assert_eq!(of(Content { path: "/a%2fb", ..PLAIN }), of(Content { path: "/%61%2Fb", ..PLAIN }));
}

#[test]
fn query_and_form_are_compared_by_their_pairs() {
    for (one, other, same) in [
        ("a=1&b=2", "b=2&a=1", true),
        ("a=1&b=2", "&&a=1&b=2&", true),
        ("a=1", "%61=%31", true),
        ("a=x+y", "a=x%20y", true),
        ("a=x+y", "a=x%2By", false),
        ("a", "a=", true),
        ("a=1&a=2", "a=2&a=1", false),
        ("a=1&b=3&a=2", "a=1&a=2&b=3", true),
        ("a=1", "a=1&a=1", false),
        ("a=1&b=2", "a=1%26b%3D2", false),
        ("a=b=c", "a=b%3Dc", true),
        ("a=%FF", "a=%FE", false),
        ("a=%FF", "a=%EF%BF%BD", false),
        ("a=1", "A=1", false),
        ("a=1&_onceward=t", "a=1", true),
        ("%5Fonceward=t&a=1&_onceward", "_onceward=u&a=1", true),
        ("a=1&_onceward2=t", "a=1", false),
        ("a=_onceward", "a", false),
    ] {
        let query = |query| of(Content { query, ..PLAIN });
        assert_eq!(query(one) == query(other), same, "{one} and {other}");
        compare(FORM, &Fields::all(), one, other, same);
        compare("text/plain", &Fields::all(), one, other, false);
    }
}

#[test]
fn form_fields_are_chosen_by_name() {
    for (fields, one, other, same) in [
        (only(&["/a"]), "a=1&b=2", "b=3&a=1&c", true),
        (only(&["/a"]), "a=1", "a=2", false),
        (only(&["/a"]), "a=1&a=2", "a=1&a=3", false),
        (only(&["/a"]), "a=", "b=1", false),
        (only(&["/a"]), "b=1", "c=2", true),
        (only(&["/a/b"]), "a=1", "a=2", true),
        (only(&["/a~1b"]), "a/b=1", "a/b=2", false),
        (only(&[""]), "a=1", "a=2", false),
        (only(&[""]), "a=1&_onceward=t", "a=1", true),
        (only(&[]), "a=1", "b=2", true),
        (only(&["/a", "/b"]), "a=1", "b=1", false),
        (only(&["/_onceward"]), "_onceward=1", "_onceward=2", true),
        (all_but(&["/a"]), "a=1&b=2", "b=2&a=3&a=4", true),
        (all_but(&["/a"]), "a=1&b=2", "b=2", true),
        (all_but(&["/a"]), "a=1&b=2", "a=1&b=3", false),
        (all_but(&["/a/b"]), "a=1", "a=2", false),
        (all_but(&[""]), "a=1", "b=2", true),
    ] {
        compare(FORM, &fields, one, other, same);
    }
    let query = |query| Content { query, content_type: Some(FORM), body: b"", ..PLAIN }.fingerprint(&only(&["/a"]));
    assert_ne!(query("b=1"), query("b=2"), "the query is always included");
    compare("text/plain", &only(&["/a"]), "a=1&b=2", "a=1&b=3", false);
}

#[test]
fn fields_with_equal_values_have_different_fingerprints() {
    for (content_type, text) in [(FORM, "a=1&b=1"), ("application/json", r#"{"a":1,"b":1}"#)] {
        let of = |pointer| body(content_type, text.as_bytes(), &only(&[pointer]));
        assert_ne!(of("/a"), of("/b"), "{text}");
        assert_ne!(of("/x"), of("/y"), "{text}");
    }
}

#[test]
fn content_type_spellings_have_the_same_fingerprint() {
    for (one, other, same) in [
        ("text/plain", "Text/PLAIN", true),
        ("text/plain;charset=utf-8", "text/plain ; Charset=\"utf-8\";", true),
        ("text/plain;a=1;b=2", "text/plain;b=2;a=1", true),
        ("text/plain;charset=utf-8", "text/plain", false),
        ("text/plain;a=x", "text/plain;a=X", false),
        ("text/plain;a=1;a=2", "text/plain;a=2;a=1", false),
        ("text/plain;a=1", "text/plain;\"a=1\"", false),
        ("text/plain;boundary=1", "text/plain;boundary=2", false),
        ("multipart/mixed;boundary=1", "multipart/mixed;BOUNDARY=2", true),
        ("application/json", "application/problem+json", false),
    ] {
        let of = |content_type| body(content_type, b"hello", &Fields::all());
        assert_eq!(of(one) == of(other), same, "{one} and {other}");
    }
}

#[test]
fn stored_fingerprint_depends_on_key_and_ticket() {
    let (one, other) = (Fingerprint::of_bytes(b"1"), Fingerprint::of_bytes(b"2"));
    let (k, l) = (b"k", b"l");
    let (here, there) = ([1; 32], [2; 32]);
    assert_eq!(one.keyed(k, &here), Fingerprint::of_bytes(b"1").keyed(k, &here));
    assert_ne!(one.keyed(k, &here), one.keyed(l, &here));
    assert_ne!(one.keyed(k, &here), one.keyed(k, &there), "equal content under another ticket");
    assert_ne!(one.keyed(k, &here), other.keyed(k, &here));
    assert_ne!(one.keyed(k, &here), one.0[..16]);
}

#[test]
fn debug_output_hides_content() {
    assert_eq!(format!("{:?}", Fingerprint::of_bytes(b"")), "Fingerprint(e3b0c442…)");
    let content = Content { query: "_onceward=s3cret", body: b"s3cret", ..PLAIN };
    assert_eq!(format!("{content:?}"), "Content { method: \"POST\", path: \"/pay\", .. }");
}

#[test]
fn hostile_bodies_are_digested_in_bounded_time() {
    let sized = |piece: &str| piece.repeat(256 * 1024 / piece.len());
    let (json, form) = ("application/json", "multipart/form-data; boundary=");
    let (long_boundary, dashes) = (format!("{form}{}", "-".repeat(8 * 1024)), format!("{form}-"));
    let names: String = (0..20_000).rev().map(|name| format!("\"{name}\":0,")).collect();
    let part = "Content-Disposition: form-data; name=a\r\n\r\n";
    let start = Clock::system().steady();
    for (content_type, text) in [
        (json, sized("[")),
        (json, sized("{\"a\":")),
        (json, sized("[") + &sized("]")),
        (json, sized("\"")),
        (json, format!("[{}0]", sized("0,"))),
        (json, format!("[\"{}\"]", sized("\\\\"))),
        (json, format!("[{}0]", sized("\"\\u0041\","))),
        (json, format!("{{{names}\"\":0}}")),
        (FORM, sized("&")),
        (FORM, sized("a&")),
        (FORM, sized("%")),
        (&dashes, sized("-")),
        (&dashes, format!("---\r\n{part}{}", sized("\r\n-"))),
        (&dashes, format!("---\r\n{}", sized("a:\r\n"))),
        (&long_boundary, sized("-")),
        (&long_boundary, format!("--{}\r\n{part}{}", "-".repeat(8 * 1024), sized("\r\n-------"))),
        (&sized(";a=\""), String::new()),
    ] {
        body(content_type, text.as_bytes(), &Fields::all());
    }
    let took = Clock::system().steady() - start;
    assert!(took < 5_000, "{took} ms");
}

proptest! {
    #[test]
    fn arbitrary_content_does_not_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        query in "\\PC{0,40}", strange in "\\PC{0,40}", at in 0..6_usize,
        pointer in "(/[a-c0-2~]{0,2}){0,3}",
    ) {
        let types = ["application/json", "a/b+json", FORM, "multipart/form-data; boundary=x", "text/plain", &strange];
        let content = Content { query: &query, content_type: Some(types[at]), body: &bytes, ..PLAIN };
        let chosen = [Fields::only([&pointer]), Fields::all_but([&pointer])].into_iter().flatten();
        for fields in chosen.chain([Fields::all().without_files()]) {
            prop_assert_eq!(content.fingerprint(&fields), content.fingerprint(&fields));
        }
    }

    #[test]
    fn plain_bodies_match_only_if_equal(
        one in proptest::collection::vec(any::<u8>(), 0..4), other in proptest::collection::vec(any::<u8>(), 0..4),
    ) {
        let of = |bytes| body("application/octet-stream", bytes, &Fields::all());
        prop_assert_eq!(of(&one) == of(&other), one == other);
    }
}
