//! CPU time of Redis and its client per verb of the store, sent one by one and in batches of 32: with scripts, with native compare-and-swap
//! commands if the server has them, and with `GETDEL`, which earlier versions used to redeem a token.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use onceward::store::{Compared, Redis, Room, Store};
use onceward::{Kind, Ticket};
use redis::aio::MultiplexedConnection;
use redis::{Client, Pipeline};
use tokio::runtime::Builder;

use crate::markdown_table::MarkdownTable;
use crate::redis_server::RedisServer;
use crate::redis_servers::downloaded;
use crate::statistics::Spread;
use crate::{Failure, cpu, machine};

/// The measured batch sizes.
const BATCHES: [usize; 2] = [1, 32];
/// Number of verbs of each kind in a round, a multiple of every batch size.
const VERBS: usize = 32 * 1_000;
const MINUTE: Duration = Duration::from_secs(60);
/// A record of the size of a claim.
const CLAIM: [u8; 102] = [7; 102];

/// The measured commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Insert,
    /// Deletes an issued token without a comparison, as earlier versions did.
    GetDel,
    Remove,
    /// Replaces an issued token by a claim.
    Swap,
    Look,
}

impl Verb {
    const ALL: [Self; 5] = [Self::Insert, Self::GetDel, Self::Remove, Self::Swap, Self::Look];

    fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::GetDel => "GETDEL (former redeem)",
            Self::Remove => "remove",
            Self::Swap => "swap",
            Self::Look => "look",
        }
    }

    /// How the store sends the verb.
    fn sent_by(self, is_native: bool) -> &'static str {
        match self {
            Self::Remove | Self::Swap if is_native => "native command",
            Self::Remove | Self::Swap => "script",
            Self::Insert | Self::GetDel | Self::Look => "command",
        }
    }
}

/// CPU time per verb, in microseconds.
#[derive(Debug, Clone, Copy)]
struct VerbCost {
    redis: f64,
    client: f64,
}

/// Measures the servers: the installed one, and those with native commands that `make setup` downloads.
pub(crate) fn measure(rounds: u64) -> Result<(), Failure> {
    let [one, many] =
        BATCHES.map(|batch| [format!("Redis µs, batch of {batch}"), format!("client µs, batch of {batch}")]);
    let mut table = MarkdownTable::new(["server", "verb", "by", &one[0], &one[1], &many[0], &many[1]]);
    let mut versions = Vec::new();
    let installed = (PathBuf::from("redis-server"), &[false][..]);
    let native = [downloaded("redis-8.10")?, downloaded("valkey-9.0")?].map(|program| (program, &[false, true][..]));
    for (program, with_native) in [installed].into_iter().chain(native) {
        let version = RedisServer::start_program(&program)?.version()?;
        for (verb, is_native) in
            Verb::ALL.iter().flat_map(|verb| with_native.iter().map(move |native| (*verb, *native)))
        {
            if is_native && !matches!(verb, Verb::Remove | Verb::Swap) {
                continue;
            }
            let [one, many] = BATCHES.map(|batch| cells(&program, verb, is_native, batch, rounds));
            let ([one_redis, one_client], [many_redis, many_client]) = (one?, many?);
            let names = [version.as_str(), verb.name(), verb.sent_by(is_native)];
            println!("{} measured", names.join(", "));
            let [server, verb, by] = names.map(str::to_owned);
            table.push([server, verb, by, one_redis, one_client, many_redis, many_client]);
        }
        versions.push(version);
    }
    println!("\n{}", machine::line(&versions));
    println!("\nCPU time per verb, medians of {rounds} rounds of {VERBS} verbs (least–most)\n\n{table}");
    Ok(())
}

