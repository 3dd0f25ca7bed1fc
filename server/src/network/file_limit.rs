//! The system's limit on open files.

#[cfg(unix)]
pub(crate) use self::unix::make_room;

/// Other systems have no such limit.
#[cfg(not(unix))]
pub(crate) fn make_room(connections: usize) -> usize {
    connections
}

#[cfg(unix)]
mod unix {
    use rustix::process::{Resource, getrlimit, setrlimit};

    use crate::admin;

    /// File descriptors per connection: each socket has two handles.
    const EACH: u64 = 2;
    /// Descriptors for files, connections to the store, listeners, and the connections at `admin_listen`.
    const RESERVED: u64 = 256 + EACH * admin::CONNECTIONS as u64;

    /// Raises the limit on open files for this many connections. Returns the possible number, which is lower if the system does not allow
    /// so many open files. A process without a free descriptor could not answer health checks either.
    pub(crate) fn make_room(connections: usize) -> usize {
        let wanted = connections as u64 * EACH + RESERVED;
        let mut limit = getrlimit(Resource::Nofile);
        if limit.current.is_none_or(|current| current >= wanted) {
            return connections;
        }
        limit.current = Some(limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "could not raise the limit on open files");
        }
        let allowed = getrlimit(Resource::Nofile).current;
        let Some(allowed) = allowed.filter(|allowed| *allowed < wanted) else { return connections };
        let possible = fitting(allowed);
        tracing::warn!(
            "the system allows this process {allowed} open files, and max_connections needs {wanted}; accepting {possible} \
             connections: raise the limit with `ulimit -Hn` or LimitNOFILE, or lower max_connections"
        );
        possible
    }

    /// Returns the number of connections for this many open files; at least one.
    fn fitting(files: u64) -> usize {
        (files.saturating_sub(RESERVED) / EACH).max(1) as usize
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn reserved_files_are_left() {
            for connections in [1, 2, 108, 8192] {
                assert_eq!(fitting(connections as u64 * EACH + RESERVED), connections);
            }
            assert_eq!((fitting(0), fitting(RESERVED)), (1, 1));
        }
    }
}
