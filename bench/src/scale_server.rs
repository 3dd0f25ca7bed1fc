//! The server under load while its store holds many records: an order route by token and one by key.
//!
//! It runs in its own process, which the parent tells by lines of text to fill the store and to write token files.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use actix_web::{App, HttpServer, rt};
use onceward::actix::{Protect, SubjectFrom};
use onceward::store::{Memory, Redis, Sql};
use onceward::{Guard, KeyRules, Kind};
use tokio::runtime::{Builder, Runtime};

use crate::order_server::order_at;
use crate::scaled_store::StoreKind;
use crate::store_filler::{RecordFill, StoreFiller};
use crate::{Failure, token_files};

/// The command that runs this program as the server.
pub(crate) const SERVE: &str = "scale-serve";
/// The reply to a command that was executed.
pub(crate) const DONE: &str = "done";

const WORKERS: usize = 2;
/// Timeout of the store: other load on the machine may make a run slow, but not invalid.
const PATIENCE: Duration = Duration::from_secs(20);
/// The limit of the memory store: no run reaches it.
const LIMIT: usize = 64 * 1024 * 1024 * 1024;

/// The store of the server, what fills it, and where token files are written.
struct Commands {
    guard: Guard,
    filler: StoreFiller,
    folder: PathBuf,
    runtime: Runtime,
}

/// Prints the URL, and serves until standard input is closed.
pub(crate) fn serve(kind: StoreKind, address: &str, folder: &Path) -> Result<(), Failure> {
    rt::System::new().block_on(async {
        let (guard, filler) = open(kind, address).await?;
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        say(&format!("http://{}", listener.local_addr()?))?;
        let commands = Commands {
            guard: guard.clone(),
            filler,
            folder: folder.to_owned(),
            runtime: Builder::new_current_thread().enable_all().build()?,
        };
        std::thread::spawn(move || commands.obey());
        let app = move || {
            let token = Protect::token(&guard, SubjectFrom::anonymous());
            let key = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
            App::new().service(order_at("/orders").wrap(token)).service(order_at("/keyed").wrap(key))
        };
        Ok(HttpServer::new(app).workers(WORKERS).listen(listener)?.run().await?)
    })
}

async fn open(kind: StoreKind, address: &str) -> Result<(Guard, StoreFiller), Failure> {
    Ok(match kind {
        StoreKind::Memory => {
            let memory = Arc::new(Memory::new().limit(LIMIT));
            (Guard::new(Arc::clone(&memory)), StoreFiller::Memory(memory))
        }
        StoreKind::Redis => {
            (Guard::new(Redis::open(address)?.timeout(PATIENCE)), StoreFiller::Redis(address.to_owned()))
        }
        StoreKind::Sqlite => {
            (Guard::new(Sql::open_within(address, PATIENCE).await?), StoreFiller::Sqlite(address.to_owned()))
        }
        StoreKind::Postgres => {
            (Guard::new(Sql::open_within(address, PATIENCE).await?), StoreFiller::Postgres(address.to_owned()))
        }
    })
}

impl Commands {
    /// Executes each line, and prints `done` or the error. Exits when the parent has closed its end.
    fn obey(self) {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let done = self.runtime.block_on(self.execute(&line));
            let reply = done.map_or_else(|error| format!("failed: {error}"), |()| DONE.to_owned());
            if say(&reply).is_err() {
                break;
            }
        }
        std::process::exit(0);
    }

    async fn execute(&self, line: &str) -> Result<(), Failure> {
        match *line.split(' ').collect::<Vec<_>>() {
            ["tokens", count] => self.filler.fill(&RecordFill::of(Kind::Token).await?, count.parse()?).await,
            ["keys", count] => self.filler.fill(&RecordFill::of(Kind::Key).await?, count.parse()?).await,
            ["issue", per_thread] => token_files::write(&self.guard, &self.folder, per_thread.parse()?).await,
            // A separate guard has another secret: its tokens are only used as keys.
            ["foreign", per_thread] => {
                let other = Guard::new(Memory::new().limit(LIMIT));
                token_files::write(&other, &self.folder, per_thread.parse()?).await
            }
            _ => Err(format!("unknown command: {line}").into()),
        }
    }
}

fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    out.flush()
}
