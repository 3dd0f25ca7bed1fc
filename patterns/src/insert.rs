//! Inserts and upserts: the unique index decides, without a prior read.

use super::change::Change;
use super::connection::{RowOf, SqlConnection};
use super::statement::{Step, Write};
use super::{Answer, PatternError};

impl<C: SqlConnection> Change<C> {
    /// Inserts the row at most once per key: a second insert returns the existing row.
    ///
    /// The key identifies the business event: an order number, or user, operation and request id. It needs a unique index. A concurrent
    /// insert with the same key waits until the first transaction has committed or rolled back.
    ///
    /// | answer | meaning |
    /// |---|---|
    /// | applied | inserted |
    /// | already applied | the row exists with the same content |
    /// | rejected | the row exists with other content (different): another intention with the same key |
    ///
    /// ```
    /// # use sqlx::{Connection as _, Row as _, SqliteConnection};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
    /// # sqlx::raw_sql("CREATE TABLE payments (order_no TEXT PRIMARY KEY, cents BIGINT)").execute(&mut connection).await?;
    /// use onceward_patterns::{Answer, Change, Why};
    ///
    /// let payment = |cents: i64| Change::to("payments").key("order_no", "4711").with("cents", cents);
    ///
    /// let mut transaction = connection.begin().await?;
    /// let first = payment(900).insert_once(&mut *transaction).await?;
    /// let again = payment(900).insert_once(&mut *transaction).await?;
    /// let other = payment(100).insert_once(&mut *transaction).await?;
    /// transaction.commit().await?;
    ///
    /// assert!(matches!(first, Answer::Applied(_)));
    /// assert!(matches!(again, Answer::AlreadyApplied(row) if row.get::<i64, _>("cents") == 900));
    /// assert!(matches!(other, Answer::Rejected(Why::Different(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn insert_once(self, on: &mut C) -> Result<Answer<RowOf<C>>, PatternError> {
        let step = self.insertion();
        self.apply(step, on).await
    }

    /// Like [`insert_once`](Self::insert_once), but reads the row first: for senders with many repetitions, such as a partner that numbers
    /// its messages (`source` and `seq`). A repetition then writes nothing and waits for no lock. If the row is not there, the unique index
    /// still decides which insert succeeds.
    ///
    /// ```
    /// # use sqlx::{Connection as _, Row as _, SqliteConnection};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
    /// # let table = "CREATE TABLE inbox (source TEXT, seq BIGINT, body TEXT, result TEXT, UNIQUE (source, seq))";
    /// # sqlx::raw_sql(table).execute(&mut connection).await?;
    /// use onceward_patterns::{Answer, Change};
    ///
    /// let message = || Change::to("inbox").key("source", "billing").key("seq", 17_i64).with("body", "invoice 9");
    ///
    /// let mut transaction = connection.begin().await?;
    /// if let Answer::Applied(_) = message().query_first(&mut *transaction).await? {
    ///     // Process the message here, in the same transaction, and store the result for repetitions.
    ///     let result = "UPDATE inbox SET result = 'sent' WHERE source = 'billing' AND seq = 17";
    ///     sqlx::query(result).execute(&mut *transaction).await?;
    /// }
    /// transaction.commit().await?;
    ///
    /// let again = message().query_first(&mut connection).await?;
    /// assert!(matches!(again, Answer::AlreadyApplied(row) if row.get::<String, _>("result") == "sent"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn query_first(mut self, on: &mut C) -> Result<Answer<RowOf<C>>, PatternError> {
        let step = self.insertion();
        match self.known(&step, on).await? {
            Some(answer) => Ok(answer),
            None => self.apply(step, on).await,
        }
    }

    /// Inserts the row, or updates the existing one, in one statement. The key needs a unique index; several columns form a composite key,
    /// such as goods and category.
    ///
    /// | answer | meaning |
    /// |---|---|
    /// | applied | inserted or updated |
    /// | already applied | the row has this content |
    ///
    /// An upsert is never rejected: the last write wins. If messages may arrive out of order, give them a version and use
    /// [`upsert_newer`](Self::upsert_newer).
    ///
    /// ```
    /// # use sqlx::{Connection as _, SqliteConnection};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
    /// # let table = "CREATE TABLE places (goods BIGINT, category TEXT, shelf TEXT, PRIMARY KEY (goods, category))";
    /// # sqlx::raw_sql(table).execute(&mut connection).await?;
    /// use onceward_patterns::{Answer, Change};
    ///
    /// let place = |shelf: &str| Change::to("places").key("goods", 7_i64).key("category", "tea").with("shelf", shelf.to_owned());
    /// assert!(matches!(place("A").upsert(&mut connection).await?, Answer::Applied(_)));
    /// assert!(matches!(place("B").upsert(&mut connection).await?, Answer::Applied(_)));
    /// assert!(matches!(place("B").upsert(&mut connection).await?, Answer::AlreadyApplied(_)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn upsert(self, on: &mut C) -> Result<Answer<RowOf<C>>, PatternError> {
        let open = format!("NOT {}", self.is_same());
        let step = Step { write: Write::Upsert, sets: self.given(), open, reached: "TRUE".to_owned() };
        self.apply(step, on).await
    }

    pub(super) fn insertion(&self) -> Step {
        Step { write: Write::Insert, sets: self.given(), open: "FALSE".to_owned(), reached: "TRUE".to_owned() }
    }
}
