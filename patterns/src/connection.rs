//! Where PostgreSQL and SQLite differ. The statements themselves are the same for both.

use sqlx::{Connection, Database, PgConnection, SqliteConnection};

use self::driver::Driver;

/// A connection that changes can be made on: [`PgConnection`] or [`SqliteConnection`], by itself or as `&mut *transaction`.
pub trait SqlConnection: Driver {}

impl SqlConnection for PgConnection {}
impl SqlConnection for SqliteConnection {}

/// The database of a connection.
pub(super) type DatabaseOf<C> = <C as Connection>::Database;
/// What is bound to a statement.
pub(super) type ArgumentsOf<C> = <DatabaseOf<C> as Database>::Arguments;
/// A row as sqlx gives it.
pub type RowOf<C> = <DatabaseOf<C> as Database>::Row;

pub(super) mod driver {
    use async_trait::async_trait;
    use sqlx::error::{BoxDynError, DatabaseError};
    use sqlx::{Arguments as _, AssertSqlSafe, Connection, Database, Error, PgConnection, Row as _, SqliteConnection};

    use super::{ArgumentsOf, RowOf};
    use crate::error::is_prepared_for_another_shape;

    /// The column that says how a row was found.
    pub(crate) const FOUND: &str = "onceward_found";

    #[async_trait]
    pub trait Driver:
        Connection<Database: Database<Connection = Self, Arguments: Clone, ArgumentBuffer: Default>>
    {
        /// The rows that a statement gives. Its text is made of checked names and of nothing that anybody sent.
        async fn rows(&mut self, statement: String, arguments: ArgumentsOf<Self>) -> Result<Vec<RowOf<Self>>, Error>;

        /// Binds one more number.
        fn bind(arguments: &mut ArgumentsOf<Self>, number: i64) -> Result<(), BoxDynError>;

        /// How this row was found.
        fn found(row: &RowOf<Self>) -> Result<i32, Error>;

        /// Whether there is no unique index over the key.
        fn lacks_index(error: &dyn DatabaseError) -> bool;
    }

    #[async_trait]
    impl Driver for PgConnection {
        async fn rows(&mut self, statement: String, arguments: ArgumentsOf<Self>) -> Result<Vec<RowOf<Self>>, Error> {
            let rows = sqlx::query_with(AssertSqlSafe(statement), arguments).fetch_all(&mut *self).await;
            if rows.as_ref().is_err_and(is_prepared_for_another_shape) {
                // So that it is prepared anew when it is asked again.
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
            // Prepared anew each time, which costs little here: one that is kept goes on with the columns that the table had.
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
