//! Versions: assigned by the sender, or read before the write.

use onceward_patterns::{Answer, Change, Why};
use sqlx::Row as _;

use super::{RACERS, count, on_both, race, said};

const PRICES: &str = "CREATE TABLE prices (sku TEXT PRIMARY KEY, cents BIGINT, version BIGINT)";
const TEA: &str = "CREATE TABLE prices (sku TEXT PRIMARY KEY, cents BIGINT, version BIGINT); INSERT INTO prices VALUES ('tea', 100, 1)";

on_both! {
    /// R45: only a newer version is written.
    async fn older_version_never_overwrites_a_newer_one(TEA => database) {
        let mut connection = database.connection().await;
        for (cents, version, expected) in [
            (300, 3, Answer::Applied(300)),
            (300, 3, Answer::AlreadyApplied(300)),
            (333, 3, Answer::Rejected(Why::Different(300))),
            (200, 2, Answer::Rejected(Why::Unmet(300))),
            (400, 4, Answer::Applied(400)),
        ] {
            let price = Change::to("prices").key("sku", "tea").with("cents", cents);
            let answer = price.newer("version", version, &mut connection).await.unwrap();
            assert_eq!(answer.map(|row| row.get::<i64, _>("cents")), expected, "{cents} at {version}");
        }
        let none = Change::to("prices").key("sku", "pot").with("cents", 1_i64);
        let none = none.newer("version", 9, &mut connection).await.unwrap();
        assert!(matches!(none, Answer::Rejected(Why::Missing(table)) if table == "prices"));
        database.execute("INSERT INTO prices VALUES ('cup', 1, NULL)").await;
        let unversioned = Change::to("prices").key("sku", "cup").with("cents", 2_i64);
        assert_eq!(said(&unversioned.newer("version", 0, &mut connection).await.unwrap()), "applied");
    }

    /// R39: 32 concurrent messages with 16 versions, each sent twice, out of order.
    async fn versions_out_of_order_end_in_the_newest(PRICES => database) {
        let mut ready = Vec::new();
        for version in 0..RACERS {
            ready.push(((version * 7) % (RACERS / 2) + 1, database.connection().await));
        }
        let answers = race(ready, |(version, mut connection)| async move {
            let price = Change::to("prices").key("sku", "tea").with("cents", version * 100);
            price.upsert_newer("version", version, &mut connection).await.unwrap()
        })
        .await;
        assert_eq!((count(&answers, "missing"), count(&answers, "different")), (0, 0));
        assert_eq!(database.number("SELECT version * 10000 + cents FROM prices").await, 161_600);
    }

    /// The naive code sets the value of every message.
    async fn naive_update_without_a_version_ends_in_the_older(TEA => database) {
        for cents in [300, 200] {
            database.execute(&format!("UPDATE prices SET cents = {cents} WHERE sku = 'tea'")).await;
        }
        assert_eq!(database.number("SELECT cents FROM prices").await, 200, "the naive code ends in the older state");
    }

    /// R52: a writer overwrites only the version that it has read.
    async fn concurrent_writers_of_one_version_apply_once(TEA => database) {
        let mut ready = Vec::new();
        for cents in 1..=RACERS {
            ready.push((cents, database.connection().await));
        }
        let answers = race(ready, |(cents, mut connection)| async move {
            let price = Change::to("prices").key("sku", "tea").with("cents", cents);
            price.at_version("version", 1, &mut connection).await.unwrap().map(|row| row.get::<i64, _>("cents"))
        })
        .await;
        assert_eq!((count(&answers, "applied"), count(&answers, "different")), (1, 31));
        let written = database.number("SELECT cents FROM prices").await;
        assert!(answers.iter().all(|answer| answer.row() == Some(&written)));
        assert_eq!(database.number("SELECT version FROM prices").await, 2);

        let mut connection = database.connection().await;
        let price = |cents: i64| Change::to("prices").key("sku", "tea").with("cents", cents);
        let lost = price(written).at_version("version", 1, &mut connection).await.unwrap();
        assert_eq!(said(&lost), "already applied", "a retry after a lost reply");
        assert_eq!(said(&price(1).at_version("version", 9, &mut connection).await.unwrap()), "unmet");
        assert_eq!(said(&price(1).at_version("version", 0, &mut connection).await.unwrap()), "unmet");
        let none = Change::to("prices").key("sku", "pot").with("cents", 1_i64);
        assert_eq!(said(&none.at_version("version", 1, &mut connection).await.unwrap()), "missing");
    }

    /// R2 (the ABA problem): the value was 100 when it was read, changed, and is 100 again.
    async fn restored_value_with_a_newer_version_is_rejected(TEA => database) {
        let mut connection = database.connection().await;
        let set = |cents: i64| Change::to("prices").key("sku", "tea").with("cents", cents);
        for (cents, version) in [(50, 1), (100, 2)] {
            assert_eq!(said(&set(cents).at_version("version", version, &mut connection).await.unwrap()), "applied");
        }
        assert_eq!(said(&set(70).at_version("version", 1, &mut connection).await.unwrap()), "unmet");
        assert_eq!(database.number("SELECT cents FROM prices").await, 100);
        let naive = sqlx::query("UPDATE prices SET cents = 70 WHERE sku = 'tea' AND cents = 100");
        assert_eq!(naive.execute(&mut connection).await.unwrap().rows_affected(), 1, "the naive code does not detect the change");
    }
}
