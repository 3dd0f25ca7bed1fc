//! Stock: takes an amount once per request, and gives it back.

use super::change::Change;
use super::connection::{RowOf, SqlConnection};
use super::name::Name;
use super::statement::{Step, Write};
use super::{Answer, PatternError};

impl<C: SqlConnection> Change<C> {
    /// Takes `amount` from a column of this row, if enough is left, and records the request in `flow`.
    ///
    /// The record is written first. A buyer of the last item who retries after a lost response therefore receives the record and not *sold
    /// out*. The key of the record identifies the request: buyer, operation and request id. The stock row is locked last and by its own
    /// key, so that buyers of other goods do not wait.
    ///
    /// Both writes are atomic: in their own transaction, or within the caller's.
    ///
    /// | answer | meaning |
    /// |---|---|
    /// | applied | taken; contains the record |
    /// | already applied | this request was applied before; contains its record |
    /// | rejected | the request was recorded with other content (different); too little is left (unmet; contains the stock row); or there is no such stock (missing) |
    ///
    /// A rejection is not recorded: the same request may succeed later, when there is more.
    ///
    /// Set the item and the amount in the record. Then the same request with another amount is rejected as different, and only the amount
    /// that was taken can be given back; without the amount in the record, a request could take one and give back ten.
    ///
    /// If you take from several rows in one transaction, take them in the order of their keys. Otherwise two transactions may deadlock, and
    /// the database ends one of them with [`PatternError::Again`].
    ///
    /// ```
    /// # use sqlx::{Connection as _, Row as _, SqliteConnection};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
    /// # let tables = "CREATE TABLE stock (sku TEXT PRIMARY KEY, left_over BIGINT); INSERT INTO stock VALUES ('tea', 1);
    /// #     CREATE TABLE flow (buyer BIGINT, request TEXT, sku TEXT, amount BIGINT, returned BOOLEAN, UNIQUE (buyer, request))";
    /// # sqlx::raw_sql(tables).execute(&mut connection).await?;
    /// use onceward_patterns::{Answer, Change, Why};
    ///
    /// let tea = || Change::to("stock").key("sku", "tea");
    /// let flow = |buyer: i64| {
    ///     let request = Change::to("flow").key("buyer", buyer).key("request", "r-1");
    ///     request.with("sku", "tea").with("amount", 1_i64)
    /// };
    ///
    /// let mut transaction = connection.begin().await?;
    /// let first = tea().take("left_over", 1, flow(7), &mut *transaction).await?;
    /// let again = tea().take("left_over", 1, flow(7), &mut *transaction).await?;
    /// let other = tea().take("left_over", 1, flow(8), &mut *transaction).await?;
    /// let back = tea().give_back("left_over", 1, flow(7), "returned", &mut *transaction).await?;
    /// transaction.commit().await?;
    ///
    /// assert!(matches!(first, Answer::Applied(_)));
    /// assert!(matches!(again, Answer::AlreadyApplied(_)), "not sold out");
    /// assert!(matches!(other, Answer::Rejected(Why::Unmet(stock)) if stock.get::<i64, _>("left_over") == 0));
    /// assert!(matches!(back, Answer::Applied(_)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn take(
        mut self,
        column: &str,
        amount: i64,
        flow: Self,
        on: &mut C,
    ) -> Result<Answer<RowOf<C>>, PatternError> {
        let recording = flow.insertion();
        let (left, amount) = (self.column(column)?, self.amount(column, amount)?);
        let open = format!("this.{left} >= {amount}");
        let taking = self.moving(open, (left.clone(), format!("this.{left} - {amount}")));
        self.both(flow, recording, taking, on).await
    }

    /// Gives back the amount that the request in `flow` took, at most once. `mark` is a boolean column of the record. See the example of
    /// [`take`](Self::take).
    ///
    /// | answer | meaning |
    /// |---|---|
    /// | applied | given back; contains the record |
    /// | already applied | given back before |
    /// | rejected | that request took something else (different), or nothing (missing) |
    ///
    /// If the request took nothing, nothing is given back, and a `take` that arrives later still takes.
    pub async fn give_back(
        mut self,
        column: &str,
        amount: i64,
        flow: Self,
        mark: &str,
        on: &mut C,
    ) -> Result<Answer<RowOf<C>>, PatternError> {
        let mark = flow.column(mark)?;
        let open = format!("this.{mark} IS NOT TRUE AND {}", flow.is_same());
        let mut sets = flow.given_to_note();
        sets.push((mark, "TRUE".to_owned()));
        let marking = Step { write: Write::Update, sets, open, reached: "TRUE".to_owned() };
        let (left, amount) = (self.column(column)?, self.amount(column, amount)?);
        let giving = self.moving("TRUE".to_owned(), (left.clone(), format!("this.{left} + {amount}")));
        self.both(flow, marking, giving, on).await
    }

    /// Writes the record and then the stock, atomically.
    async fn both(
        self,
        flow: Self,
        recording: Step,
        moving: Step,
        on: &mut C,
    ) -> Result<Answer<RowOf<C>>, PatternError> {
        let mut both = on.begin().await.map_err(PatternError::of)?;
        let recorded = flow.apply(recording, &mut both).await?;
        if !matches!(recorded, Answer::Applied(_)) {
            both.rollback().await.map_err(PatternError::of)?;
            return Ok(recorded);
        }
        let moved = self.apply(moving, &mut both).await?;
        if !matches!(moved, Answer::Applied(_)) {
            both.rollback().await.map_err(PatternError::of)?;
            return Ok(moved);
        }
        both.commit().await.map_err(PatternError::of)?;
        Ok(recorded)
    }

    /// The statement for the stock row, which cannot detect a repetition itself.
    fn moving(&self, open: String, set: (Name, String)) -> Step {
        let mut sets = self.given();
        sets.push(set);
        Step { write: Write::Update, sets, open, reached: "FALSE".to_owned() }
    }

    fn amount(&mut self, column: &str, amount: i64) -> Result<String, PatternError> {
        if amount < 1 {
            return Err(PatternError::Amount(amount));
        }
        self.number(column, amount)
    }
}
