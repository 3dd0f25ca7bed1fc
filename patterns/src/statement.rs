//! The text of statements: the same for every database, built from checked names and numbered parameters only.
//!
//! The row has the alias `this`, and columns are read as `this."column"`: SQLite treats an unknown quoted name without an alias as a string
//! literal, and would compare with that.

use super::change::{Change, Column};
use super::connection::SqlConnection;
use super::connection::driver::FOUND;
use super::name::Name;

/// The statement of a verb.
pub(super) struct Step {
    pub(super) write: Write,
    /// The columns and the expressions that they are set to.
    pub(super) sets: Vec<(Name, String)>,
    /// The condition for the change to be applied.
    pub(super) open: String,
    /// The condition under which the change was applied before, if the content is the same too.
    pub(super) reached: String,
}

/// The kind of statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    /// The row must not exist.
    Insert,
    /// The row may exist.
    Upsert,
    /// The row must exist.
    Update,
}

/// The state of a row that a statement did not change, as a number in both databases.
pub(super) mod found {
    /// The change can be applied now: the row was changed concurrently.
    pub(crate) const OPEN: i32 = 0;
    /// The change was applied before, with this content.
    pub(crate) const SAME: i32 = 1;
    /// The change was applied before, with other content.
    pub(crate) const DIFFERENT: i32 = 2;
    /// The condition of the change is not met.
    pub(crate) const UNMET: i32 = 3;
}

impl<C: SqlConnection> Change<C> {
    /// The statement that applies the change and returns the row, or no row if it cannot be applied.
    pub(super) fn statement(&self, step: &Step) -> String {
        let (table, open) = (&self.table, &step.open);
        match step.write {
            Write::Update => {
                let (sets, key, one) = (sets(step), self.is_it(), self.is_one_row());
                format!("UPDATE {table} AS this SET {sets} WHERE {key} AND ({open}) AND {one} RETURNING *")
            }
            Write::Insert => format!("{} DO NOTHING RETURNING *", self.insert(step)),
            Write::Upsert => format!("{} DO UPDATE SET {} WHERE {open} RETURNING *", self.insert(step), sets(step)),
        }
    }

    /// The query for the row and its state. Two rows are enough to detect that the key is not unique.
    pub(super) fn look(&self, step: &Step) -> String {
        let (table, key, same, Step { open, reached, .. }) = (&self.table, self.is_it(), self.is_same(), step);
        let (is_open, is_same, differs, unmet) = (found::OPEN, found::SAME, found::DIFFERENT, found::UNMET);
        format!(
            "SELECT this.*, CASE WHEN {open} THEN {is_open} WHEN ({reached}) AND {same} THEN {is_same} \
             WHEN {reached} THEN {differs} ELSE {unmet} END AS {FOUND} FROM {table} AS this WHERE {key} LIMIT 2"
        )
    }

    /// The columns of `with` and `noting`, to be set.
    pub(super) fn given(&self) -> Vec<(Name, String)> {
        self.data.iter().chain(&self.noted).map(set).collect()
    }

    /// The columns of `noting`, to be set.
    pub(super) fn given_to_note(&self) -> Vec<(Name, String)> {
        self.noted.iter().map(set).collect()
    }

    /// The condition that the row has the values of `with`. NULL equals NULL here.
    pub(super) fn is_same(&self) -> String {
        let same = |column: &Column| format!("this.{} IS NOT DISTINCT FROM ${}", column.name, column.place);
        let all: Vec<_> = self.data.iter().map(same).collect();
        if all.is_empty() { "TRUE".to_owned() } else { format!("({})", all.join(" AND ")) }
    }

    fn is_it(&self) -> String {
        let is = |column: &Column| format!("this.{} = ${}", column.name, column.place);
        self.key.iter().map(is).collect::<Vec<_>>().join(" AND ")
    }

    /// The condition that the key identifies exactly one row.
    fn is_one_row(&self) -> String {
        let (table, key) = (&self.table, self.is_it());
        format!("(SELECT count(*) FROM (SELECT 1 FROM {table} AS this WHERE {key} LIMIT 2) AS rows_of_key) = 1")
    }

    fn insert(&self, step: &Step) -> String {
        let all: Vec<_> = self.key.iter().map(set).chain(step.sets.iter().cloned()).collect();
        let names: Vec<_> = all.iter().map(|(name, _)| name.to_string()).collect();
        let values: Vec<_> = all.iter().map(|(_, value)| value.as_str()).collect();
        let (table, names, values, key) =
            (&self.table, names.join(", "), values.join(", "), &names[..self.key.len()].join(", "));
        format!("INSERT INTO {table} AS this ({names}) VALUES ({values}) ON CONFLICT ({key})")
    }
}

fn set(column: &Column) -> (Name, String) {
    (column.name.clone(), format!("${}", column.place))
}

fn sets(step: &Step) -> String {
    step.sets.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", ")
}
