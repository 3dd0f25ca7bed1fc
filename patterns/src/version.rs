//! Versions: a number in the row that identifies its state.

use super::change::Change;
use super::connection::{RowOf, SqlConnection};
use super::statement::{Step, Write};
use super::{Answer, PatternError};

impl<C: SqlConnection> Change<C> {
    /// Updates the row if its version is lower than `version`, which the sender assigns. Messages that arrive out of order end in the
    /// newest state. A row without a version (NULL) is older than any version.
    ///
    /// | answer | meaning |
    /// |---|---|
    /// | applied | updated |
    /// | already applied | the row has this version and this content |
    /// | rejected | the row is newer (unmet), has this version with other content (different), or does not exist (missing) |
    ///
    /// A numeric status that only increases can be used as a version.
    ///
    /// ```
    /// # use sqlx::{Connection as _, Row as _, SqliteConnection};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
    /// # let table = "CREATE TABLE prices (sku TEXT PRIMARY KEY, cents BIGINT, version BIGINT); INSERT INTO prices VALUES ('tea', 1, 1)";
    /// # sqlx::raw_sql(table).execute(&mut connection).await?;
    /// use onceward_patterns::{Answer, Change, Why};
    ///
    /// let price = |cents: i64| Change::to("prices").key("sku", "tea").with("cents", cents);
    /// assert!(matches!(price(300).newer("version", 3, &mut connection).await?, Answer::Applied(_)));
    /// let late = price(200).newer("version", 2, &mut connection).await?;
    /// assert!(matches!(late, Answer::Rejected(Why::Unmet(row)) if row.get::<i64, _>("cents") == 300));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn newer(self, column: &str, version: i64, on: &mut C) -> Result<Answer<RowOf<C>>, PatternError> {
        self.if_newer(Write::Update, column, version, on).await
    }

    /// Like [`newer`](Self::newer), but inserts the row if it does not exist, for messages that may be the first about a row. The key needs
    /// a unique index, and the change must set all required columns.
    ///
    /// ```
    /// # use sqlx::{Connection as _, SqliteConnection};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
    /// # sqlx::raw_sql("CREATE TABLE prices (sku TEXT PRIMARY KEY, cents BIGINT, version BIGINT)").execute(&mut connection).await?;
    /// use onceward_patterns::Change;
    ///
    /// for version in [2, 3, 1] {
    ///     let price = Change::to("prices").key("sku", "tea").with("cents", 100 * version);
    ///     let _ = price.upsert_newer("version", version, &mut connection).await?;
    /// }
    /// let cents: i64 = sqlx::query_scalar("SELECT cents FROM prices").fetch_one(&mut connection).await?;
    /// assert_eq!(cents, 300);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn upsert_newer(self, column: &str, version: i64, on: &mut C) -> Result<Answer<RowOf<C>>, PatternError> {
        self.if_newer(Write::Upsert, column, version, on).await
    }

    /// Updates the row and increments its version, if it still has the version `seen` (compare-and-swap). A caller cannot overwrite a
    /// change that it has not read, even if the content was changed back since (ABA).
    ///
    /// | answer | meaning |
    /// |---|---|
    /// | applied | updated |
    /// | already applied | the row has the next version and this content: the response of the first attempt was lost |
    /// | rejected | the row was changed by another request (different or unmet), or does not exist (missing) |
    ///
    /// ```
    /// # use sqlx::{Connection as _, SqliteConnection};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
    /// # let table = "CREATE TABLE users (id BIGINT PRIMARY KEY, email TEXT, version BIGINT); INSERT INTO users VALUES (7, '', 1)";
    /// # sqlx::raw_sql(table).execute(&mut connection).await?;
    /// use onceward_patterns::{Answer, Change};
    ///
    /// let email = |email: &str| Change::to("users").key("id", 7_i64).with("email", email.to_owned());
    /// assert!(matches!(email("a@shop.example").at_version("version", 1, &mut connection).await?, Answer::Applied(_)));
    /// assert!(matches!(email("a@shop.example").at_version("version", 1, &mut connection).await?, Answer::AlreadyApplied(_)));
    /// assert!(matches!(email("b@shop.example").at_version("version", 1, &mut connection).await?, Answer::Rejected(_)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn at_version(mut self, column: &str, seen: i64, on: &mut C) -> Result<Answer<RowOf<C>>, PatternError> {
        let version = self.column(column)?;
        let seen = self.number(column, seen)?;
        let (open, reached) = (format!("this.{version} = {seen}"), format!("this.{version} = {seen} + 1"));
        let mut sets = self.given();
        sets.push((version.clone(), format!("this.{version} + 1")));
        self.apply(Step { write: Write::Update, sets, open, reached }, on).await
    }

    async fn if_newer(
        mut self,
        write: Write,
        column: &str,
        version: i64,
        on: &mut C,
    ) -> Result<Answer<RowOf<C>>, PatternError> {
        let name = self.column(column)?;
        let version = self.number(column, version)?;
        let open = format!("(this.{name} < {version} OR this.{name} IS NULL)");
        let reached = format!("this.{name} = {version}");
        let mut sets = self.given();
        sets.push((name, version));
        self.apply(Step { write, sets, open, reached }, on).await
    }
}
