//! Verdicts: run, replay or reject.

use crate::pass::Pass;
use crate::rejection::{Duplicate, Rejection};
use crate::reply::Reply;

/// The decision on a submission. A duplicate is a verdict, never an error.
#[derive(Debug)]
pub enum Verdict {
    /// Run the submission, and settle the pass.
    Run(Pass),
    /// Do not run the submission: respond with the stored response of the first run.
    Replay(Reply),
    /// Do not run the submission, for this reason.
    Reject(Rejection),
}

impl From<Duplicate> for Verdict {
    fn from(duplicate: Duplicate) -> Self {
        match duplicate {
            Duplicate::Replay(reply) => Self::Replay(reply),
            Duplicate::Reject(rejection) => Self::Reject(rejection),
        }
    }
}

impl From<Rejection> for Verdict {
    fn from(rejection: Rejection) -> Self {
        Self::Reject(rejection)
    }
}
