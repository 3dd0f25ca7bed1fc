//! What became of a change.

/// What became of a change. A repetition is an answer, never an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a change may have been refused"]
pub enum Answer<R> {
    /// It was made now. The row is as it is since.
    Applied(R),
    /// It had been made before: this is the earlier result.
    AlreadyApplied(R),
    /// It was not made, and why.
    Rejected(Why<R>),
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why<R> {
    /// This table has no such row.
    Missing(String),
    /// The same was done before with other content: the key was used for two intentions. The row is the earlier one.
    Different(R),
    /// The row is not as the change needs it: newer, in another status, too little left.
    Unmet(R),
}

impl<R> Answer<R> {
    /// Whether the row is as was asked, now or since before.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Applied(_) | Self::AlreadyApplied(_))
    }

    /// The row that it speaks of, if there is one.
    pub fn row(&self) -> Option<&R> {
        match self {
            Self::Applied(row) | Self::AlreadyApplied(row) => Some(row),
            Self::Rejected(Why::Different(row) | Why::Unmet(row)) => Some(row),
            Self::Rejected(Why::Missing(_)) => None,
        }
    }

    /// The same, with what is read from the row in its place.
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
