//! Applies a change. One statement decides; only if it changed nothing, the row is read to find the reason.

use super::change::Change;
use super::connection::{RowOf, SqlConnection};
use super::statement::{Step, Write, found};
use super::{Answer, PatternError, Why};

/// Maximum number of times that a row may change between the statement and the read, before the caller has to retry the transaction.
const ROUNDS: usize = 10;

/// The state of a row whose change was not applied.
enum Finding<R> {
    Absent,
    /// The row was changed concurrently, so that the change can be applied now.
    Moved,
    Answer(Answer<R>),
}

impl<C: SqlConnection> Change<C> {
    /// Applies the change, or returns the reason why it cannot be applied.
    pub(super) async fn apply(mut self, step: Step, on: &mut C) -> Result<Answer<RowOf<C>>, PatternError> {
        self.check(&step)?;
        for _ in 0..ROUNDS {
            let row = self.rows(self.statement(&step), on).await?.pop();
            if let Some(row) = row {
                return Ok(Answer::Applied(row));
            }
            match self.looked(&step, on).await? {
                Finding::Answer(answer) => return Ok(answer),
                Finding::Absent if step.write == Write::Update => return Ok(self.missing()),
                Finding::Absent | Finding::Moved => {}
            }
        }
        Err(PatternError::contended())
    }

    /// Returns the answer that the current row gives, if any, without changing it.
    pub(super) async fn known(&mut self, step: &Step, on: &mut C) -> Result<Option<Answer<RowOf<C>>>, PatternError> {
        self.check(step)?;
        Ok(match self.looked(step, on).await? {
            Finding::Answer(answer) => Some(answer),
            Finding::Absent | Finding::Moved => None,
        })
    }

    async fn looked(&self, step: &Step, on: &mut C) -> Result<Finding<RowOf<C>>, PatternError> {
        let mut rows = self.rows(self.look(step), on).await?;
        let Some(row) = rows.pop() else { return Ok(Finding::Absent) };
        if !rows.is_empty() {
            let (table, key) = self.names();
            return Err(PatternError::NotUnique { table, key });
        }
        Ok(match C::found(&row).map_err(PatternError::Database)? {
            found::OPEN => Finding::Moved,
            found::SAME => Finding::Answer(Answer::AlreadyApplied(row)),
            found::DIFFERENT => Finding::Answer(Answer::Rejected(Why::Different(row))),
            _ => Finding::Answer(Answer::Rejected(Why::Unmet(row))),
        })
    }

    async fn rows(&self, statement: String, on: &mut C) -> Result<Vec<RowOf<C>>, PatternError> {
        let statement = format!("{statement} /*{} */", self.types);
        on.rows(statement, self.arguments.clone()).await.map_err(|error| self.describe(error))
    }

    /// Reports mistakes of the caller before any statement is sent.
    fn check(&mut self, step: &Step) -> Result<(), PatternError> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }
        if self.key.is_empty() {
            return Err(PatternError::NoKey(self.table.plain().to_owned()));
        }
        if step.sets.is_empty() && step.write != Write::Insert {
            return Err(PatternError::NothingToSet);
        }
        Ok(())
    }

    fn describe(&self, error: sqlx::Error) -> PatternError {
        if error.as_database_error().is_some_and(C::lacks_index) {
            let (table, key) = self.names();
            return PatternError::NoUniqueIndex { table, key };
        }
        PatternError::of(error)
    }

    fn missing(&self) -> Answer<RowOf<C>> {
        Answer::Rejected(Why::Missing(self.table.plain().to_owned()))
    }

    /// The table and the columns of the key, for error messages.
    fn names(&self) -> (String, String) {
        let key: Vec<_> = self.key.iter().map(|column| column.name.plain()).collect();
        (self.table.plain().to_owned(), key.join(", "))
    }
}
