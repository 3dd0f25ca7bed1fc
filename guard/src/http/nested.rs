//! Detects two guards around one handler that claim the same ticket: the inner guard finds the claim of the outer one, which waits for
//! the inner one.

use onceward_api::Code;

use super::decide::Route;
use super::guarded_request::GuardedRequest;
use super::request::ParsedRequest;
use crate::language::Language;
use crate::rejection::Rejection;
use crate::ticket::{Kind, Ticket};

const DETAIL: &str = "Two guards around this route claim the same submission, so the handler did not run. The server log names both: \
                      remove one of them.";

const CHINESE: &str =
    "该路由外有两个守卫占用同一次提交，因此处理函数没有执行。服务器日志中列出了这两个守卫，请移除其中一个。";

impl Route {
    /// Returns the rejection, unless the conflicting claim belongs to an outer guard on the same request. That is an error in the
    /// application, and the client receives a 500 instead of `in_progress` forever.
    pub(super) async fn unless_nested(
        &self,
        rejection: Rejection,
        parsed: &ParsedRequest,
        outer: &GuardedRequest,
    ) -> Rejection {
        let Ok(Some(ticket)) = self.guard.ticket_of(&self.policy, &parsed.intent()).await else { return rejection };
        match outer.holding(&ticket) {
            Some(holder) if self.is_claimed_by(holder, &ticket).await => {
                tracing::error!(
                    target: "onceward::http",
                    outer_policy = holder.policy(),
                    outer_action = holder.parsed().action(),
                    inner_policy = self.policy.label().as_str(),
                    inner_action = parsed.action(),
                    "two guards around one handler claim the same submission, so it never runs; remove one of them"
                );
                Rejection::new(Code::Internal).detail(DETAIL).detail_in(Language::SIMPLIFIED_CHINESE, CHINESE)
            }
            _ => rejection,
        }
    }

    /// Returns whether the outer guard's claim is in this guard's store: two stores may each hold a claim for the same key. A token
    /// exists in one store only.
    async fn is_claimed_by(&self, holder: &GuardedRequest, ticket: &Ticket) -> bool {
        match holder.run() {
            Some(run) if ticket.kind() != Kind::Token => self.guard.is_claimed_by(ticket, run).await.unwrap_or(false),
            _ => true,
        }
    }
}