/// CPU time of Redis and of its client.
fn cells(program: &Path, verb: Verb, is_native: bool, batch: usize, rounds: u64) -> Result<[String; 2], Failure> {
    let runs = (0..rounds).map(|_| run(program, verb, is_native, batch)).collect::<Result<Vec<_>, _>>()?;
    let cell = |figure: fn(&VerbCost) -> f64| Some(Spread::of(runs.iter().map(figure))?.cell(1));
    Ok([cell(|run| run.redis).ok_or("no rounds")?, cell(|run| run.client).ok_or("no rounds")?])
}

fn run(program: &Path, verb: Verb, is_native: bool, batch: usize) -> Result<VerbCost, Failure> {
    let redis = RedisServer::start_program(program)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = Redis::open(&redis.url())?.timeout(MINUTE);
        let store = if is_native { store } else { store.without_native_commands() };
        let mut raw = Client::open(redis.url())?.get_multiplexed_async_connection().await?;
        let tickets: Vec<_> = (0..VERBS).map(|number| Ticket::of(Kind::Token, &number.to_be_bytes())).collect();
        warm_up(&store).await?;
        if verb != Verb::Insert {
            for tickets in tickets.chunks(32) {
                join_all(tickets.iter().map(|ticket| store.insert(ticket, b"\x02i", MINUTE, Room::Free))).await;
            }
        }
        let before = [cpu::of_threads(redis.id())?, cpu::of_threads(std::process::id())?];
        for tickets in tickets.chunks(batch) {
            send(&store, &mut raw, verb, tickets).await?;
        }
        let after = [cpu::of_threads(redis.id())?, cpu::of_threads(std::process::id())?];
        let micros = |at: usize| after[at].saturating_sub(before[at]).as_secs_f64() * 1e6 / VERBS as f64;
        Ok(VerbCost { redis: micros(0), client: micros(1) })
    })
}

/// Waits until this thread has its own connection, and the server has cached the scripts.
async fn warm_up(store: &Redis) -> Result<(), Failure> {
    for number in 0..300_usize {
        let ticket = Ticket::of(Kind::Key, &number.to_be_bytes());
        store.insert(&ticket, b"\x02i", MINUTE, Room::Free).await?;
        store.swap(&ticket, b"\x02i", &CLAIM, MINUTE, Room::Reserved, None).await?;
        store.remove(&ticket, &CLAIM, None).await?;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Sends one batch, and fails if a reply is not the expected one.
async fn send(store: &Redis, raw: &mut MultiplexedConnection, verb: Verb, tickets: &[Ticket]) -> Result<(), Failure> {
    let is_done = match verb {
        Verb::Insert => {
            let inserted = join_all(tickets.iter().map(|ticket| store.insert(ticket, b"\x02i", MINUTE, Room::Free)));
            inserted.await.into_iter().all(|found| matches!(found, Ok(None)))
        }
        Verb::GetDel => {
            let mut pipeline = Pipeline::with_capacity(tickets.len());
            tickets.iter().for_each(|ticket| {
                pipeline.cmd("GETDEL").arg(ticket.name("onceward"));
            });
            let taken: Vec<Option<Vec<u8>>> = pipeline.query_async(raw).await?;
            taken.iter().all(Option::is_some)
        }
        Verb::Remove => {
            let removed = join_all(tickets.iter().map(|ticket| store.remove(ticket, b"\x02i", None)));
            removed.await.into_iter().all(|removed| matches!(removed, Ok(Compared::Done)))
        }
        Verb::Swap => {
            let swap = |ticket| store.swap(ticket, b"\x02i", &CLAIM, MINUTE, Room::Reserved, None);
            join_all(tickets.iter().map(swap)).await.into_iter().all(|swapped| matches!(swapped, Ok(Compared::Done)))
        }
        Verb::Look => {
            let found = join_all(tickets.iter().map(|ticket| store.look(ticket)));
            found.await.into_iter().all(|found| matches!(found, Ok(Some(_))))
        }
    };
    if is_done { Ok(()) } else { Err(format!("unexpected reply to {verb:?}").into()) }
}
