//! The result of a change.

/// The result of a change. A repetition is a result, not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a change may have been rejected"]
pub enum Answer<R> {
    /// The change was applied now. Contains the new row.
    Applied(R),
    /// The change was applied before. Contains the current row.
    AlreadyApplied(R),
    /// The change was not applied, for this reason.
    Rejected(Why<R>),
}

/// The reason why a change was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why<R> {
    /// This table has no such row.
    Missing(String),
    /// The change was applied before with other content: the key was used for two intentions. Contains the existing row.
    Different(R),
    /// The row does not meet the condition of the change: it is newer, in another status, or has too little left.
    Unmet(R),
}

impl<R> Answer<R> {
    /// True if the change was applied, now or before.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Applied(_) | Self::AlreadyApplied(_))
    }

    /// The row, if there is one.
    pub fn row(&self) -> Option<&R> {
        match self {
            Self::Applied(row) | Self::AlreadyApplied(row) => Some(row),
            Self::Rejected(Why::Different(row) | Why::Unmet(row)) => Some(row),
            Self::Rejected(Why::Missing(_)) => None,
        }
    }

    /// Converts the row with `read`.
    pub fn map<T>(self, read: impl FnOnce(R) -> T) -> Answer<T> {
        match self {
            Self::Applied(row) => Answer::Applied(read(row)),
            Self::AlreadyApplied(row) => Answer::AlreadyApplied(read(row)),
            Self::Rejected(Why::Missing(table)) => Answer::Rejected(Why::Missing(table)),
            Self::Rejected(Why::Different(row)) => Answer::Rejected(Why::Different(read(row))),
            Self::Rejected(Why::Unmet(row)) => Answer::Rejected(Why::Unmet(read(row))),
        }
    }
}
