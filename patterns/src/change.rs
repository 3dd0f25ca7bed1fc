//! A change to one row: which row, and what is to be in it.

use sqlx::encode::{Encode, IsNull};
use sqlx::error::BoxDynError;
use sqlx::types::Type;
use sqlx::{Arguments as _, Database, TypeInfo as _};

use super::PatternError;
use super::connection::{ArgumentsOf, DatabaseOf, SqlConnection};
use super::name::Name;

/// A change to one row, which its key names. What kind of change it is, the verb says that ends it.
///
/// Values are bound, whatever is in them, and may be of any type that sqlx can send; [`with`](Self::with) says which can be compared. Names of tables and columns are
/// checked and quoted: they are written as the database has them, and a mistake is an error of the verb.
#[must_use = "a change does nothing before its verb"]
pub struct Change<C: SqlConnection> {
    pub(super) table: Name,
    pub(super) key: Vec<Column>,
    pub(super) data: Vec<Column>,
    pub(super) noted: Vec<Column>,
    pub(super) arguments: ArgumentsOf<C>,
    /// What the parameters are, in their order.
    pub(super) types: String,
    pub(super) problem: Option<PatternError>,
}

/// A column, and the number of the parameter that goes with it.
pub(super) struct Column {
    pub(super) name: Name,
    pub(super) place: usize,
}

impl<C: SqlConnection> Change<C> {
    /// A change to a row of this table, which may be written with its schema: `shop.orders`.
    pub fn to(table: &str) -> Self {
        let (table, problem) = match Name::of_table(table) {
            Ok(table) => (table, None),
            Err(problem) => (Name::default(), Some(problem)),
        };
        let (key, data, noted, arguments) = (Vec::new(), Vec::new(), Vec::new(), ArgumentsOf::<C>::default());
        Self { table, key, data, noted, arguments, types: String::new(), problem }
    }

    /// Which row it is: a column of its primary key, or of a unique one. Called once for each column of it.
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

    /// What is to be in a column. Where the same was done before, it is compared: other content is another intention.
    ///
    /// It is compared with what the column holds. A type that has no equality cannot be compared (`json`: use `jsonb`), and what the column
    /// rounds is never the same again (an `f64` in a `real`, more digits than a `numeric(6, 2)` has): round it before, or
    /// [note](Self::noting) it.
    pub fn with<'v, T>(mut self, column: &str, value: T) -> Self
    where
        T: Encode<'v, DatabaseOf<C>> + Type<DatabaseOf<C>>,
    {
        let bound = self.bind(column, value);
        let column = self.or_problem(bound);
        self.data.extend(column);
        self
    }

    /// What is to be in a column and differs from try to try, such as the time: it is written and never compared.
    pub fn noting<'v, T>(mut self, column: &str, value: T) -> Self
    where
        T: Encode<'v, DatabaseOf<C>> + Type<DatabaseOf<C>>,
    {
        let bound = self.bind(column, value);
        let column = self.or_problem(bound);
        self.noted.extend(column);
        self
    }

    /// A column that a verb names, which must not be among those that were given values.
    pub(super) fn column(&self, column: &str) -> Result<Name, PatternError> {
        let name = Name::parse(column)?;
        let mut known = self.key.iter().chain(&self.data).chain(&self.noted);
        if known.any(|known| known.name == name) {
            return Err(PatternError::Twice(column.to_owned()));
        }
        Ok(name)
    }

    /// A parameter that goes with no column, or with several, as it stands in a statement.
    pub(super) fn parameter<'v, T>(&mut self, column: &str, value: T) -> Result<String, PatternError>
    where
        T: Encode<'v, DatabaseOf<C>> + Type<DatabaseOf<C>>,
    {
        Ok(format!("${}", self.place(column, value)?))
    }

    /// The same for a number.
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

    /// Binds a value, and gives the number of its parameter.
    fn place<'v, T>(&mut self, column: &str, value: T) -> Result<usize, PatternError>
    where
        T: Encode<'v, DatabaseOf<C>> + Type<DatabaseOf<C>>,
    {
        let kind = value.produces().unwrap_or_else(T::type_info);
        let bound = self.arguments.add(value);
        self.placed(column, kind.name(), bound)
    }

    /// sqlx knows a prepared statement by its text alone, and takes it to want the same types again: so the text names them.
    fn placed(&mut self, column: &str, kind: &str, bound: Result<(), BoxDynError>) -> Result<usize, PatternError> {
        bound.map_err(|source| PatternError::Value { column: column.to_owned(), source })?;
        self.types.push(' ');
        self.types.extend(kind.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }));
        Ok(self.arguments.len())
    }

    /// The first mistake is kept for the verb to tell.
    fn or_problem(&mut self, bound: Result<Column, PatternError>) -> Option<Column> {
        bound.map_err(|problem| self.problem.get_or_insert(problem)).ok()
    }
}
