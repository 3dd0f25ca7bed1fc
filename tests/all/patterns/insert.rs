//! `insert_once`, `query_first` and `upsert`.

use onceward_patterns::{Answer, Change, Why};
use sqlx::{Connection as _, Row as _};

use super::{RACERS, count, on_both, race, repeated, said};

const PAYMENTS: &str =
    "CREATE TABLE payments (order_no TEXT PRIMARY KEY, cents BIGINT NOT NULL, note TEXT, run BIGINT)";
const INBOX: &str =
    "CREATE TABLE inbox (source TEXT NOT NULL, seq BIGINT NOT NULL, body TEXT, result TEXT, PRIMARY KEY (source, seq));
    CREATE TABLE effects (seq BIGINT NOT NULL)";
const PLACES: &str =
    "CREATE TABLE places (goods BIGINT, category TEXT, shelf BIGINT, at BIGINT, PRIMARY KEY (goods, category))";

on_both! {
    /// R3, R36, R77: a conflict on the business key returns the existing row. R71: but only for the same request.
    async fn insert_is_applied_once_and_repetition_returns_the_row(PAYMENTS => database) {
        let mut connection = database.connection().await;
        let payment = |order: &'static str, cents: i64| Change::to("payments").key("order_no", order).with("cents", cents);
        let first = payment("1", 900).with("note", None::<String>).noting("run", 1_i64).insert_once(&mut connection).await.unwrap();
        assert_eq!(first.map(|row| row.get::<i64, _>("run")), Answer::Applied(1));
        let again = payment("1", 900).with("note", None::<String>).noting("run", 2_i64).insert_once(&mut connection).await.unwrap();
        assert_eq!(again.map(|row| row.get::<i64, _>("run")), Answer::AlreadyApplied(1), "noted columns are not compared");
        let other = payment("1", 100).insert_once(&mut connection).await.unwrap();
        assert_eq!(other.map(|row| row.get::<i64, _>("cents")), Answer::Rejected(Why::Different(900)));
        let noted = payment("1", 900).with("note", "x").insert_once(&mut connection).await.unwrap();
        assert_eq!(said(&noted), "different", "NULL differs from a value");
        assert_eq!(said(&payment("2", 900).insert_once(&mut connection).await.unwrap()), "applied");
        assert_eq!(database.number("SELECT count(*) FROM payments").await, 2);
    }

    async fn concurrent_inserts_apply_once_and_return_the_row(PAYMENTS => database) {
        let mut ready = Vec::new();
        for run in 0..RACERS {
            ready.push((run, database.connection().await));
        }
        let answers = race(ready, |(run, mut connection)| async move {
            let payment = Change::to("payments").key("order_no", "1").with("cents", 900_i64).noting("run", run);
            let answer = payment.insert_once(&mut connection).await.unwrap();
            answer.map(|row| row.get::<i64, _>("run"))
        })
        .await;
        assert_eq!((count(&answers, "applied"), count(&answers, "already applied")), (1, 31));
        let winner = database.number("SELECT run FROM payments").await;
        assert!(answers.iter().all(|answer| answer.row() == Some(&winner)), "{answers:?}");
    }

    /// R85: the naive code selects and then inserts; both have selected before one inserts.
    async fn naive_select_then_insert_inserts_twice("CREATE TABLE payments (order_no TEXT, cents BIGINT)" => database) {
        let (mut one, mut other) = (database.connection().await, database.connection().await);
        let look = "SELECT count(*) FROM payments WHERE order_no = '1'";
        let seen: [i64; 2] = [
            sqlx::query_scalar(look).fetch_one(&mut one).await.unwrap(),
            sqlx::query_scalar(look).fetch_one(&mut other).await.unwrap(),
        ];
        for (seen, connection) in seen.into_iter().zip([&mut one, &mut other]) {
            if seen == 0 {
                sqlx::query("INSERT INTO payments VALUES ('1', 900)").execute(connection).await.unwrap();
            }
        }
        assert_eq!(database.number(look).await, 2, "the naive code pays twice");
    }

    /// The first insert is rolled back and leaves nothing, so the second one is applied.
    async fn rolled_back_insert_leaves_nothing(PAYMENTS => database) {
        let mut connection = database.connection().await;
        let payment = || Change::to("payments").key("order_no", "1").with("cents", 900_i64);
        let mut transaction = connection.begin_with(BEGIN).await.unwrap();
        assert_eq!(said(&payment().insert_once(&mut *transaction).await.unwrap()), "applied");
        assert_eq!(said(&payment().insert_once(&mut *transaction).await.unwrap()), "already applied");
        let mut other = database.connection().await;
        let waiting = tokio::spawn(async move { payment().insert_once(&mut other).await.map(|answer| said(&answer)) });
        transaction.rollback().await.unwrap();
        assert_eq!(waiting.await.unwrap().unwrap(), "applied");
    }

    /// R87: source and seq, queried first. R39: a slow consumer, whose message is redelivered to another machine meanwhile.
    async fn concurrent_messages_with_one_seq_have_one_result(INBOX => database) {
        let mut ready = Vec::new();
        for run in 0..RACERS {
            ready.push((run, database.connection().await));
        }
        let results = race(ready, |(run, mut connection)| async move {
            repeated!(async {
                let mut transaction = connection.begin_with(BEGIN).await.unwrap();
                let message = Change::to("inbox").key("source", "billing").key("seq", 17_i64).with("body", "invoice");
                let result = match message.query_first(&mut *transaction).await? {
                    Answer::Applied(_) => {
                        sqlx::query("INSERT INTO effects VALUES (17)").execute(&mut *transaction).await.unwrap();
                        let done = "UPDATE inbox SET result = $1 WHERE source = 'billing' AND seq = 17";
                        sqlx::query(done).bind(format!("by {run}")).execute(&mut *transaction).await.unwrap();
                        format!("by {run}")
                    }
                    Answer::AlreadyApplied(row) => row.get("result"),
                    refused => panic!("{}", said(&refused)),
                };
                transaction.commit().await.unwrap();
                Ok(result)
            })
        })
        .await;
        assert_eq!(results.len(), 32);
        assert!(results.iter().all(|result| *result == results[0]), "{results:?}");
        assert_eq!(database.number("SELECT count(*) FROM inbox").await, 1);
        assert_eq!(database.number("SELECT count(*) FROM effects").await, 1);
    }

    async fn message_is_identified_by_source_seq_and_content(INBOX => database) {
        let mut connection = database.connection().await;
        let message = |source: &'static str, seq: i64, body: &'static str| {
            Change::to("inbox").key("source", source).key("seq", seq).with("body", body)
        };
        for (source, seq, body, expected) in [
            ("billing", 17, "a", "applied"),
            ("billing", 17, "a", "already applied"),
            ("billing", 17, "b", "different"),
            ("billing", 18, "a", "applied"),
            ("shipping", 17, "a", "applied"),
        ] {
            let answer = message(source, seq, body).query_first(&mut connection).await.unwrap();
            assert_eq!(said(&answer), expected, "{source} {seq} {body}");
        }
    }

    /// R44: a composite key of goods and category.
    async fn upsert_changes_the_row_of_a_composite_key(PLACES => database) {
        let mut connection = database.connection().await;
        let place = |category: &'static str, shelf: i64| {
            Change::to("places").key("goods", 7_i64).key("category", category).with("shelf", shelf)
        };
        for (category, shelf, at, expected) in [
            ("tea", 1, 1, Answer::Applied((1, 1))),
            ("tea", 1, 2, Answer::AlreadyApplied((1, 1))),
            ("tea", 2, 3, Answer::Applied((2, 3))),
            ("pots", 1, 4, Answer::Applied((1, 4))),
        ] {
            let answer = place(category, shelf).noting("at", at as i64).upsert(&mut connection).await.unwrap();
            assert_eq!(answer.map(|row| (row.get::<i64, _>("shelf"), row.get::<i64, _>("at"))), expected, "{category} {shelf}");
        }
        assert_eq!(database.number("SELECT count(*) FROM places").await, 2);
    }

    async fn concurrent_upserts_leave_one_row(PLACES => database) {
        let mut ready = Vec::new();
        for shelf in 0..RACERS {
            ready.push((shelf % 4, database.connection().await));
        }
        let answers = race(ready, |(shelf, mut connection)| async move {
            let place = Change::to("places").key("goods", 7_i64).key("category", "tea").with("shelf", shelf);
            place.upsert(&mut connection).await.unwrap().map(|row| row.get::<i64, _>("shelf") == shelf)
        })
        .await;
        assert!(answers.iter().all(|answer| answer.is_done() && answer.row() == Some(&true)), "{answers:?}");
        assert_eq!(database.number("SELECT count(*) FROM places").await, 1);
    }
}
