//! Two guards around one handler that claim the same: the inner one finds the claim of the outer one, which waits for the inner.

use onceward_api::Code;

use super::super::asked::Asked;
use super::super::passage::Passage;
use super::Rules;
use crate::meter::Row;
use crate::refusal::Refusal;
use crate::ticket::{Kind, Ticket};

const DETAIL: &str = "There are two guards around this route for the same submission, so nothing ran. The log of the server names \
                      both; one of them has to be removed.";

impl Rules {
    /// The refusal, unless the claim in the way is that of a guard further out on the same request. That is an error in the
    /// application, and the client receives 500 instead of `in_progress` for ever.
    pub(super) async fn unless_nested(&self, refusal: Refusal, asked: &Asked, outer: &Passage) -> Refusal {
        let Ok(Some(ticket)) = self.guard.ticket(&self.policy, &asked.intent()).await else { return refusal };
        match outer.holding(&ticket) {
            Some(holder) if self.is_claimed_by(holder, &ticket).await => {
                tracing::error!(
                    outer_policy = holder.policy(),
                    outer_action = holder.asked().action(),
                    inner_policy = Row::of(&self.policy).as_str(),
                    inner_action = asked.action(),
                    "two guards around one handler claim the same submission, so it never runs; remove one of them"
                );
                Refusal::new(Code::Internal).detail(DETAIL)
            }
            _ => refusal,
        }
    }

    /// Whether the outer guard's claim is in the store of this one, too: the same key may be claimed once in each of two stores. A
    /// token is known to one store only.
    async fn is_claimed_by(&self, holder: &Passage, ticket: &Ticket) -> bool {
        match holder.run() {
            Some(run) if ticket.kind() != Kind::Token => self.guard.is_claimed_by(ticket, run).await.unwrap_or(false),
            _ => true,
        }
    }
}
