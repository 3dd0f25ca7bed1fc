//! Ports for servers that a test starts in processes of their own.

use std::fs::{read_dir, read_link, read_to_string};
use std::net::TcpListener;
use std::ops::Range;
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that Linux gives to outgoing connections (from 32768): one of those could take a port before its server binds it.
const PORTS: Range<u16> = 10_000..32_000;

/// Returns a port that is free now. Calls in one process return different ports.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Another test process begins elsewhere.
    let offset = process::id().wrapping_mul(997);
    let candidate = || {
        let turn = offset.wrapping_add(u32::from(NEXT.fetch_add(1, Ordering::Relaxed)));
        let within = turn % u32::from(PORTS.end - PORTS.start);
        PORTS.start + u16::try_from(within).expect("smaller than the range")
    };
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    std::iter::repeat_with(candidate).take(PORTS.len()).find(is_free).expect("a free port")
}

/// Returns true if this process itself listens on the port: another program may have taken it meanwhile.
pub fn listens(process: u32, port: u16) -> bool {
    // The second field is the local address, the fourth the state (0A: listening), the tenth the inode.
    let sockets = ["/proc/net/tcp", "/proc/net/tcp6"].map(|list| read_to_string(list).unwrap_or_default());
    let is_there = |fields: &[&str]| fields[1].ends_with(&format!(":{port:04X}")) && fields[3] == "0A";
    let lines =
        sockets.iter().flat_map(|list| list.lines().skip(1)).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let inodes: Vec<_> =
        lines.filter(|fields| is_there(fields)).map(|fields| format!("socket:[{}]", fields[9])).collect();
    let Ok(open) = read_dir(format!("/proc/{process}/fd")) else { return false };
    let targets = open.flatten().filter_map(|file| read_link(file.path()).ok());
    targets.into_iter().any(|target| inodes.iter().any(|inode| target.as_os_str() == inode.as_str()))
}
