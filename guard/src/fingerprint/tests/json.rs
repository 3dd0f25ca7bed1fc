use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;

const TYPE: &str = "application/json";

#[test]
fn document_spellings_have_the_same_fingerprint() {
    for (one, other, same) in [
        (r#"{"a":1,"b":2}"#, "{ \"b\" : 2,\r\n\t\"a\" : 1 }\n", true),
        (r#"[{"a":{"b":1,"c":[2]}}]"#, r#"[{"a":{"c":[2],"b":1}}]"#, true),
        (r#""A""#, r#""\u0041""#, true),
        (r#"{"A":1}"#, r#"{"\u0041":1}"#, true),
        (r#""😀/""#, r#""\ud83d\uDE00\/""#, true),
        (r#""\n""#, r#""\u000a""#, true),
        ("[]", " [ ] ", true),
        ("{}", "{\n}", true),
        ("1", "1 ", true),
        ("1", "1.0", true),
        ("1", "1e0", true),
        ("1", "10E-1", true),
        ("0", "-0.0", true),
        (r#"{"amount":12.50}"#, r#"{"amount":125e-1}"#, true),
    ] {
        compare(TYPE, &Fields::all(), one, other, same);
        compare("Application/Vnd.Api+JSON; charset=utf-8", &Fields::all(), one, other, same);
        compare("text/plain", &Fields::all(), one, other, false);
    }
}

#[test]
fn different_documents_have_different_fingerprints() {
    let all = [
        "1",
        "1.5",
        "1e1",
        "1e-1",
        "-1",
        "0",
        "12345678901234567890",
        "12345678901234567891",
        "0.10000000000000000001",
        "1e400",
        "2e400",
        r#""1""#,
        "true",
        "false",
        "null",
        r#""null""#,
        r#""""#,
        "[]",
        "{}",
        "[[]]",
        "[null]",
        "[1,2]",
        "[2,1]",
        "[12]",
        "[[1],2]",
        "[[1,2]]",
        "[1,[2]]",
        r#"["1,2"]"#,
        r#"{"a":1}"#,
        r#"{"a":"1"}"#,
        r#"{"a":null}"#,
        r#"{"b":1}"#,
        r#"{"a":1,"b":1}"#,
        r#"{"a":{"b":1}}"#,
        r#"{"a":{},"b":1}"#,
        r#"["a",1]"#,
        r#"{"A":1}"#,
        r#"{"":1}"#,
        r#"{"_onceward":1}"#,
        r#"{"_onceward":2}"#,
        r#""é""#,
        r#""e\u0301""#,
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"\u0061":1}"#,
        "",
        " ",
        "[",
        "[1,]",
        "nul",
        "01",
        "\u{feff}1",
    ];
    for (at, one) in all.iter().enumerate() {
        for other in &all[at + 1..] {
            compare(TYPE, &Fields::all(), one, other, false);
        }
    }
}

#[test]
fn ambiguous_documents_are_digested_byte_by_byte() {
    let deep = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let nested = |depth| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    for (text, canonical) in [
        (r#"{"a":1,"b":[{"c":1,"d":1}]}"#, true),
        (r#"{"a":1,"b":[{"c":1,"c":1}]}"#, false),
        (r#"{"a":1,"\u0061":2}"#, false),
        (r#"["\ud800"]"#, false),
        (r#"["\udc00\ud800"]"#, false),
        ("[1,]", false),
        ("[1] 2", false),
        ("{'a':1}", false),
        ("NaN", false),
        (&deep(128), true),
        (&deep(129), false),
        (&nested(128), true),
        (&nested(129), false),
    ] {
        compare(TYPE, &Fields::all(), text, &format!("{text} "), canonical);
        compare(TYPE, &only(&["/nothing"]), text, &format!("{text} "), canonical);
    }
    let of = |bytes| body(TYPE, bytes, &Fields::all());
    assert_ne!(of(b"\"\xff\""), of(b"\"\xfe\""));
    assert_ne!(of(b"\"\xff\""), of(b"\"\xff\" "));
}

#[test]
fn json_members_are_selected_by_pointer() {
    let base = r#"{"a":1,"b":{"c":[10,{"d":2}],"~/":3},"0":null,"e":""}"#;
    for (fields, other, same) in [
        (only(&["/a"]), r#"{"a":1}"#, true),
        (only(&["/a"]), r#"{"a":1.0}"#, true),
        (only(&["/b/c/1/d"]), r#"{"b":{"c":["x",{"d":2,"e":3}]}}"#, true),
        (only(&["/b/c/1/d"]), r#"{"b":{"c":[{"d":2}]}}"#, false),
        (only(&["/b/c/01/d"]), "{}", true),
        (only(&["/b/c/+1"]), "{}", true),
        (only(&["/b/c/-"]), "{}", true),
        (only(&["/b/c/99999999999999999999"]), "{}", true),
        (only(&["/b/~0~1"]), r#"{"b":{"~/":3}}"#, true),
        (only(&["/b/~0~1"]), r#"{"b":{"~/":4}}"#, false),
        (only(&["/0"]), r#"{"0":null}"#, true),
        (only(&["/0"]), "[null]", true),
        (only(&["/0"]), "{}", false),
        (only(&["/e"]), "{}", false),
        (only(&["/e"]), r#"{"e":null}"#, false),
        (only(&["/a/x"]), "{}", true),
        (only(&["/a", "/z"]), r#"{"a":1,"z":null}"#, false),
        (only(&["/a", "/z"]), r#"{"z":1}"#, false),
        (only(&[""]), base, true),
        (only(&[""]), "{}", false),
        (only(&[]), "{}", true),
        (all_but(&["/b"]), r#"{"e":"","a":1,"0":null}"#, true),
        (all_but(&["/b"]), r#"{"e":"","a":2,"0":null}"#, false),
        (all_but(&["/b/c/0", "/b/c/1"]), r#"{"a":1,"b":{"c":[0,0],"~/":3},"0":null,"e":""}"#, true),
        (all_but(&["/b/c/0", "/b/c/1"]), r#"{"a":1,"b":{"c":[0,0,0],"~/":3},"0":null,"e":""}"#, false),
        (all_but(&["/b/c/0", "/b", "/b/c"]), r#"{"a":1,"0":null,"e":""}"#, true),
        (all_but(&["/0", "/zzz", "/a/x"]), r#"{"a":1,"b":{"c":[10,{"d":2}],"~/":3},"e":""}"#, true),
        (all_but(&[""]), "1", true),
    ] {
        compare(TYPE, &fields, base, other, same);
    }
}

fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a\"\\\\\n😀]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map("[a-c\"\\\\é]{0,2}", inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Renders a document with the order of its members, the whitespace and the escapes chosen by `dice`.
fn render(value: &Value, dice: &mut impl FnMut() -> usize) -> String {
    let blank = ["", " ", "\n\t"][dice() % 3];
    let text = match value {
        Value::Array(values) => {
            format!("[{}{blank}]", values.iter().map(|value| render(value, dice)).collect::<Vec<_>>().join(","))
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members
                .iter()
                .map(|(name, value)| (dice(), format!("{blank}{}{blank}:{}", quote(name, dice), render(value, dice))))
                .collect();
            members.sort();
            format!("{{{blank}{}}}", members.into_iter().map(|(_, member)| member).collect::<Vec<_>>().join(","))
        }
        Value::String(text) => quote(text, dice),
        literal => literal.to_string(),
    };
    format!("{blank}{text}{blank}")
}

fn quote(text: &str, dice: &mut impl FnMut() -> usize) -> String {
    if dice().is_multiple_of(2) {
        return Value::from(text).to_string();
    }
    format!("\"{}\"", text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<String>())
}

/// Changes one value of the document.
fn change(value: &mut Value, dice: &mut impl FnMut() -> usize) {
    let choice = dice();
    match value {
        Value::Array(values) if !values.is_empty() => {
            let at = choice % values.len();
            change(&mut values[at], dice);
        }
        Value::Object(members) if !members.is_empty() => {
            let at = choice % members.len();
            members.values_mut().nth(at).into_iter().for_each(|member| change(member, dice));
        }
        Value::Number(number) => *value = Value::from(number.as_i64().unwrap().wrapping_add(1)),
        Value::String(text) => text.push('x'),
        _ => *value = Value::from("changed"),
    }
}

proptest! {
    #[test]
    fn formatting_does_not_change_the_fingerprint(document in document(), numbers: Vec<u16>) {
        let mut numbers = numbers.iter().cycle();
        let mut dice = || numbers.next().map_or(0, |number| usize::from(*number));
        let (one, other) = (render(&document, &mut dice), render(&document, &mut dice));
        let of = |text: &str| body(TYPE, text.as_bytes(), &Fields::all());
        prop_assert_eq!(of(&one), of(&other), "{} {}", one, other);
        prop_assert_eq!(of(&one), of(&format!("{one} ")), "the document is parsed, not digested byte by byte");
    }

    #[test]
    fn one_changed_value_changes_the_fingerprint(document in document(), numbers: Vec<u16>) {
        let mut numbers = numbers.iter().cycle();
        let mut dice = || numbers.next().map_or(0, |number| usize::from(*number));
        let mut changed = document.clone();
        change(&mut changed, &mut dice);
        let of = |value: &Value| body(TYPE, value.to_string().as_bytes(), &Fields::all());
        prop_assert_ne!(of(&document), of(&changed), "{} {}", document, changed);
    }

    #[test]
    fn fingerprints_match_only_for_equal_documents(one in document(), other in document()) {
        let of = |value: &Value| body(TYPE, value.to_string().as_bytes(), &Fields::all());
        prop_assert_eq!(of(&one) == of(&other), one == other);
    }
}
