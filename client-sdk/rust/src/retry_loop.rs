//! A submission from its beginning to its end: tries, waits, and whatever is done if nobody knows how it ended.
//!
//! Nothing is decided here: [`decide`] does that, and this obeys.

use std::time::Duration;

use onceward_api::{Code, Outcome};
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument as _;

use crate::attempt::{Sending, Tried};
use crate::client::Client;
use crate::credential::Credential;
use crate::credential_state::Held;
use crate::error::{Error, Kind};
use crate::on_unknown::Undecided;
use crate::rejection::Refusal;
use crate::response::Answer;
use crate::retry_decision::{Came, Carries, History, Next, Terms, Wait, decide};
use crate::submission::Plan;
use crate::transport::Transport;

/// Sends a submission, as often as it takes and is allowed.
pub(crate) async fn submit<T: Transport>(client: &Client, transport: &mut T, plan: Plan) -> Result<Answer, Error> {
    plan.credential.allows(plan.undecided)?;
    let (host, path) = plan.url.as_ref().map_or(("", ""), |url| (url.host_str().unwrap_or_default(), url.path()));
    let span = tracing::info_span!(target: "onceward_client", "submission", method = %plan.method, host, path);
    let is_resumed = matches!(plan.credential, Credential::Resumed(_));
    let (history, begun) = (History::new(is_resumed), Instant::now());
    Run { client, transport, plan, history, begun, is_refused: false }.go().instrument(span).await
}

struct Run<'a, T> {
    client: &'a Client,
    transport: &'a mut T,
    plan: Plan,
    history: History,
    begun: Instant,
    /// Whether the caller's credentials were refused last time.
    is_refused: bool,
}

