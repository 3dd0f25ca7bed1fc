//! A Redis cluster of three masters without replicas, started by the benchmark.

use std::time::Duration;

use crate::Failure;
use crate::redis_server::{RedisServer, free_port};

/// Number of hash slots.
const SLOTS: usize = 16_384;
/// Number of masters.
const MASTERS: usize = 3;

/// A running cluster.
pub(crate) struct Cluster(Vec<RedisServer>);

impl Cluster {
    /// Starts a cluster, and waits until it serves every slot.
    pub(crate) fn start() -> Result<Self, Failure> {
        let nodes = (0..MASTERS).map(|_| RedisServer::start_with(arguments)).collect::<Result<_, _>>()?;
        let mut cluster = Self(nodes);
        cluster.join()?;
        cluster.wait()?;
        Ok(cluster)
    }

    fn join(&mut self) -> Result<(), Failure> {
        for number in 0..MASTERS {
            let (first, last) = (SLOTS * number / MASTERS, SLOTS * (number + 1) / MASTERS - 1);
            let node = &mut self.0[number];
            node.ask::<()>(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1))?;
            node.ask::<()>(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"))?;
            let bus: Vec<String> = node.ask("CONFIG GET cluster-port")?;
            let meet = format!("CLUSTER MEET 127.0.0.1 {} {}", node.port(), bus.last().ok_or("no cluster-port")?);
            self.0[0].ask::<()>(&meet)?;
        }
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "no request waits for this thread")]
    fn wait(&mut self) -> Result<(), Failure> {
        for _ in 0..1000 {
            let mut served = 0;
            for node in &mut self.0 {
                served += usize::from(node.ask::<String>("CLUSTER INFO")?.contains("cluster_state:ok"));
            }
            if served == MASTERS {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("the cluster does not serve every slot".into())
    }

    /// The URL of the cluster.
    pub(crate) fn url(&self) -> String {
        let nodes: Vec<_> = self.0.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+cluster://{}", nodes.join(","))
    }

    /// Deletes all records.
    pub(crate) fn forget(&mut self) -> Result<(), Failure> {
        self.0.iter_mut().try_for_each(RedisServer::forget)
    }
}

fn arguments() -> Result<Vec<String>, Failure> {
    let bus = free_port()?.to_string();
    Ok(["--cluster-enabled", "yes", "--cluster-port", &bus].map(str::to_owned).to_vec())
}
