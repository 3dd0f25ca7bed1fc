//! Open connections per client, and the share of all connections that one client may have.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::http::rate_limit::network;

/// Counts the open connections of each client. Any client may open connections up to half of the maximum; from there on, a client that
/// already has its share gets no more.
#[derive(Debug)]
pub(crate) struct ClientConnections {
    half: usize,
    /// Maximum per client once half of the connections are open; `None` if there is no limit.
    share: Option<usize>,
    trusted: Vec<IpNet>,
    open: usize,
    counts: HashMap<IpAddr, usize>,
}

/// A counted connection. It must be returned with [`ClientConnections::leave`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClientSlot(Option<IpAddr>);

impl ClientConnections {
    /// Creates a count for this many connections, of which a client may have `share`, at most half of them, so that there is room for
    /// another client. Trusted proxies have no limit: their connections belong to many clients.
    pub(crate) fn new(connections: usize, share: Option<usize>, trusted: Vec<IpNet>) -> Self {
        let half = connections.div_ceil(2);
        let share = share.map(|share| share.min(half));
        Self { half, share, trusted, open: 0, counts: HashMap::new() }
    }

    /// Counts a connection from this address, unless its client has too many.
    pub(crate) fn enter(&mut self, address: IpAddr) -> Option<ClientSlot> {
        let address = address.to_canonical();
        let client = Some(network(address)).filter(|_| self.share.is_some() && !self.is_trusted(address));
        if let (Some(client), Some(share)) = (client, self.share) {
            let count = self.counts.get(&client).copied().unwrap_or_default();
            if self.open >= self.half && count >= share {
                return None;
            }
            self.counts.insert(client, count + 1);
        }
        self.open += 1;
        Some(ClientSlot(client))
    }

    /// Removes a closed connection from the count.
    pub(crate) fn leave(&mut self, ClientSlot(client): &ClientSlot) {
        self.open -= 1;
        let Some(client) = client else { return };
        match self.counts.get_mut(client) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.counts.remove(client)),
        }
    }

    /// Returns the maximum per client.
    pub(crate) fn share(&self) -> usize {
        self.share.unwrap_or(usize::MAX)
    }

    fn is_trusted(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of `count` connections from this address are accepted.
    fn entered(clients: &mut ClientConnections, address: &str, count: usize) -> usize {
        (0..count).filter_map(|_| clients.enter(address.parse().unwrap())).count()
    }

    #[test]
    fn one_client_gets_half_of_the_connections() {
        for share in [10, 50, 80] {
            let mut clients = ClientConnections::new(100, Some(share), Vec::new());
            assert_eq!(entered(&mut clients, "10.0.0.1", 100), 50, "{share}");
        }
    }

    #[test]
    fn beyond_half_of_the_connections_each_client_gets_its_share() {
        let mut clients = ClientConnections::new(100, Some(10), Vec::new());
        assert_eq!(entered(&mut clients, "10.0.0.1", 100), 50);
        assert_eq!((entered(&mut clients, "10.0.0.2", 100), entered(&mut clients, "10.0.0.3", 9)), (10, 9));
    }

    #[test]
    fn closed_connection_makes_room_for_another() {
        let mut clients = ClientConnections::new(4, Some(1), Vec::new());
        let first = clients.enter("10.0.0.1".parse().unwrap()).unwrap();
        let second = clients.enter("10.0.0.2".parse().unwrap()).unwrap();
        assert_eq!(clients.enter("10.0.0.1".parse().unwrap()), None);
        clients.leave(&first);
        clients.leave(&second);
        assert!(clients.counts.is_empty() && clients.open == 0);
        assert_eq!(entered(&mut clients, "10.0.0.1", 9), 2);
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_client() {
        let mut clients = ClientConnections::new(20, Some(1), Vec::new());
        assert_eq!((entered(&mut clients, "2001:db8::1", 9), entered(&mut clients, "2001:db8::2", 9)), (9, 1));
        assert_eq!(entered(&mut clients, "2001:db8:0:1::1", 9), 1);
        assert_eq!((entered(&mut clients, "10.0.0.1", 9), entered(&mut clients, "::ffff:10.0.0.1", 9)), (1, 0));
    }

    #[test]
    fn trusted_proxy_may_have_all_connections() {
        let mut clients = ClientConnections::new(100, Some(10), vec!["10.0.0.0/8".parse().unwrap()]);
        assert_eq!((entered(&mut clients, "10.0.0.1", 90), entered(&mut clients, "::ffff:10.0.0.1", 9)), (90, 9));
        assert_eq!(entered(&mut clients, "9.9.9.9", 100), 10);
    }

    #[test]
    fn without_a_limit_one_client_may_have_all_connections() {
        assert_eq!(entered(&mut ClientConnections::new(100, None, Vec::new()), "10.0.0.1", 100), 100);
    }
}
