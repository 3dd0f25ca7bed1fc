//! Status changes: from one status to another, and forward along a sequence.

use onceward_patterns::{Answer, Change, Why};
use sqlx::Row as _;

use super::{RACERS, count, on_both, race, said};

const EMPTY: &str = "CREATE TABLE orders (id BIGINT PRIMARY KEY, status TEXT, receipt TEXT)";
const OPEN: &str = "CREATE TABLE orders (id BIGINT PRIMARY KEY, status TEXT, receipt TEXT); INSERT INTO orders VALUES (7, 'open', NULL)";
const WAY: [&str; 3] = ["created", "paid", "shipped"];

on_both! {
    /// R37, R38: at the target it is a success; before or beyond it is rejected each time. R72: the data is compared.
    async fn status_changes_once_from_the_expected_status(OPEN => database) {
        let mut connection = database.connection().await;
        for (from, to, receipt, expected) in [
            ("paid", "shipped", "s1", "unmet"),
            ("open", "paid", "r1", "applied"),
            ("open", "paid", "r1", "already applied"),
            ("open", "paid", "r2", "different"),
            ("paid", "shipped", "s1", "applied"),
            ("open", "paid", "r1", "unmet"),
            ("open", "paid", "r1", "unmet"),
        ] {
            let change = Change::to("orders").key("id", 7_i64).with("receipt", receipt);
            let answer = change.change_status("status", from, to, &mut connection).await.unwrap();
            assert_eq!(said(&answer), expected, "{from} to {to} with {receipt}");
        }
        let none = Change::to("orders").key("id", 8_i64).change_status("status", "open", "paid", &mut connection).await.unwrap();
        assert_eq!(said(&none), "missing");
        assert_eq!(database.text("SELECT status || receipt FROM orders").await, "shippeds1");
    }

    async fn concurrent_payments_apply_once_and_return_the_receipt(OPEN => database) {
        let mut ready = Vec::new();
        for run in 0..RACERS {
            ready.push((run, database.connection().await));
        }
        let answers = race(ready, |(run, mut connection)| async move {
            let change = Change::to("orders").key("id", 7_i64).with("receipt", format!("r{run}"));
            let answer = change.change_status("status", "open", "paid", &mut connection).await.unwrap();
            answer.map(|row| row.get::<String, _>("receipt"))
        })
        .await;
        assert_eq!((count(&answers, "applied"), count(&answers, "different")), (1, 31));
        let receipt = database.text("SELECT receipt FROM orders").await;
        assert!(answers.iter().all(|answer| answer.row() == Some(&receipt)), "{answers:?}");
    }

    /// R39, R46, R86: a late *created* after *paid* ends in *paid*.
    async fn message_of_an_earlier_status_is_rejected(EMPTY => database) {
        let mut connection = database.connection().await;
        for (to, receipt, expected) in [
            ("paid", "r1", Answer::Applied("paid")),
            ("created", "r0", Answer::Rejected(Why::Unmet("paid"))),
            ("paid", "r1", Answer::AlreadyApplied("paid")),
            ("paid", "r2", Answer::Rejected(Why::Different("paid"))),
            ("shipped", "r1", Answer::Applied("shipped")),
            ("paid", "r1", Answer::Rejected(Why::Unmet("shipped"))),
        ] {
            let message = Change::to("orders").key("id", 7_i64).with("receipt", receipt);
            let answer = message.upsert_forward("status", &WAY, to, &mut connection).await.unwrap();
            let answer = answer.map(|row| row.get::<String, _>("status"));
            assert_eq!(answer, expected.map(str::to_owned), "{to} with {receipt}");
        }
        assert_eq!(database.text("SELECT status || receipt FROM orders").await, "shippedr1");
    }

    async fn missing_row_or_unknown_status_is_not_moved(OPEN => database) {
        let mut connection = database.connection().await;
        let order = |id: i64| Change::to("orders").key("id", id);
        assert_eq!(said(&order(8).forward("status", &WAY, "paid", &mut connection).await.unwrap()), "missing");
        assert_eq!(said(&order(7).forward("status", &WAY, "paid", &mut connection).await.unwrap()), "unmet", "open is not in the sequence");
        database.execute("INSERT INTO orders VALUES (9, NULL, NULL)").await;
        assert_eq!(said(&order(9).forward("status", &WAY, "created", &mut connection).await.unwrap()), "unmet");
    }

    async fn messages_out_of_order_end_in_the_last_status(EMPTY => database) {
        for id in 0..8_i64 {
            let mut ready = Vec::new();
            for turn in 0..6 {
                ready.push((WAY[(turn + usize::try_from(id).unwrap()) % 3], database.connection().await));
            }
            let answers = race(ready, move |(to, mut connection)| async move {
                Change::to("orders").key("id", id).upsert_forward("status", &WAY, to, &mut connection).await.unwrap()
            })
            .await;
            assert!(count(&answers, "applied") >= 1);
            assert_eq!(database.text(&format!("SELECT status FROM orders WHERE id = {id}")).await, "shipped");
        }
    }

    /// The naive code sets the status of the message.
    async fn naive_update_sets_the_status_back(OPEN => database) {
        for status in ["paid", "created"] {
            database.execute(&format!("UPDATE orders SET status = '{status}' WHERE id = 7")).await;
        }
        assert_eq!(database.text("SELECT status FROM orders").await, "created", "the naive code loses the payment");
    }
}
