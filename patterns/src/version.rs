//! Versions: a number in the row that says which state it is in.

use super::change::Change;
use super::connection::{RowOf, SqlConnection};
use super::statement::{Step, Write};
use super::{Answer, PatternError};

impl<C: SqlConnection> Change<C> {
    /// Updates the row if its version is lower than this one, which the sender has counted. Messages that come out of order
    /// then end in the newest state. A row without a version (NULL) is older than any.
    ///
    /// *Applied*: updated. *Already applied*: the row has this version and this content. *Rejected*: it is newer (unmet), has
    /// other content under this version (different), or is not there (missing).
    ///
    /// A status that is a number which only grows is such a version.
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

    /// The same as [`newer`](Self::newer), for messages that may be the first to tell of the row: where there is none, it is
    /// inserted. The key needs a unique index, and the message has to bring all that the table requires.
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

    /// Updates the row if it still has the version that the caller has seen, and counts it up: nobody overwrites what he
    /// has not read, nor what has become the same again by two changes (ABA).
    ///
    /// *Applied*: updated. *Already applied*: the row has the next version and this content, so that this is the answer
    /// that was lost. *Rejected*: it was changed by somebody else (different or unmet), or is not there (missing).
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
