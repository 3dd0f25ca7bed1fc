//! Requests with `Onceward-Look: true`, which receive the stored response, and never run or claim.

use futures_util::future::join_all;
use onceward_api::header::{IDEMPOTENT_REPLAYED, LOOK, TOKEN};
use onceward_tests::client::{Answer, send, token};
use onceward_tests::contract::contract_handler::RAISE;
use onceward_tests::contract::stack::Stack;
use onceward_tests::contract::stage::{LEASE, LONG, Stage};
use onceward_tests::key_routes::KEY;
use onceward_tests::polling::until;
use onceward_tests::shop::TAKES;
use reqwest::RequestBuilder;

use super::failures::{failed, stays_unknown};

/// The time that the handler takes while a look finds its claim, in milliseconds.
const SLOW: u64 = 700;

/// A submission: a protected route, the header that names the submission, and its value.
struct Submission(&'static str, &'static str, String);

impl Submission {
    /// One on each protected route.
    async fn of_each_route(stage: &Stage) -> [Self; 3] {
        let token = token(&stage.shop().url).await;
        let key = |path| Self(path, KEY, "k".to_owned());
        [key("/orders"), key("/retryable"), Self("/forms", TOKEN, token)]
    }

    fn request(&self, stage: &Stage) -> RequestBuilder {
        stage.shop().post(self.0).header(self.1, &self.2)
    }

    async fn look(&self, stage: &Stage) -> Answer {
        send(self.request(stage).header(LOOK, "true")).await
    }
}

pub(super) async fn look_receives_the_stored_response_and_never_runs(stack: Stack) {
    let stage = Stage::of(stack).open().await;
    let submissions = Submission::of_each_route(&stage).await;
    join_all(submissions.iter().map(|submission| finds_nothing(&stage, submission))).await;
    let slow = |submission: &Submission| submission.request(&stage).header(LOOK, "false").header(TAKES, SLOW);
    let runs = submissions.each_ref().map(|submission| tokio::spawn(send(slow(submission))));
    stage.recorded("begun", submissions.len()).await;
    join_all(submissions.iter().zip(runs).map(async |(submission, run)| {
        let running = submission.look(&stage).await;
        assert_eq!(running.said(), "409 in_progress", "{}: {running:?}", submission.0);
        let first = run.await.unwrap();
        assert_eq!(first.said(), "201 executed", "{}: a look claims nothing", submission.0);
        finds(&stage, submission, &first).await;
    }))
    .await;
    assert_eq!(stage.ledger.count("order"), submissions.len());
}

/// Asserts that there is no record of a submission, although it was looked up before.
async fn finds_nothing(stage: &Stage, submission: &Submission) {
    for _ in 0..2 {
        let nothing = submission.look(stage).await;
        assert_eq!(nothing.said(), "404 not_found", "{}: {nothing:?}", submission.0);
        assert_eq!(nothing.problem().status, 404);
    }
    let unreadable = send(submission.request(stage).header(LOOK, "perhaps")).await;
    assert_eq!(unreadable.said(), "400 bad_request", "{}: {unreadable:?}", submission.0);
}

/// Asserts that a look receives the response of the first run, each time.
async fn finds(stage: &Stage, submission: &Submission, first: &Answer) {
    for _ in 0..2 {
        let found = submission.look(stage).await;
        assert_eq!((found.said().as_str(), &found.body), ("201 replayed", &first.body), "{}: {found:?}", submission.0);
        assert_eq!(found.headers[IDEMPOTENT_REPLAYED], "true");
        assert_eq!(found.headers["location"], first.headers["location"]);
    }
}

/// A retryable key is free when the lease of the run is over: a look finds nothing then.
pub(super) async fn look_at_an_unknown_run_never_runs(stack: Stack) {
    let stage = Stage::of(stack).lease(LEASE).open().await;
    let submissions = Submission::of_each_route(&stage).await;
    join_all(submissions.iter().map(async |submission| {
        failed(&send(submission.request(&stage).header(RAISE, "unknown")).await, "unknown");
        if submission.0 == "/retryable" {
            becomes_free(&stage, submission).await;
        } else {
            stays_unknown(|| submission.request(&stage).header(LOOK, "true")).await;
        }
    }))
    .await;
    assert_eq!(stage.ledger.count("order"), submissions.len());
}

async fn becomes_free(stage: &Stage, submission: &Submission) {
    until("there is no record", LONG, || async {
        let said = submission.look(stage).await.said();
        assert!(["409 in_progress", "404 not_found"].contains(&said.as_str()), "{said}");
        said == "404 not_found"
    })
    .await;
}
