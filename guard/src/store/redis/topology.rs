//! The slot map, as the nodes of a cluster report it.

use redis::{Client, Cmd, ConnectionAddr, ConnectionInfo, FromRedisValue as _, RedisResult, Value};
use tokio::sync::watch;
use tokio::time::timeout;

use super::address::at;
use super::connection::{CONNECT, client, connect};
use super::error::TransportError;
use super::redirect::NodeAddress;

/// Queries the configured nodes, one after the other, until one returns a slot map. Also returns the host of that node.
pub(super) async fn ask_seeds(seeds: &[ConnectionInfo]) -> Result<(Value, String), TransportError> {
    let mut error = TransportError::TimedOut(CONNECT);
    // A server's error reply explains more than another server's being unreachable.
    let mut keep = |other: TransportError| {
        if other.is_conclusive() || !error.is_conclusive() {
            error = other;
        }
    };
    for seed in seeds {
        let asked = async {
            let (ignored, _) = watch::channel(0);
            let mut connection = connect(&client(seed.clone())?, 0, &ignored).await?;
            slots().query_async::<Value>(&mut connection).await
        };
        match timeout(CONNECT, asked).await {
            Ok(Ok(answer)) if ranges(&answer, "").is_some_and(|ranges| !ranges.is_empty()) => {
                return Ok((answer, host_of(seed)));
            }
            Ok(Ok(_)) => {
                keep(TransportError::NoConnection(format!("{} returned an empty slot map", seed.addr()).into()))
            }
            Ok(Err(error)) => keep(error.into()),
            Err(_) => keep(TransportError::TimedOut(CONNECT)),
        }
    }
    Err(error)
}

fn host_of(node: &ConnectionInfo) -> String {
    match node.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
        _ => String::new(),
    }
}

/// Returns a client for each master of the cluster.
pub(super) async fn masters(seeds: Vec<ConnectionInfo>) -> Result<Vec<Client>, TransportError> {
    let (answer, host) = ask_seeds(&seeds).await?;
    let ranges = ranges(&answer, &host).unwrap_or_default();
    let mut nodes: Vec<_> = ranges.into_iter().map(|(_, _, node)| node).collect();
    nodes.sort();
    nodes.dedup();
    let client = |(host, port)| client(seeds[0].clone().set_addr(at(seeds[0].addr(), host, port)));
    Ok(nodes.into_iter().map(client).collect::<RedisResult<_>>()?)
}

/// Returns the command that reads the slot map.
pub(super) fn slots() -> Cmd {
    let mut command = Cmd::new();
    command.arg("CLUSTER").arg("SLOTS");
    command
}

/// Reads a slot map: first slot, last slot and owner of each range.
pub(super) fn ranges(answer: &Value, asked: &str) -> Option<Vec<(usize, usize, NodeAddress)>> {
    let Value::Array(ranges) = answer else { return None };
    let mut read = Vec::with_capacity(ranges.len());
    for range in ranges {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = parts.as_slice() else { return None };
        let [host, Value::Int(port), ..] = master.as_slice() else { return None };
        let host = Option::<String>::from_redis_value_ref(host).ok()?.filter(|host| !host.is_empty());
        // A node that does not know a master's address cannot name it.
        if host.as_deref() == Some("?") {
            continue;
        }
        let node = (host.unwrap_or_else(|| asked.to_owned()), u16::try_from(*port).ok()?);
        read.push((usize::try_from(*first).ok()?, usize::try_from(*last).ok()?, node));
    }
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: Option<&str>, port: i64) -> Value {
        let host = host.map_or(Value::Nil, |host| Value::BulkString(host.into()));
        Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".into())])
    }

    #[test]
    fn slot_owners_are_parsed_from_cluster_slots() {
        let range = |first, last, master| Value::Array(vec![Value::Int(first), Value::Int(last), master]);
        let answer = Value::Array(vec![
            range(0, 5, node(Some("h1"), 1)),
            range(6, 9, node(Some(""), 2)),
            range(10, 11, node(None, 3)),
            range(12, 13, node(Some("?"), 4)),
        ]);
        let read = ranges(&answer, "me").unwrap();
        let wanted = [(0, 5, ("h1", 1)), (6, 9, ("me", 2)), (10, 11, ("me", 3))];
        assert_eq!(read.len(), wanted.len());
        for ((first, last, (host, port)), wanted) in read.iter().zip(wanted) {
            assert_eq!((*first, *last, (host.as_str(), *port)), wanted);
        }
        for strange in [Value::Nil, Value::Array(vec![Value::Nil]), Value::Array(vec![range(0, 1, Value::Nil)])] {
            assert!(ranges(&strange, "me").is_none(), "{strange:?}");
        }
    }
}
