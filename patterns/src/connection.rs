//! The differences between PostgreSQL and SQLite. The statements are the same for both.

use sqlx::{Connection, Database, PgConnection, SqliteConnection};

use self::driver::Driver;

/// A connection for changes: [`PgConnection`] or [`SqliteConnection`], or `&mut *transaction`.
pub trait SqlConnection: Driver {}

impl SqlConnection for PgConnection {}
impl SqlConnection for SqliteConnection {}

/// The database of a connection.
pub(super) type DatabaseOf<C> = <C as Connection>::Database;
/// The bound parameters of a statement.
pub(super) type ArgumentsOf<C> = <DatabaseOf<C> as Database>::Arguments;
/// The row type of sqlx for a connection.
pub type RowOf<C> = <DatabaseOf<C> as Database>::Row;

pub(super) mod driver {
    use async_trait::async_trait;
    use sqlx::error::{BoxDynError, DatabaseError};
    use sqlx::{Arguments as _, AssertSqlSafe, Connection, Database, Error, PgConnection, Row as _, SqliteConnection};

    use super::{ArgumentsOf, RowOf};
    use crate::error::is_prepared_for_another_shape;

    /// The column with the state of a row, one of the constants in `found`.
    pub(crate) const FOUND: &str = "onceward_found";

    #[async_trait]
    pub trait Driver:
        Connection<Database: Database<Connection = Self, Arguments: Clone, ArgumentBuffer: Default>>
    {
        /// Runs a statement and returns its rows. Its text consists of checked names and contains no user input.
        async fn rows(&mut self, statement: String, arguments: ArgumentsOf<Self>) -> Result<Vec<RowOf<Self>>, Error>;

        /// Binds a number.
        fn bind(arguments: &mut ArgumentsOf<Self>, number: i64) -> Result<(), BoxDynError>;

        /// Returns the state of a row.
        fn found(row: &RowOf<Self>) -> Result<i32, Error>;

        /// Returns true if there is no unique index over the key.
        fn lacks_index(error: &dyn DatabaseError) -> bool;
    }

    #[async_trait]
    impl Driver for PgConnection {
        async fn rows(&mut self, statement: String, arguments: ArgumentsOf<Self>) -> Result<Vec<RowOf<Self>>, Error> {
            let rows = sqlx::query_with(AssertSqlSafe(statement), arguments).fetch_all(&mut *self).await;
            if rows.as_ref().is_err_and(is_prepared_for_another_shape) {
                // The next call prepares the statement again.
                self.clear_cached_statements().await?;
            }
            rows
        }

        fn bind(arguments: &mut ArgumentsOf<Self>, number: i64) -> Result<(), BoxDynError> {
            arguments.add(number)
        }

        fn found(row: &RowOf<Self>) -> Result<i32, Error> {
            row.try_get(FOUND)
        }

        fn lacks_index(error: &dyn DatabaseError) -> bool {
            error.code().is_some_and(|code| code == "42P10")
        }
    }

    #[async_trait]
    impl Driver for SqliteConnection {
        async fn rows(&mut self, statement: String, arguments: ArgumentsOf<Self>) -> Result<Vec<RowOf<Self>>, Error> {
            // Prepared each time, which is cheap on SQLite: a cached statement would keep the columns that the table had.
            sqlx::query_with(AssertSqlSafe(statement), arguments).persistent(false).fetch_all(self).await
        }

        fn bind(arguments: &mut ArgumentsOf<Self>, number: i64) -> Result<(), BoxDynError> {
            sqlx::Arguments::add(arguments, number)
        }

        fn found(row: &RowOf<Self>) -> Result<i32, Error> {
            row.try_get(FOUND)
        }

        fn lacks_index(error: &dyn DatabaseError) -> bool {
            error.message().starts_with("ON CONFLICT clause does not match")
        }
    }
}
