//! What a thread asks in one turn of its event loop, sent together.
//!
//! A worker that has read thirty requests asks thirty things before it looks at its sockets again. Each of them by itself
//! would need a place in the connection's queue, a channel for its answer and a timer, which together cost more than the
//! command. So they are gathered, and one task carries them all. Nothing else changes by it: each command is sent at most
//! once, has its own deadline, and gets its own answer, be that an error of the server's. Those who want to know in which
//! life of the server it was done ask for that together, once, behind all of them.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, RedisResult, Value};
use tokio::time::{Instant, timeout, timeout_at};

use super::breaker::Breaker;
use super::deadline::Deadline;
use super::life::Life;
use super::link::{Failure, Question, Said};

/// How many are sent together at most: the first of them has its answer only when the last has.
const MOST: usize = 64;

/// What is asked together.
pub(super) struct Turn(Mutex<Gathered>);

#[derive(Default)]
struct Gathered {
    asked: Vec<Asked>,
    /// Nothing is added any more.
    is_under_way: bool,
}

/// One question.
struct Asked {
    stage: Stage,
    wants_life: bool,
    deadline: Deadline,
    waker: Option<Waker>,
}

enum Stage {
    Written(Question),
    Sent,
    Answered(Result<Said, Failure>),
    /// Nobody waits for it, or its answer has been fetched.
    Over,
}

impl Turn {
    /// Nothing has been asked yet.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    /// What carries it.
    pub(super) fn carried(self: &Arc<Self>, breaker: Arc<Breaker>) -> Carried {
        Carried { turn: Arc::clone(self), breaker }
    }

