//! The syntax of the `Idempotency-Key` header.

use futures_util::future::join_all;
use onceward_tests::client::{Answer, send};
use onceward_tests::contract::stack::Stack;
use onceward_tests::contract::stage::Stage;
use onceward_tests::key_routes::KEY;
use reqwest::header::HeaderValue;

/// Sends an order with these lines of the header.
async fn submit(stage: &Stage, lines: &[&[u8]]) -> Answer {
    let request = stage.shop().post("/orders").header("content-type", "application/json").body(r#"{"item":"tea"}"#);
    let value = |line: &&[u8]| HeaderValue::from_bytes(line).expect("no control characters");
    send(lines.iter().fold(request, |request, line| request.header(KEY, value(line)))).await
}

pub(super) async fn bare_and_quoted_spellings_are_one_key(stack: Stack) {
    let stage = Stage::of(stack).open().await;
    let (long, long_quoted) = ("k".repeat(255), format!("\"{}\"", "k".repeat(255)));
    // The spellings of each key: the first one runs, and the others are its duplicates.
    let keys: [&[&str]; 8] = [
        &["order-1", r#""order-1""#],
        &[r#""order-2""#, "order-2"],
        &[r"a\b", r#""a\\b""#],
        &[r#""a\"b""#],
        &[r#""a,b""#],
        &[r#""a;b""#],
        &[":YWJj:", r#"":YWJj:""#],
        &[&long, &long_quoted],
    ];
    join_all(keys.iter().map(async |spellings| {
        for (at, spelling) in spellings.iter().enumerate() {
            let answer = submit(&stage, &[spelling.as_bytes()]).await;
            assert_eq!(answer.said(), if at == 0 { "201 executed" } else { "201 replayed" }, "{spelling}: {answer:?}");
        }
    }))
    .await;
    assert_eq!(stage.ledger.runs().len(), keys.len());
}

pub(super) async fn malformed_spelling_of_a_key_is_rejected(stack: Stack) {
    let stage = Stage::of(stack).open().await;
    let (long, long_quoted) = ("k".repeat(256), format!("\"{}\"", "k".repeat(256)));
    let values = [
        "a,b",
        "a, b",
        "a;b",
        "a b",
        r#""a b""#,
        r#"a"b"#,
        r#"a""#,
        "\"",
        r#""a"#,
        r#""""#,
        r#""a"b""#,
        r#""a\""#,
        r#""a\b""#,
        r#""a", "b""#,
        "é",
        r#""é""#,
        &long,
        &long_quoted,
    ];
    let one_line = values.into_iter().map(|value| vec![value.as_bytes()]);
    let others: [Vec<&[u8]>; 3] = [vec![b"a\xff"], vec![b"a", b"b"], vec![b"a", b"a"]];
    join_all(one_line.chain(others).map(async |lines| {
        let (refused, shown) =
            (submit(&stage, &lines).await, String::from_utf8_lossy(&lines.join(&b'\n')).into_owned());
        assert_eq!(refused.said(), "400 key_malformed", "{shown}: {refused:?}");
        assert_eq!(
            (&refused.headers["onceward-retry"], refused.problem().status),
            (&"no".parse().unwrap(), 400),
            "{shown}"
        );
    }))
    .await;
    // An SDK does not distinguish an empty header from an absent one.
    let empty = submit(&stage, &[b""]).await.said();
    assert!(["400 key_missing", "400 key_malformed"].contains(&empty.as_str()), "{empty}");
    assert_eq!(stage.ledger.runs(), [""; 0]);
}
