//! Deletion, also when the row is created again in between.

use onceward_patterns::Change;

use super::{RACERS, count, on_both, race, said};

/// One live cart for each user; a new one may be created after the old one is marked as deleted.
const CARTS: &str =
    "CREATE TABLE carts (id BIGINT PRIMARY KEY, owner BIGINT, deleted BOOLEAN, version BIGINT NOT NULL);
    CREATE UNIQUE INDEX live ON carts (owner) WHERE deleted IS NOT TRUE;
    INSERT INTO carts VALUES (1, 7, FALSE, 1)";

on_both! {
    /// R74, R76: a repetition is recognised and reported.
    async fn deletion_is_applied_once_and_repetition_reported(CARTS => database) {
        let mut connection = database.connection().await;
        let cart = |id: i64| Change::to("carts").key("id", id);
        assert_eq!(said(&cart(1).delete("deleted", "version", 9, &mut connection).await.unwrap()), "unmet", "wrong version");
        assert_eq!(said(&cart(1).delete("deleted", "version", 1, &mut connection).await.unwrap()), "applied");
        assert_eq!(said(&cart(1).delete("deleted", "version", 1, &mut connection).await.unwrap()), "already applied");
        assert_eq!(said(&cart(1).delete("deleted", "version", 2, &mut connection).await.unwrap()), "unmet", "it is deleted");
        assert_eq!(said(&cart(2).delete("deleted", "version", 1, &mut connection).await.unwrap()), "missing");
    }

    async fn concurrent_deletions_apply_once(CARTS => database) {
        let mut ready = Vec::new();
        for _ in 0..RACERS {
            ready.push(database.connection().await);
        }
        let answers = race(ready, |mut connection| async move {
            Change::to("carts").key("id", 1_i64).delete("deleted", "version", 1, &mut connection).await.unwrap()
        })
        .await;
        assert_eq!((count(&answers, "applied"), count(&answers, "already applied")), (1, 31));
        assert_eq!(database.number("SELECT version FROM carts").await, 2);
    }

    /// R2: the row is deleted, created or restored by another client, and then the first deletion is repeated.
    async fn late_repeated_deletion_keeps_newer_rows(CARTS => database) {
        let mut connection = database.connection().await;
        let old = || Change::to("carts").key("id", 1_i64);
        assert_eq!(said(&old().delete("deleted", "version", 1, &mut connection).await.unwrap()), "applied");
        database.execute("INSERT INTO carts VALUES (2, 7, FALSE, 1)").await;
        assert_eq!(said(&old().delete("deleted", "version", 1, &mut connection).await.unwrap()), "already applied");
        assert_eq!(database.number("SELECT count(*) FROM carts WHERE deleted IS NOT TRUE").await, 1);

        let new = || Change::to("carts").key("id", 2_i64);
        assert_eq!(said(&new().delete("deleted", "version", 1, &mut connection).await.unwrap()), "applied");
        let back = new().with("deleted", false).at_version("version", 2, &mut connection).await.unwrap();
        assert_eq!(said(&back), "applied");
        assert_eq!(said(&new().delete("deleted", "version", 1, &mut connection).await.unwrap()), "unmet");
        assert_eq!(database.number("SELECT count(*) FROM carts WHERE deleted IS NOT TRUE").await, 1);
    }

    /// The naive code.
    async fn naive_deletion_by_business_key_deletes_newer_rows(CARTS => database) {
        let delete = "DELETE FROM carts WHERE owner = 7";
        database.execute(delete).await;
        database.execute("INSERT INTO carts VALUES (2, 7, FALSE, 1)").await;
        database.execute(delete).await;
        assert_eq!(database.number("SELECT count(*) FROM carts").await, 0, "the naive code deletes the new cart");
    }
}
