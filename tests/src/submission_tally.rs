//! Counts how the submissions of the Rust SDK ended, each checked against its effects.

use onceward_client::{Error, Response};

/// Counts of results.
#[derive(Debug, Default)]
pub struct SubmissionTally {
    /// Submissions that received the response of their run.
    pub answered: usize,
    /// Submissions whose outcome is unknown.
    pub unknown: usize,
    /// Submissions that were rejected.
    pub refused: usize,
    /// Effects in the ledger.
    pub effects: usize,
}

impl SubmissionTally {
    /// Counts one result.
    ///
    /// # Panics
    /// If the submission took effect twice, or if its result contradicts its effects.
    pub fn count(&mut self, order: &str, end: &Result<Response, Error>, effects: usize) {
        self.effects += effects;
        assert!(effects <= 1, "{order} took effect {effects} times: {end:?}");
        match end {
            Ok(answer) if answer.status().is_success() => {
                self.answered += 1;
                assert_eq!(effects, 1, "{order} was answered: {answer:?}");
            }
            // A proxy responded with 429 until the attempts were used up.
            Ok(answer) => {
                self.refused += 1;
                assert_eq!((answer.status().as_u16(), effects), (429, 0), "{order}: {answer:?}");
            }
            Err(error) if error.is_unknown() => self.unknown += 1,
            Err(error) => {
                self.refused += 1;
                assert!(!error.is_duplicate(), "no other client has sent {order}: {error:?}");
                assert!(error.is_in_progress() || error.ran_nothing() && effects == 0, "{order}: {error:?}");
            }
        }
    }

    /// Number of submissions.
    pub fn total(&self) -> usize {
        self.answered + self.unknown + self.refused
    }
}
