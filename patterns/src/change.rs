//! A change to one row: its key and its new content.

use sqlx::encode::{Encode, IsNull};
use sqlx::error::BoxDynError;
use sqlx::types::Type;
use sqlx::{Arguments as _, Database, TypeInfo as _};

use super::PatternError;
use super::connection::{ArgumentsOf, DatabaseOf, SqlConnection};
use super::name::Name;

/// A change to one row, identified by its key. The verb that ends the call decides the kind of change.
///
/// Values are bound as parameters, and may have any type that sqlx can encode; [`with`](Self::with) says which can be compared. Names of
/// tables and columns are checked and quoted; write them as they are in the database. The verb returns the error of an invalid name.
#[must_use = "a change does nothing until a verb is called"]
pub struct Change<C: SqlConnection> {
    pub(super) table: Name,
    pub(super) key: Vec<Column>,
    pub(super) data: Vec<Column>,
    pub(super) noted: Vec<Column>,
    pub(super) arguments: ArgumentsOf<C>,
    /// The types of the parameters, in their order.
    pub(super) types: String,
    pub(super) problem: Option<PatternError>,
}

/// A column and the number of its parameter.
pub(super) struct Column {
    pub(super) name: Name,
    pub(super) place: usize,
}

impl<C: SqlConnection> Change<C> {
    /// Starts a change to a row of this table. The name may include a schema: `shop.orders`.
    pub fn to(table: &str) -> Self {
        let (table, problem) = match Name::of_table(table) {
            Ok(table) => (table, None),
            Err(problem) => (Name::default(), Some(problem)),
        };
        let (key, data, noted, arguments) = (Vec::new(), Vec::new(), Vec::new(), ArgumentsOf::<C>::default());
        Self { table, key, data, noted, arguments, types: String::new(), problem }
    }

    /// Identifies the row by a column of its primary key, or of a unique key. Call it once for each column of the key.
    pub fn key<'v, T>(mut self, column: &str, value: T) -> Self
    where
        T: Encode<'v, DatabaseOf<C>> + Type<DatabaseOf<C>>,
    {
        let bound = match value.encode_by_ref(&mut <DatabaseOf<C> as Database>::ArgumentBuffer::default()) {
            Ok(IsNull::Yes) => Err(PatternError::NullKey(column.to_owned())),
            _ => self.bind(column, value),
        };
        let column = self.or_problem(bound);
        self.key.extend(column);
        self
    }

    /// Sets a column. If the change was applied before, the value is compared: other content is another intention.
    ///
    /// The value is compared with the stored one. A type without equality cannot be compared (`json`: use `jsonb`), and a value that the
    /// column rounds is never equal (an `f64` in a `real`, more digits than a `numeric(6, 2)` has): round it first, or use
    /// [`noting`](Self::noting).
    pub fn with<'v, T>(mut self, column: &str, value: T) -> Self
    where
        T: Encode<'v, DatabaseOf<C>> + Type<DatabaseOf<C>>,
    {
        let bound = self.bind(column, value);
        let column = self.or_problem(bound);
        self.data.extend(column);
        self
    }

    /// Sets a column whose value differs between attempts, such as the time. It is written, and never compared.
    pub fn noting<'v, T>(mut self, column: &str, value: T) -> Self
    where
        T: Encode<'v, DatabaseOf<C>> + Type<DatabaseOf<C>>,
    {
        let bound = self.bind(column, value);
        let column = self.or_problem(bound);
        self.noted.extend(column);
        self
    }

    /// Checks a column that a verb names. It must not be one that already has a value.
    pub(super) fn column(&self, column: &str) -> Result<Name, PatternError> {
        let name = Name::parse(column)?;
        let mut known = self.key.iter().chain(&self.data).chain(&self.noted);
        if known.any(|known| known.name == name) {
            return Err(PatternError::Twice(column.to_owned()));
        }
        Ok(name)
    }

    /// Binds a parameter that belongs to no column, or to several, and returns its placeholder.
    pub(super) fn parameter<'v, T>(&mut self, column: &str, value: T) -> Result<String, PatternError>
    where
        T: Encode<'v, DatabaseOf<C>> + Type<DatabaseOf<C>>,
    {
        Ok(format!("${}", self.place(column, value)?))
    }

    /// Binds a number, and returns its placeholder.
    pub(super) fn number(&mut self, column: &str, number: i64) -> Result<String, PatternError> {
        let bound = C::bind(&mut self.arguments, number);
        Ok(format!("${}", self.placed(column, "number", bound)?))
    }

    fn bind<'v, T>(&mut self, column: &str, value: T) -> Result<Column, PatternError>
    where
        T: Encode<'v, DatabaseOf<C>> + Type<DatabaseOf<C>>,
    {
        let name = self.column(column)?;
        let place = self.place(column, value)?;
        Ok(Column { name, place })
    }

    /// Binds a value, and returns the number of its parameter.
    fn place<'v, T>(&mut self, column: &str, value: T) -> Result<usize, PatternError>
    where
        T: Encode<'v, DatabaseOf<C>> + Type<DatabaseOf<C>>,
    {
        let kind = value.produces().unwrap_or_else(T::type_info);
        let bound = self.arguments.add(value);
        self.placed(column, kind.name(), bound)
    }

    /// Adds the type to the text of the statement: sqlx caches prepared statements by their text alone, and assumes the same types.
    fn placed(&mut self, column: &str, kind: &str, bound: Result<(), BoxDynError>) -> Result<usize, PatternError> {
        bound.map_err(|source| PatternError::Value { column: column.to_owned(), source })?;
        self.types.push(' ');
        self.types.extend(kind.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }));
        Ok(self.arguments.len())
    }

    /// Stores the first mistake: the verb returns it.
    fn or_problem(&mut self, bound: Result<Column, PatternError>) -> Option<Column> {
        bound.map_err(|problem| self.problem.get_or_insert(problem)).ok()
    }
}
