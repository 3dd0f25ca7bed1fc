//! The text of statements: the same for every database, of checked names and numbered parameters alone.
//!
//! The row is always called `this`, and columns that are read are written `this."column"`: SQLite would take a bare quoted
//! name that it does not know for a text, and compare with that.

use super::change::{Change, Column};
use super::connection::SqlConnection;
use super::connection::driver::FOUND;
use super::name::Name;

/// What a verb asks of the database.
pub(super) struct Step {
    pub(super) write: Write,
    /// Columns and what they are set to.
    pub(super) sets: Vec<(Name, String)>,
    /// When the change can be made.
    pub(super) open: String,
    /// When it has been made, if the content is the same too.
    pub(super) reached: String,
}

/// Whether the row is there already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    /// It is not.
    Insert,
    /// It may be.
    Upsert,
    /// It is.
    Update,
}

/// How a row was found that a statement did not change. Numbers, since both databases have those.
pub(super) mod found {
    /// The change could be made now: something has moved since.
    pub(crate) const OPEN: i32 = 0;
    /// It has been made, with this content.
    pub(crate) const SAME: i32 = 1;
    /// It has been made, with other content.
    pub(crate) const DIFFERENT: i32 = 2;
    /// It cannot be made.
    pub(crate) const UNMET: i32 = 3;
}

impl<C: SqlConnection> Change<C> {
    /// Makes the change where it can be made, and gives the row; otherwise it gives nothing.
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

    /// The row as it is, and how that stands to the change. Two rows are enough to know that the key names several.
    pub(super) fn look(&self, step: &Step) -> String {
        let (table, key, same, Step { open, reached, .. }) = (&self.table, self.is_it(), self.is_same(), step);
        let (is_open, is_same, differs, unmet) = (found::OPEN, found::SAME, found::DIFFERENT, found::UNMET);
        format!(
            "SELECT this.*, CASE WHEN {open} THEN {is_open} WHEN ({reached}) AND {same} THEN {is_same} \
             WHEN {reached} THEN {differs} ELSE {unmet} END AS {FOUND} FROM {table} AS this WHERE {key} LIMIT 2"
        )
    }

    /// What was given, to be set.
    pub(super) fn given(&self) -> Vec<(Name, String)> {
        self.data.iter().chain(&self.noted).map(set).collect()
    }

    /// What was given to be noted, to be set.
    pub(super) fn given_to_note(&self) -> Vec<(Name, String)> {
        self.noted.iter().map(set).collect()
    }

    /// Whether the row has what was given. NULL is the same as NULL here.
    pub(super) fn is_same(&self) -> String {
        let same = |column: &Column| format!("this.{} IS NOT DISTINCT FROM ${}", column.name, column.place);
        let all: Vec<_> = self.data.iter().map(same).collect();
        if all.is_empty() { "TRUE".to_owned() } else { format!("({})", all.join(" AND ")) }
    }

    fn is_it(&self) -> String {
        let is = |column: &Column| format!("this.{} = ${}", column.name, column.place);
        self.key.iter().map(is).collect::<Vec<_>>().join(" AND ")
    }

    /// Nothing is changed by a key that names several rows.
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
