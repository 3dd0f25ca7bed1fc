//! Deletion with a mark and a version, which distinguish a repetition from a second deletion.

use super::change::Change;
use super::connection::{RowOf, SqlConnection};
use super::statement::{Step, Write};
use super::{Answer, PatternError};

impl<C: SqlConnection> Change<C> {
    /// Marks the row as deleted and increments its version, if it still has the version `seen` (compare-and-swap).
    ///
    /// A physically deleted row cannot distinguish a repetition from a mistake; and if it was inserted again meanwhile, the repetition
    /// would delete the new row (ABA). Mark and version avoid both.
    ///
    /// | answer | meaning |
    /// |---|---|
    /// | applied | deleted |
    /// | already applied | this deletion was applied before |
    /// | rejected | the row was changed or restored since (unmet), or does not exist (missing) |
    ///
    /// `mark` is a boolean column. To restore a row, set it to false with [`at_version`](Self::at_version). To allow a new row with the
    /// same business key, use a partial unique index over the rows that are not marked.
    ///
    /// ```
    /// # use sqlx::{Connection as _, SqliteConnection};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
    /// # let table = "CREATE TABLE carts (id BIGINT PRIMARY KEY, deleted BOOLEAN, version BIGINT); INSERT INTO carts VALUES (7, FALSE, 1)";
    /// # sqlx::raw_sql(table).execute(&mut connection).await?;
    /// use onceward_patterns::{Answer, Change};
    ///
    /// let cart = || Change::to("carts").key("id", 7_i64);
    /// assert!(matches!(cart().delete("deleted", "version", 1, &mut connection).await?, Answer::Applied(_)));
    /// assert!(matches!(cart().delete("deleted", "version", 1, &mut connection).await?, Answer::AlreadyApplied(_)));
    /// // The row is restored. The repetition of the old deletion does not change it.
    /// let _ = cart().with("deleted", false).at_version("version", 2, &mut connection).await?;
    /// assert!(matches!(cart().delete("deleted", "version", 1, &mut connection).await?, Answer::Rejected(_)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn delete(
        mut self,
        mark: &str,
        version: &str,
        seen: i64,
        on: &mut C,
    ) -> Result<Answer<RowOf<C>>, PatternError> {
        let (mark, name) = (self.column(mark)?, self.column(version)?);
        let seen = self.number(version, seen)?;
        let open = format!("(this.{name} = {seen} AND this.{mark} IS NOT TRUE)");
        let reached = format!("(this.{name} = {seen} + 1 AND this.{mark} IS TRUE)");
        let mut sets = self.given();
        sets.extend([(mark, "TRUE".to_owned()), (name.clone(), format!("this.{name} + 1"))]);
        self.apply(Step { write: Write::Update, sets, open, reached }, on).await
    }
}
