//! The events of a schedule, and the conditions that they must never break.

use onceward_api::Code;

use crate::run_id::RunId;

/// One event of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HistoryEvent {
    /// A caller sent a request.
    Requested,
    /// A caller sent the token to a plain route.
    RequestedPlain,
    /// Such a request was rejected, or the store did not execute its command.
    NotUsedPlain,
    /// The store failed with an unknown outcome.
    Unknown,
    NotExecuted,
    Ran(usize),
    /// The work of this run took effect.
    Effect(usize),
    /// This run was recorded as done.
    Final(usize),
    /// This run has lost its claim.
    Lost(usize),
    /// This run ended with an unknown outcome.
    Open(usize),
    Back(usize),
    /// A caller received the reply of this run.
    Replayed(usize),
    Rejected(&'static str),
    /// A caller with an attempt stopped retrying and does not know whether it has a claim.
    GaveUp,
    Killed,
}

#[derive(Default)]
pub(super) struct History {
    pub(super) events: Vec<HistoryEvent>,
    runs: Vec<RunId>,
}

impl History {
    pub(super) fn record(&mut self, event: HistoryEvent) {
        self.events.push(event);
    }

    /// Returns the number of a run, which does not depend on its random id.
    pub(super) fn number(&mut self, run: RunId) -> usize {
        self.runs.iter().position(|known| *known == run).unwrap_or_else(|| {
            self.runs.push(run);
            self.runs.len() - 1
        })
    }

    fn count(&self, is: impl Fn(&HistoryEvent) -> bool) -> usize {
        self.events.iter().filter(|event| is(event)).count()
    }

    pub(super) fn effects(&self) -> usize {
        self.count(|event| matches!(event, HistoryEvent::Effect(_)))
    }

    pub(super) fn finals(&self) -> Vec<usize> {
        self.events
            .iter()
            .filter_map(|event| if let HistoryEvent::Final(run) = event { Some(*run) } else { None })
            .collect()
    }

    pub(super) fn has_run(&self) -> bool {
        self.count(|event| matches!(event, HistoryEvent::Ran(_))) > 0
    }

    /// Returns true if a run ended with an unknown outcome.
    pub(super) fn has_open_end(&self) -> bool {
        self.count(|event| matches!(event, HistoryEvent::Open(_) | HistoryEvent::GaveUp | HistoryEvent::Killed)) > 0
    }

    /// Returns true if the claim of another caller may be, or may have been, in the store: other requests were not rejected. A claim
    /// that was made and could not be held is there until it is released, although its caller received `NotExecuted`.
    fn has_cause(&self, is_held: bool) -> bool {
        let requested = self.count(|event| *event == HistoryEvent::Requested);
        let out = self.count(|event| match event {
            HistoryEvent::NotExecuted => !is_held,
            HistoryEvent::Rejected(_) | HistoryEvent::Replayed(_) => true,
            _ => false,
        });
        // The rejected request itself is among the counted ones.
        requested - out > 1
    }

    /// Returns the number of plain requests that may have used the token.
    pub(super) fn plain_uses(&self) -> usize {
        let requested = self.count(|event| *event == HistoryEvent::RequestedPlain);
        requested - self.count(|event| *event == HistoryEvent::NotUsedPlain)
    }

    /// Checks a rejection on a plain route. The rejected request is counted, and has not used the token.
    pub(super) fn check_plain_rejection(&self, code: Code) -> Result<(), String> {
        let has_cause = self.plain_uses() > 1 || self.count(|event| *event == HistoryEvent::Requested) > 0;
        if code == Code::TokenUsed && has_cause { Ok(()) } else { Err(format!("rejected with {code} without a cause")) }
    }

    /// Checks a rejection on a route with a key or a remembered token.
    ///
    /// If a command may arrive twice, the claim of a caller that was rejected since may come back for one lease.
    pub(super) fn check_rejection(&self, code: Code, is_held: bool, has_duplicates: bool) -> Result<(), String> {
        match code {
            Code::InProgress | Code::OutcomeUnknown if has_duplicates || self.has_cause(is_held) => Ok(()),
            Code::TokenUsed if self.plain_uses() > 0 => Ok(()),
            Code::InProgress | Code::OutcomeUnknown | Code::TokenUsed => {
                Err(format!("rejected with {code} without a cause"))
            }
            other => Err(format!("unexpected rejection: {other}")),
        }
    }

    /// Checks the conditions that hold at every moment.
    pub(super) fn check(&self, is_exact: bool) -> Result<(), String> {
        if is_exact && self.effects() > 1 {
            return Err(format!("{} effects", self.effects()));
        }
        if self.finals().len() > 1 {
            return Err("two runs were recorded as done".to_owned());
        }
        for event in &self.events {
            if let HistoryEvent::Replayed(run) = event
                && !self.events.contains(&HistoryEvent::Effect(*run))
            {
                return Err(format!("the reply of run {run} was replayed, but the run took no effect"));
            }
        }
        Ok(())
    }
}
