//! Stock: taking what is left, once for each request, and giving it back.

use super::change::Change;
use super::connection::{RowOf, SqlConnection};
use super::name::Name;
use super::statement::{Step, Write};
use super::{Answer, PatternError};

impl<C: SqlConnection> Change<C> {
    /// Takes `amount` from a column of this row, if there is so much left, and records the request in `flow`.
    ///
    /// The record comes first. Who buys the last item, and asks again because the answer was lost, then gets his record and
    /// not *sold out*. Its key is what makes a request the same: who asks, for what, under which id. The row itself is
    /// locked last and by its own key, so that buyers of other goods do not wait.
    ///
    /// Both happen or neither: in a transaction of its own, or within the caller's. *Applied*: taken; the row is the record.
    /// *Already applied*: this request has taken before; the row is its record. *Rejected*: the request was recorded with
    /// other content (different), too little is left (unmet; the row is the stock's) or there is no such stock (missing). A
    /// rejection is not recorded: the same request may succeed once there is more.
    ///
    /// Write what is taken, and how much of it, into the record. Then the same request with another amount is refused as different, and
    /// only what was taken can be given back; a record without the amount would let one be taken and ten be given back.
    ///
    /// Who takes from several rows in one transaction takes them in one order, by their keys: two that wait for each other are
    /// ended by the database, which says [`PatternError::Again`] to one of them.
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

    /// Gives back what was taken by the request that `flow` names, once. `mark` is a boolean column of the record. The example of
    /// [`take`](Self::take) has it too.
    ///
    /// *Applied*: given back; the row is the record. *Already applied*: it was before. *Rejected*: that request took
    /// something else (different), or took nothing (missing): then nothing is given back either, and a taking that comes late
    /// still takes.
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

    /// The record, and then the stock: both, or neither.
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

    /// A step of the stock, which by itself cannot tell whether it was made before.
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
