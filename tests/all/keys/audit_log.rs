//! Log lines of a run: the handler's lines carry the run id, each step writes one line, and no line contains the raw key.

use std::io::{self, Write};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use actix_web::middleware::NormalizePath;
use actix_web::{App, HttpResponse, HttpServer, web};
use onceward::actix::protect::KeyPolicy;
use onceward::actix::{Protect, SubjectFrom};
use onceward::store::Memory;
use onceward::{Guard, KeyRules, RunId};
use onceward_tests::actix_handlers::{panics, purchase};
use onceward_tests::client::send;
use onceward_tests::key_routes::{KEY, buy, serve, serve_one, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::polling::until;
use onceward_tests::raw_http::post;
use onceward_tests::shop::{STATUS, TAKES, TestServer};
use serde_json::Value;
use tracing_subscriber::fmt::MakeWriter;

/// All log output of this process since the first access.
pub(crate) static LOG: LazyLock<Log> = LazyLock::new(|| {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
    tracing::subscriber::set_global_default(subscriber).expect("no other subscriber is set in this process");
    log
});

#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Returns the lines with this target that contain `with`.
    pub(crate) fn lines(&self, target: &str, with: &str) -> Vec<Value> {
        let lines = self.text();
        let lines = lines.lines().filter(|line| line.contains(with)).map(|line| serde_json::from_str(line).unwrap());
        lines.filter(|line: &Value| line["target"] == target).collect()
    }

    /// Returns event, ticket and run of each step of an action.
    fn steps(&self, action: &str) -> Vec<[String; 3]> {
        let field = |line: &Value, name: &str| line["fields"][name].as_str().unwrap_or_default().to_owned();
        let code = |line: &Value| line["fields"]["code"].as_str().map_or(String::new(), |code| format!(" {code}"));
        let events = self.lines("onceward::event", action);
        let step = |line: &Value| [field(line, "event") + &code(line), field(line, "ticket"), field(line, "run")];
        events.iter().filter(|line| line["fields"]["action"] == action).map(step).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn by_key(rules: KeyRules, action: &str) -> Protect<KeyPolicy> {
    LazyLock::force(&LOG);
    Protect::key(&Guard::new(Memory::new()), SubjectFrom::anonymous(), rules).action(action)
}

#[tokio::test]
async fn handler_receives_its_run_id_and_logs_under_it() {
    let (ledger, action) = (Ledger::new(), "named-run");
    let protect = by_key(KeyRules::retryable(), action);
    let served = serve(&ledger, move |config| {
        let handler = async |run: RunId| {
            tracing::info!(target: "shop", "at once");
            actix_web::rt::time::sleep(Duration::from_millis(5)).await;
            tracing::info!(target: "shop", "insert into orders");
            HttpResponse::Ok().body(run.to_string())
        };
        let open = async |run: RunId| HttpResponse::Ok().body(run.to_string());
        config
            .service(web::resource("/it").wrap(protect.clone()).route(web::post().to(handler)))
            .service(web::resource("/open").route(web::post().to(open)));
    });
    let mut runs = Vec::new();
    for key in ["a", "b"] {
        let answer = buy(&served.url, "/it", key, "").await;
        let run = String::from_utf8(answer.body.to_vec()).unwrap();
        assert_eq!(buy(&served.url, "/it", key, "").await.body, answer.body);
        let lines = LOG.lines("shop", &run);
        assert_eq!(lines.len(), 2, "before and after the await: {lines:?}");
        for line in lines {
            assert_eq!((&line["span"]["run"], &line["span"]["action"]), (&run.clone().into(), &action.into()));
        }
        runs.push(run);
    }
    assert_ne!(runs[0], runs[1]);
    let (one, other) = (buy(&served.url, "/open", "a", "").await, buy(&served.url, "/open", "a", "").await);
    assert_eq!((one.status, other.status), (200, 200), "the handler runs without the guard");
    assert_ne!(one.body, other.body, "each run still has its own id");
}

#[tokio::test]
async fn each_step_logs_one_line_without_the_raw_key() {
    let (ledger, raw) = (Ledger::new(), "raw-key-4711");
    for (at, (rules, status, steps)) in [
        (KeyRules::retryable(), 200, vec!["claimed", "completed"]),
        (KeyRules::retryable(), 503, vec!["claimed", "released", "claimed", "released"]),
        (KeyRules::retryable(), 504, vec!["claimed", "unknown", "refused in_progress"]),
        (KeyRules::at_most_once(), 504, vec!["claimed", "unknown", "refused outcome_unknown"]),
    ]
    .into_iter()
    .enumerate()
    {
        let action = format!("stepping-{at}");
        let served = serve_one(&ledger, by_key(rules, &action));
        for _ in 0..2 {
            send(under(&served.url, "/it", raw, "").header(STATUS, status)).await;
        }
        let logged = LOG.steps(&action);
        assert_eq!(logged.iter().map(|step| &step[0]).collect::<Vec<_>>(), steps, "{action}");
        for [step, ticket, run] in &logged {
            assert!(ticket.starts_with("ticket:key:") && ticket.len() == 11 + 43, "{step}: {ticket}");
            assert_eq!((ticket, run.len()), (&logged[0][1], 36), "{step}");
        }
        let first = &logged[0][2];
        let is_one_run = logged.iter().all(|[_, _, run]| run == first);
        assert_eq!(is_one_run, status != 503, "a rejection names the run that blocks it");
    }
    let action = "stepping-reused";
    let served = serve_one(&ledger, by_key(KeyRules::retryable(), action));
    let slow = tokio::spawn(send(under(&served.url, "/it", raw, "slow").header(TAKES, 200)));
    until("the handler runs", Duration::from_secs(5), || async { ledger.count("begun") == 1 }).await;
    send(under(&served.url, "/it", raw, "").body("other")).await;
    slow.await.unwrap();
    let steps: Vec<_> = LOG.steps(action).into_iter().map(|[step, ..]| step).collect();
    assert_eq!(steps, ["claimed", "refused key_reused", "completed"]);
    assert!(!LOG.text().contains(raw), "a raw key was logged");
}

#[tokio::test]
async fn panicked_run_logs_an_unknown_outcome() {
    let (ledger, action) = (Ledger::new(), "stepping-panic");
    let protect = by_key(KeyRules::retryable(), action);
    let served = serve(&ledger, move |config| {
        config.service(web::resource("/it").wrap(protect.clone()).route(web::post().to(panics)));
    });
    assert_eq!(buy(&served.url, "/it", "k", "").await.said(), "500 internal");
    let steps: Vec<_> = LOG.steps(action).into_iter().map(|[step, ..]| step).collect();
    assert_eq!(steps, ["claimed", "unknown"]);
}

/// `NormalizePath` is wrapped first, so it runs after the guard has named the action by the path.
#[tokio::test]
async fn path_rewritten_inside_the_guard_is_logged_as_an_error() {
    let (_, ledger) = (LOG.text(), web::Data::new(Ledger::new()));
    for (action, path) in [(None, "/rewritten"), (Some("named"), "/rewritten/named")] {
        let guard = Guard::new(Memory::new());
        let protect = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
        let (protect, data) = (action.map_or(protect.clone(), |action| protect.action(action)), ledger.clone());
        let served = TestServer::run(move |listener| {
            let app = move || {
                let app = App::new().app_data(data.clone()).wrap(NormalizePath::trim()).wrap(protect.clone());
                app.service(web::resource(path).route(web::post().to(purchase)))
            };
            Ok(HttpServer::new(app).workers(1).disable_signals().listen(listener)?.run())
        });
        for target in [path.to_owned(), format!("{path}/"), format!("/{path}"), format!("{path}/")] {
            post(&served.url, &target, &[(KEY, &target)], "").await;
        }
    }
    let lines = LOG.lines("onceward::http", "/rewritten");
    let errors: Vec<_> = lines.iter().filter(|line| line["level"] == "ERROR").collect();
    assert_eq!(errors.len(), 1, "logged once: {errors:?}");
    let fields = &errors[0]["fields"];
    assert_eq!((&fields["seen"], &fields["rewritten"]), (&"/rewritten/".into(), &"/rewritten".into()));
}
