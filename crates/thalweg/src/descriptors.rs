//! File descriptors: as many as the process may have, and how many connections they are enough for.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for everything but clients: files, event loops, the bucket, the other nodes, the database.
const RESERVED: u64 = 512;
/// Fewer connections are not worth a server.
const CONNECTIONS_MIN: u64 = 16;
/// More are never asked for.
const LIMIT_MAX: u64 = 1 << 20;

/// Raises the limit of open files as far as this process may. Returns how many clients can be connected at a time, at most
/// `wanted`: each takes a descriptor, and on a node another one while its request is answered by another node.
pub(crate) fn connections_max(wanted: usize, is_node: bool) -> usize {
    let before = getrlimit(Resource::Nofile);
    let most = before.maximum.unwrap_or(LIMIT_MAX).min(LIMIT_MAX);
    let limit = most.max(before.current.unwrap_or(LIMIT_MAX));
    if setrlimit(Resource::Nofile, Rlimit { current: Some(limit), ..before }).is_err() {
        tracing::warn!("the limit of open files could not be raised");
    }
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(LIMIT_MAX);
    let possible = possible(limit, is_node);
    if possible < wanted as u64 {
        let each =
            if is_node { "one descriptor, and another one while another node answers" } else { "one descriptor" };
        tracing::warn!(
            "{possible} connections instead of --max-connections {wanted}: the process may have {limit} open files, and a client \
             takes {each}; raise the limit (ulimit -Hn, LimitNOFILE= of systemd)"
        );
    }
    usize::try_from(possible).map_or(wanted, |possible| possible.min(wanted))
}

fn possible(limit: u64, is_node: bool) -> u64 {
    (limit.saturating_sub(RESERVED) / if is_node { 2 } else { 1 }).max(CONNECTIONS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_left_for_what_is_no_client() {
        assert_eq!((possible(1_024, false), possible(1_024, true)), (512, 256));
        assert_eq!((possible(100, true), possible(1 << 20, true)), (16, 524_032));
    }
}