    /// Nothing is asked in this one.
    pub(super) fn over() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Gathered { asked: Vec::new(), is_under_way: true })))
    }

    /// Adds a command, or gives it back if it is too late for that, or there are enough.
    pub(super) fn ask(self: &Arc<Self>, question: Question, deadline: Deadline) -> Result<Answer, Question> {
        let mut gathered = self.gathered();
        if gathered.is_under_way || gathered.asked.len() >= MOST {
            return Err(question);
        }
        let wants_life = question.wants_life;
        gathered.asked.push(Asked { stage: Stage::Written(question), wants_life, deadline, waker: None });
        Ok(Answer { turn: Arc::clone(self), place: gathered.asked.len() - 1 })
    }

    /// The commands that somebody waits for, where they stand, and how many answers there will be.
    fn begin(&self) -> (Pipeline, Vec<usize>, usize) {
        let mut gathered = self.gathered();
        gathered.is_under_way = true;
        let mut commands = Pipeline::with_capacity(gathered.asked.len() + 1);
        let mut places = Vec::with_capacity(gathered.asked.len());
        let mut wants_life = false;
        for (place, asked) in gathered.asked.iter_mut().enumerate() {
            if matches!(asked.stage, Stage::Written(_))
                && let Stage::Written(question) = std::mem::replace(&mut asked.stage, Stage::Sent)
            {
                commands.add_command(question.command);
                places.push(place);
                wants_life |= asked.wants_life;
            }
        }
        if wants_life {
            commands.add_command(Life::command());
        }
        let answers = places.len() + usize::from(wants_life);
        (commands, places, answers)
    }

    /// When the first of those who still wait will have waited long enough; `None` if nobody does.
    fn next_deadline(&self) -> Option<Deadline> {
        let gathered = self.gathered();
        let waiting = gathered.asked.iter().filter(|asked| matches!(asked.stage, Stage::Sent));
        waiting.map(|asked| asked.deadline).min_by_key(|deadline| deadline.at)
    }

    /// Tells those whose time was over then, and says whether that speaks against the connection.
    fn give_up(&self, sent: Instant, then: Instant, breaker: &Breaker) -> bool {
        let mut is_suspect = false;
        self.settle(|asked| {
            for late in asked.iter_mut().filter(|asked| asked.deadline.at <= then) {
                let was_hurried = late.deadline.was_hurried(sent);
                if matches!(late.stage, Stage::Sent) && !was_hurried {
                    breaker.timed_out();
                    is_suspect |= Failure::TimedOut.is_suspect(was_hurried);
                }
                late.answer(Err(Failure::TimedOut));
            }
        });
        is_suspect
    }

    /// Hands out the answers, and says whether they speak against the connection.
    fn answer(&self, places: &[usize], answered: RedisResult<Vec<Value>>, breaker: &Breaker) -> bool {
        let mut is_suspect = false;
        let life = answered.as_ref().ok().and_then(|values| values.get(places.len())).map(Life::read);
        self.settle(|asked| {
            let mut answer = |place: usize, answer: RedisResult<Value>| {
                let answer = answer.map_err(Failure::from);
                is_suspect |= answer.as_ref().is_err_and(|failure| failure.is_suspect(false));
                if let Some(asked) = asked.get_mut(place) {
                    if matches!(asked.stage, Stage::Sent) && answer.as_ref().map_or_else(Failure::is_answer, |_| true) {
                        breaker.answered();
                    }
                    let life = life.filter(|_| asked.wants_life);
                    asked.answer(answer.map(|value| Said { value, life }));
                }
            };
            match answered {
                Ok(values) if values.len() >= places.len() => {
                    places.iter().zip(values).for_each(|(place, value)| answer(*place, value.extract_error()));
                }
                Ok(_) => places.iter().for_each(|place| answer(*place, Err(lost()))),
                Err(error) => places.iter().for_each(|place| answer(*place, Err(error.clone()))),
            }
        });
        is_suspect
    }

    /// Answers some, and wakes them when nothing is held that they could want.
    fn settle(&self, answer: impl FnOnce(&mut [Asked])) {
        let mut gathered = self.gathered();
        answer(&mut gathered.asked);
        let answered = gathered.asked.iter_mut().filter(|asked| matches!(asked.stage, Stage::Answered(_)));
        let wakers: Vec<_> = answered.filter_map(|asked| asked.waker.take()).collect();
        drop(gathered);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asked {
    fn answer(&mut self, answer: Result<Said, Failure>) {
        if matches!(self.stage, Stage::Written(_) | Stage::Sent) {
            self.stage = Stage::Answered(answer);
        }
    }
}

/// What is to be carried. If that ends in the middle, or is never begun, because the runtime ends, nobody is left waiting.
pub(super) struct Carried {
    turn: Arc<Turn>,
    breaker: Arc<Breaker>,
}

impl Carried {
    /// Sends everything that is still wanted over a connection, and hands out the answers. `report` is called when that
    /// connection is not to be trusted any longer.
    pub(super) async fn carry(self, mut connection: MultiplexedConnection, report: impl Fn()) {
        let turn = &self.turn;
        let (commands, places, count) = turn.begin();
        let sent = Instant::now();
        let mut answers = pin!(connection.send_packed_commands(&commands, 0, count));
        while let Some(deadline) = turn.next_deadline() {
            let answered = match timeout_at(deadline.at, &mut answers).await {
                Ok(answered) => answered,
                Err(_) => {
                    let now = Instant::now();
                    let Ok(answered) = timeout(deadline.beyond(), &mut answers).await else {
                        if turn.give_up(sent, now, &self.breaker) {
                            report();
                        }
                        continue;
                    };
                    answered
                }
            };
            if turn.answer(&places, answered, &self.breaker) {
                report();
            }
            return;
        }
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.turn.gathered().is_under_way = true;
        self.turn.settle(|asked| asked.iter_mut().for_each(|asked| asked.answer(Err(lost().into()))));
    }
}

/// Nobody can tell what has become of it.
fn lost() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

/// The answer to one question. Dropped before that is sent, it never is.
pub(super) struct Answer {
    turn: Arc<Turn>,
    place: usize,
}

impl Future for Answer {
    type Output = Result<Said, Failure>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut gathered = self.turn.gathered();
        let Some(asked) = gathered.asked.get_mut(self.place) else { return Poll::Ready(Err(lost().into())) };
        if matches!(asked.stage, Stage::Written(_) | Stage::Sent) {
            match &mut asked.waker {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut asked.stage, Stage::Over) {
            Stage::Answered(answer) => Poll::Ready(answer),
            _ => Poll::Ready(Err(lost().into())),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(asked) = self.turn.gathered().asked.get_mut(self.place) {
            asked.stage = Stage::Over;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// What is told of a connection over which nothing came that was sent when so much of its time was over.
    fn is_suspect_after(waited: Duration) -> bool {
        let turn = Turn::new();
        let deadline = Deadline::after(Duration::from_secs(10));
        let begun = Instant::now();
        let question = Question { command: Life::command(), key_at: 0, wants_life: false };
        let answer = turn.ask(question, deadline);
        assert_eq!(turn.begin().1, [0]);
        let is_suspect = turn.give_up(begun + waited, begun + Duration::from_secs(11), &Breaker::new("a test"));
        drop(answer);
        is_suspect
    }

    #[test]
    fn a_connection_is_suspect_if_what_had_the_time_was_not_answered_and_not_if_it_was_hurried() {
        assert!(is_suspect_after(Duration::from_secs(1)));
        assert!(!is_suspect_after(Duration::from_secs(8)));
    }
}
