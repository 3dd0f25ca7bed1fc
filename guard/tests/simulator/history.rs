//! What happened in a schedule, written down by whoever saw it, and what must never have happened.

use onceward_api::Code;

use crate::run_id::RunId;

/// One event of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HistoryEvent {
    /// Somebody asked.
    Asked,
    /// A caller asked for the token on a route that remembers nothing.
    AskedPlain,
    /// Such a request was rejected, or the store did nothing for it.
    NotUsedPlain,
    /// The store failed, and nobody knows what it has done.
    Unknown,
    NotExecuted,
    Ran(usize),
    /// The work of this run took effect.
    Effect(usize),
    /// This run was recorded as done.
    Final(usize),
    /// This run has lost its claim.
    Lost(usize),
    /// This run ended without a word that can be relied on.
    Open(usize),
    Back(usize),
    /// Somebody was given the reply of this run.
    Replayed(usize),
    Rejected(&'static str),
    /// A caller with an attempt, which asks no more, does not know whether it has a claim.
    GaveUp,
    Killed,
}

#[derive(Default)]
pub(super) struct History {
    pub(super) told: Vec<HistoryEvent>,
    runs: Vec<RunId>,
}

impl History {
    pub(super) fn tell(&mut self, told: HistoryEvent) {
        self.told.push(told);
    }

    /// The number of a run, which is the same however the dice name it.
    pub(super) fn number(&mut self, run: RunId) -> usize {
        self.runs.iter().position(|known| *known == run).unwrap_or_else(|| {
            self.runs.push(run);
            self.runs.len() - 1
        })
    }

    fn count(&self, is: impl Fn(&HistoryEvent) -> bool) -> usize {
        self.told.iter().filter(|told| is(told)).count()
    }

    pub(super) fn effects(&self) -> usize {
        self.count(|told| matches!(told, HistoryEvent::Effect(_)))
    }

    pub(super) fn finals(&self) -> Vec<usize> {
        self.told
            .iter()
            .filter_map(|told| if let HistoryEvent::Final(run) = told { Some(*run) } else { None })
            .collect()
    }

    pub(super) fn has_run(&self) -> bool {
        self.count(|told| matches!(told, HistoryEvent::Ran(_))) > 0
    }

    /// Whether a run ended so that nobody can tell what it did.
    pub(super) fn has_open_end(&self) -> bool {
        self.count(|told| matches!(told, HistoryEvent::Open(_) | HistoryEvent::GaveUp | HistoryEvent::Killed)) > 0
    }

    /// Whether somebody else's claim may be, or may have been, in the store: others have asked, and were not refused. A claim
    /// that was made and could not be held is there until it is taken back, although nothing was done in the end.
    fn has_cause(&self, is_held: bool) -> bool {
        let asked = self.count(|told| *told == HistoryEvent::Asked);
        let out = self.count(|told| match told {
            HistoryEvent::NotExecuted => !is_held,
            HistoryEvent::Rejected(_) | HistoryEvent::Replayed(_) => true,
            _ => false,
        });
        // The one who is being told is among those who have asked.
        asked - out > 1
    }

    /// How many requests on a route that remembers nothing may have used the token.
    pub(super) fn plain_uses(&self) -> usize {
        let asked = self.count(|told| *told == HistoryEvent::AskedPlain);
        asked - self.count(|told| *told == HistoryEvent::NotUsedPlain)
    }

    /// Checks a rejection on a route that remembers nothing. The rejected caller has asked, and has not used the token.
    pub(super) fn check_plain_refusal(&self, code: Code) -> Result<(), String> {
        let has_cause = self.plain_uses() > 1 || self.count(|told| *told == HistoryEvent::Asked) > 0;
        if code == Code::TokenUsed && has_cause { Ok(()) } else { Err(format!("{code} was told without a cause")) }
    }

    /// What must not be told at this moment.
    ///
    /// Where a command may arrive twice, a claim may come back for a lease whose owner has been refused since.
    pub(super) fn check_refusal(&self, code: Code, is_held: bool, has_duplicates: bool) -> Result<(), String> {
        match code {
            Code::InProgress | Code::OutcomeUnknown if has_duplicates || self.has_cause(is_held) => Ok(()),
            Code::TokenUsed if self.plain_uses() > 0 => Ok(()),
            Code::InProgress | Code::OutcomeUnknown | Code::TokenUsed => {
                Err(format!("{code} was told without a cause"))
            }
            other => Err(format!("{other} was told")),
        }
    }

    /// What must hold at every moment.
    pub(super) fn check(&self, is_exact: bool) -> Result<(), String> {
        if is_exact && self.effects() > 1 {
            return Err(format!("{} effects", self.effects()));
        }
        if self.finals().len() > 1 {
            return Err("two runs were recorded as done".to_owned());
        }
        for told in &self.told {
            if let HistoryEvent::Replayed(run) = told
                && !self.told.contains(&HistoryEvent::Effect(*run))
            {
                return Err(format!("the reply of run {run} was given out, which took no effect"));
            }
        }
        Ok(())
    }
}
