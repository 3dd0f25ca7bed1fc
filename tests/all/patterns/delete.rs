//! Deleting, and what is made again in between.

use onceward_patterns::Change;

use super::{RACERS, count, on_both, race, said};

/// One live cart for each user; a new one may be made when the old one is marked.
const CARTS: &str =
    "CREATE TABLE carts (id BIGINT PRIMARY KEY, owner BIGINT, deleted BOOLEAN, version BIGINT NOT NULL);
    CREATE UNIQUE INDEX live ON carts (owner) WHERE deleted IS NOT TRUE;
    INSERT INTO carts VALUES (1, 7, FALSE, 1)";

on_both! {
    /// R74, R76: a repetition is recognised, and told so.
    async fn a_deletion_is_made_once_and_a_repetition_is_told_so(CARTS => database) {
        let mut connection = database.connection().await;
        let cart = |id: i64| Change::to("carts").key("id", id);
        assert_eq!(said(&cart(1).delete("deleted", "version", 9, &mut connection).await.unwrap()), "unmet", "it was not seen so");
        assert_eq!(said(&cart(1).delete("deleted", "version", 1, &mut connection).await.unwrap()), "applied");
        assert_eq!(said(&cart(1).delete("deleted", "version", 1, &mut connection).await.unwrap()), "already applied");
        assert_eq!(said(&cart(1).delete("deleted", "version", 2, &mut connection).await.unwrap()), "unmet", "it is deleted");
        assert_eq!(said(&cart(2).delete("deleted", "version", 1, &mut connection).await.unwrap()), "missing");
    }

    async fn of_32_deletions_at_once_one_is_made(CARTS => database) {
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

    /// R2: deleted, made or brought back by somebody else, and then the first deletion comes again.
    async fn a_late_repetition_does_not_delete_what_was_made_since(CARTS => database) {
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

    /// What is usually written.
    async fn to_delete_by_the_business_key_deletes_what_was_made_since(CARTS => database) {
        let delete = "DELETE FROM carts WHERE owner = 7";
        database.execute(delete).await;
        database.execute("INSERT INTO carts VALUES (2, 7, FALSE, 1)").await;
        database.execute(delete).await;
        assert_eq!(database.number("SELECT count(*) FROM carts").await, 0, "the naive way deletes the new one");
    }
}
