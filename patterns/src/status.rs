//! Status changes: the allowed transitions of a row.

use sqlx::encode::Encode;
use sqlx::types::Type;

use super::change::Change;
use super::connection::{DatabaseOf, RowOf, SqlConnection};
use super::statement::{Step, Write};
use super::{Answer, PatternError};

impl<C: SqlConnection> Change<C> {
    /// Changes the status of a row from `from` to `to`, with the data that belongs to it.
    ///
    /// | answer | meaning |
    /// |---|---|
    /// | applied | changed |
    /// | already applied | the row has the status `to`, with the same data |
    /// | rejected | the row has the status `to` with other data, from another request (different); it has any other status (unmet); or there is no row (missing) |
    ///
    /// ```
    /// # use sqlx::{Connection as _, SqliteConnection};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
    /// # let table = "CREATE TABLE orders (id BIGINT PRIMARY KEY, status TEXT, receipt TEXT); INSERT INTO orders VALUES (7, 'open', '')";
    /// # sqlx::raw_sql(table).execute(&mut connection).await?;
    /// use onceward_patterns::{Answer, Change, Why};
    ///
    /// let pay = |receipt: &str| Change::to("orders").key("id", 7_i64).with("receipt", receipt.to_owned());
    /// assert!(matches!(pay("r1").change_status("status", "open", "paid", &mut connection).await?, Answer::Applied(_)));
    /// assert!(matches!(pay("r1").change_status("status", "open", "paid", &mut connection).await?, Answer::AlreadyApplied(_)));
    /// let other = pay("r2").change_status("status", "open", "paid", &mut connection).await?;
    /// assert!(matches!(other, Answer::Rejected(Why::Different(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn change_status<'v, S>(
        mut self,
        column: &str,
        from: S,
        to: S,
        on: &mut C,
    ) -> Result<Answer<RowOf<C>>, PatternError>
    where
        S: Encode<'v, DatabaseOf<C>> + Type<DatabaseOf<C>> + PartialEq,
    {
        if from == to {
            return Err(PatternError::Status(column.to_owned()));
        }
        let name = self.column(column)?;
        let (from, to) = (self.parameter(column, from)?, self.parameter(column, to)?);
        let (open, reached) = (format!("this.{name} = {from}"), format!("this.{name} = {to}"));
        let mut sets = self.given();
        sets.push((name, to));
        self.apply(Step { write: Write::Update, sets, open, reached }, on).await
    }

    /// Moves the row forward to the status `to`, from any status before it in `order`: a late *created* after *paid* does not change
    /// *paid*. For statuses that are numbers, [`newer`](Self::newer) does the same.
    ///
    /// | answer | meaning |
    /// |---|---|
    /// | applied | moved |
    /// | already applied | the row has the status `to`, with the same data |
    /// | rejected | the row has the status `to` with other data (different); it has a later status, or one that is not in `order` (unmet); or there is no row (missing) |
    ///
    /// ```
    /// # use sqlx::{Connection as _, Row as _, SqliteConnection};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
    /// # sqlx::raw_sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, status TEXT)").execute(&mut connection).await?;
    /// use onceward_patterns::{Answer, Change, Why};
    ///
    /// const STEPS: [&str; 3] = ["created", "paid", "shipped"];
    /// let order = || Change::to("orders").key("id", 7_i64);
    /// assert!(matches!(order().upsert_forward("status", &STEPS, "paid", &mut connection).await?, Answer::Applied(_)));
    /// let late = order().upsert_forward("status", &STEPS, "created", &mut connection).await?;
    /// assert!(matches!(late, Answer::Rejected(Why::Unmet(row)) if row.get::<String, _>("status") == "paid"));
    /// assert!(matches!(order().forward("status", &STEPS, "shipped", &mut connection).await?, Answer::Applied(_)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn forward<'v, S>(
        self,
        column: &str,
        order: &[S],
        to: S,
        on: &mut C,
    ) -> Result<Answer<RowOf<C>>, PatternError>
    where
        S: Encode<'v, DatabaseOf<C>> + Type<DatabaseOf<C>> + PartialEq + Clone,
    {
        self.move_forward(Write::Update, column, order, to, on).await
    }

    /// Like [`forward`](Self::forward), but inserts the row if it does not exist, for messages that may be the first about a row. The key
    /// needs a unique index, and the change must set all required columns. See the example of `forward`.
    pub async fn upsert_forward<'v, S>(
        self,
        column: &str,
        order: &[S],
        to: S,
        on: &mut C,
    ) -> Result<Answer<RowOf<C>>, PatternError>
    where
        S: Encode<'v, DatabaseOf<C>> + Type<DatabaseOf<C>> + PartialEq + Clone,
    {
        self.move_forward(Write::Upsert, column, order, to, on).await
    }

    async fn move_forward<'v, S>(
        mut self,
        write: Write,
        column: &str,
        order: &[S],
        to: S,
        on: &mut C,
    ) -> Result<Answer<RowOf<C>>, PatternError>
    where
        S: Encode<'v, DatabaseOf<C>> + Type<DatabaseOf<C>> + PartialEq + Clone,
    {
        let name = self.column(column)?;
        let place = order.iter().position(|status| *status == to);
        let place = place.ok_or_else(|| PatternError::Status(column.to_owned()))?;
        let before = order[..place].iter().map(|status| self.parameter(column, status.clone()));
        let before = before.collect::<Result<Vec<_>, _>>()?.join(", ");
        let to = self.parameter(column, to)?;
        // `IN ()` is not valid in PostgreSQL.
        let open = if before.is_empty() { "FALSE".to_owned() } else { format!("this.{name} IN ({before})") };
        let reached = format!("this.{name} = {to}");
        let mut sets = self.given();
        sets.push((name, to));
        self.apply(Step { write, sets, open, reached }, on).await
    }
}
