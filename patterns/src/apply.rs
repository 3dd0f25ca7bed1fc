//! One statement decides. Only where it changed nothing is the row looked at, to say why.

use super::change::Change;
use super::connection::{RowOf, SqlConnection};
use super::statement::{Step, Write, found};
use super::{Answer, PatternError, Why};

/// How often a row may change between the statement and the look, before the caller is asked to come again.
const ROUNDS: usize = 10;

/// How the row stands to a change that was not made.
enum Finding<R> {
    Absent,
    /// It has changed since, so that the change could be made now.
    Moved,
    Answer(Answer<R>),
}

impl<C: SqlConnection> Change<C> {
    /// Makes the change, or finds out why not.
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

    /// The answer that the row gives as it is, if there is one.
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
        on.rows(statement, self.arguments.clone()).await.map_err(|error| self.told(error))
    }

    /// What was asked wrongly is told before anything is sent.
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

    fn told(&self, error: sqlx::Error) -> PatternError {
        if error.as_database_error().is_some_and(C::lacks_index) {
            let (table, key) = self.names();
            return PatternError::NoUniqueIndex { table, key };
        }
        PatternError::of(error)
    }

    fn missing(&self) -> Answer<RowOf<C>> {
        Answer::Rejected(Why::Missing(self.table.plain().to_owned()))
    }

    /// The table and the columns of the key, for people.
    fn names(&self) -> (String, String) {
        let key: Vec<_> = self.key.iter().map(|column| column.name.plain()).collect();
        (self.table.plain().to_owned(), key.join(", "))
    }
}