impl<T: Transport> Run<'_, T> {
    async fn go(mut self) -> Result<Answer, Error> {
        let mut held = self.in_time(Held::get(self.client, &self.plan)).await?;
        loop {
            let (tried, carries) = self.send(&held, false).await;
            let Some(came) = tried.came() else {
                self.history.tries += 1;
                return Err(self.ended(tried, &held));
            };
            let next = decide(&self.history, came, &self.terms(carries));
            self.history = self.history.and(came, next);
            tracing::debug!(target: "onceward_client", number = self.history.tries, ?came, ?next, "tried");
            if let Came::Refused {
                code: Code::TokenExpired | Code::TokenStale | Code::TokenInvalid | Code::TokenMalformed,
                ..
            } = came
            {
                held.distrust();
            }
            match next {
                Next::Same(wait) => pause(wait).await,
                Next::Refresh => self.is_refused = true,
                Next::NewToken(wait) => {
                    pause(wait).await;
                    self.in_time(held.renew()).await.map_err(|error| error.with_tries(self.history.tries))?;
                }
                Next::Unknown => return self.undecided(tried, carries, held).await,
                Next::Give | Next::Refused | Next::NotSent => return self.give(tried, &held),
            }
        }
    }

    /// Hands over an answer, or says why there is none.
    fn give(&self, tried: Tried, held: &Held) -> Result<Answer, Error> {
        match tried {
            Tried::Answer(answered) => Ok(Answer::new(answered, self.history.tries)),
            tried => Err(self.ended(tried, held)),
        }
    }

    fn ended(&self, tried: Tried, held: &Held) -> Error {
        let error = match tried {
            Tried::Over(error) if self.history.in_doubt() => error.in_doubt(),
            Tried::Over(error) => error,
            Tried::Refused(refusal) => Error::refused(refusal),
            Tried::NotSent(error) => {
                let says =
                    "no connection could be made, so nothing was sent: is the server running, and the address right?";
                Error::new(Kind::NotSent, says).with_source(Some(error))
            }
            tried => return self.unknown(tried, held),
        };
        error.with_key(held.key()).with_tries(self.history.tries)
    }

    /// Nobody knows whether it happened: what is to be done then?
    async fn undecided(mut self, tried: Tried, carries: Carries, held: Held) -> Result<Answer, Error> {
        let unknown = self.unknown(tried, &held);
        // Without its body it is not sent either: whoever does not know the question might run that.
        let may_ask = carries != Carries::Nothing && self.plan.body.is_repeatable();
        if self.plan.undecided != Undecided::Ask || !may_ask {
            return Err(unknown);
        }
        self.ask(&held).await.unwrap_or(Err(unknown))
    }

    /// Asks what is on record until that is an answer, or tells nothing. `None` if there is nothing better to say.
    async fn ask(&mut self, held: &Held) -> Option<Result<Answer, Error>> {
        for asked in 0..self.plan.limits.tries {
            let (tried, _) = self.send(held, true).await;
            let after = match tried {
                Tried::Answer(answered) if answered.outcome == Some(Outcome::Replayed) => {
                    return Some(Ok(Answer::new(answered, self.history.tries)));
                }
                Tried::Refused(refusal) if refusal.problem.retry == onceward_api::Retry::Same => refusal.retry_after,
                Tried::Refused(refusal) => return Some(Err(self.looked(refusal, held))),
                // Whoever does not know the question has told nothing.
                Tried::Answer(..) | Tried::Over(_) => return None,
                Tried::NotSent(_) | Tried::Lost(_) => None,
            };
            let wait = Wait::before(asked, after, &self.plan.limits).drawn(fastrand::f64());
            if wait >= self.left() {
                return None;
            }
            sleep(wait).await;
        }
        None
    }

    /// What is on record does not settle it.
    fn looked(&self, refusal: Refusal, held: &Held) -> Error {
        let says = match refusal.problem.code {
            Code::ReplyNotKept => return self.ended(Tried::Refused(refusal), held),
            Code::NotFound => {
                "nothing is on record of it. It may not have happened, or not yet: something may still be on its way. \
                 Send it again under the same key, or look again later."
            }
            _ => "what is on record does not say whether it happened. Find out before it is sent again.",
        };
        let error = Error::new(Kind::Unknown, format!("it is not known whether it happened: {says}"));
        error.with_refusal(Some(refusal)).with_key(held.key()).with_tries(self.history.tries)
    }

    fn unknown(&self, tried: Tried, held: &Held) -> Error {
        let next = match held.key() {
            Some(_) => "Find out, or send the same again under the same key (`Error::key`, `Submission::resume`).",
            None => "Find out before it is sent again: with another token it would be another submission.",
        };
        let (why, refusal, source) = match tried {
            Tried::Refused(refusal) => {
                let code = refusal.problem.code;
                (format!("the last try was refused ({code}), and an earlier one may have run"), Some(refusal), None)
            }
            Tried::Answer(answered) => (format!("the answer was {}", answered.response.status()), None, None),
            Tried::NotSent(error) => ("an earlier try had no answer".to_owned(), None, Some(error)),
            Tried::Lost(error) => ("the answer was lost".to_owned(), None, Some(error)),
            Tried::Over(error) => return error,
        };
        let error = Error::new(Kind::Unknown, format!("it is not known whether it happened: {why}. {next}"));
        error.with_refusal(refusal).with_source(source).with_key(held.key()).with_tries(self.history.tries)
    }

    /// Sends it once. Says what it still carried in the end.
    async fn send(&mut self, held: &Held, looks: bool) -> (Tried, Carries) {
        let inner = self.client.inner();
        let authorization = match &inner.authorization {
            None => None,
            Some(authorization) => {
                match authorization.value(std::mem::take(&mut self.is_refused), self.limit()).await {
                    Ok(value) => Some(value),
                    Err(error) => {
                        let error = Error::misuse(format!("the caller's credentials could not be had: {error}"));
                        return (Tried::Over(error), held.carries());
                    }
                }
            }
        };
        let limit = self.limit();
        let mut sending = Sending {
            transport: &mut *self.transport,
            http: &inner.http,
            key_header: &inner.key_header,
            plan: &mut self.plan,
            held,
            authorization,
            carries: held.carries(),
            looks,
            in_doubt: self.history.in_doubt(),
            outcome: None,
            submits: true,
        };
        let tried = timeout(limit, sending.send()).await;
        (tried.unwrap_or_else(|_| sending.late(limit)), sending.carries)
    }

    fn terms(&self, carries: Carries) -> Terms {
        Terms {
            limits: self.plan.limits,
            left: self.left().saturating_sub(self.kept_for_asking()),
            repeatable: self.plan.body.is_repeatable(),
            carries,
            insists: self.plan.undecided == Undecided::Retry,
            refreshable: self.client.inner().authorization.is_some(),
        }
    }

    /// How long a try may take.
    fn limit(&self) -> Duration {
        self.plan.limits.try_timeout.min(self.left()).max(Duration::from_millis(1))
    }

    fn left(&self) -> Duration {
        self.plan.limits.deadline.saturating_sub(self.begun.elapsed())
    }

    fn kept_for_asking(&self) -> Duration {
        if self.plan.undecided == Undecided::Ask { self.plan.limits.deadline / 4 } else { Duration::ZERO }
    }

    /// Waits for a token, until the deadline.
    async fn in_time<V>(&self, get: impl Future<Output = Result<V, Error>>) -> Result<V, Error> {
        let late = |_| {
            let says =
                "there was no token within the deadline, so nothing was sent: is `/token` slow, or its rate limit low?";
            Error::new(Kind::NoToken, says)
        };
        timeout(self.left(), get).await.map_err(late)?
    }
}

async fn pause(wait: Wait) {
    sleep(wait.drawn(fastrand::f64())).await;
}
