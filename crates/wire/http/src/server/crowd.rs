//! Numbers of connections, over all event loops and for each peer, and the warnings, each logged once, at their bounds.

use crate::framing::Refusal;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Peers without connections that are remembered, at most, beside as many as have some.
const IDLE_PEERS_MAX: usize = 1024;

pub(super) struct Crowd {
    max: usize,
    /// 0: as many as the bound on all.
    per_peer_max: usize,
    open: AtomicUsize,
    peers: Mutex<HashMap<IpAddr, Arc<AtomicUsize>>>,
    /// The limit was reached, and has not been far since.
    full: AtomicBool,
    /// A peer was at its limit before.
    greedy: AtomicBool,
    /// A client has tried to speak TLS on a port for plain HTTP before.
    misled: AtomicBool,
}

/// A connection's share of the bound, with the count of its peer; must be returned to [`Crowd::leave`].
#[derive(Default)]
pub(super) struct Place(Option<Arc<AtomicUsize>>);

impl Crowd {
    pub(super) fn new(max: usize, per_peer_max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            per_peer_max,
            open: AtomicUsize::new(0),
            peers: Mutex::default(),
            full: AtomicBool::new(false),
            greedy: AtomicBool::new(false),
            misled: AtomicBool::new(false),
        })
    }

    /// Whether [`Crowd::enter`] needs the peer's address.
    pub(super) fn counts_peers(&self) -> bool {
        self.per_peer_max > 0
    }

    pub(super) fn enter(&self, peer: Option<IpAddr>) -> Result<Place, Refusal> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.max {
            self.open.fetch_sub(1, Ordering::Relaxed);
            if !self.full.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    max_connections = self.max,
                    "max_connections is reached: further connections are refused"
                );
            }
            return Err(Refusal::NO_CONNECTION);
        }
        let Some(peer) = peer.filter(|_| self.counts_peers()) else { return Ok(Place(None)) };
        let count = self.count_of(network(peer));
        if count.fetch_add(1, Ordering::Relaxed) < self.per_peer_max {
            return Ok(Place(Some(count)));
        }
        self.leave(&Place(Some(count)));
        if !self.greedy.swap(true, Ordering::Relaxed) {
            let max = self.per_peer_max;
            tracing::warn!(%peer, max_connections_per_peer = max, "max_connections_per_peer is reached: further connections of this address are refused");
        }
        Err(Refusal::NO_CONNECTION_OF_PEER)
    }

    pub(super) fn leave(&self, place: &Place) {
        if let Some(peer) = &place.0 {
            peer.fetch_sub(1, Ordering::Relaxed);
        }
        let left = self.open.fetch_sub(1, Ordering::Relaxed) - 1;
        // A tenth below the limit, so that a server at its limit does not warn repeatedly.
        if left < self.max - self.max / 10 && self.full.load(Ordering::Relaxed) {
            self.full.store(false, Ordering::Relaxed);
        }
    }

    fn count_of(&self, peer: IpAddr) -> Arc<AtomicUsize> {
        let mut peers = self.peers.lock();
        if peers.len() > IDLE_PEERS_MAX + 2 * self.open.load(Ordering::Relaxed) {
            // Every connection, also one that is about to be accepted, holds a reference to the count.
            peers.retain(|_, count| Arc::strong_count(count) > 1);
        }
        Arc::clone(peers.entry(peer).or_default())
    }

    /// Warns once about a client that used the wrong scheme.
    pub(super) fn misled(&self) {
        if !self.misled.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a client speaks TLS to this port, which serves plain HTTP: its address must begin with http://"
            );
        }
    }
}

/// The owner of one IPv6 address usually has the 2^64 addresses of its network.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(crowd: &Crowd, peer: &str) -> Result<Place, Refusal> {
        crowd.enter(Some(peer.parse().unwrap()))
    }

    #[test]
    fn a_place_is_given_back() {
        let crowd = Crowd::new(2, 0);
        let places = [crowd.enter(None).ok().unwrap(), crowd.enter(None).ok().unwrap()];
        assert_eq!(crowd.enter(None).err(), Some(Refusal::NO_CONNECTION));
        crowd.leave(&places[0]);
        assert!(crowd.enter(None).is_ok() && crowd.enter(None).is_err());
    }

    #[test]
    fn one_address_leaves_room_for_others() {
        let crowd = Crowd::new(100, 2);
        let held = ["10.0.0.1", "10.0.0.1"].map(|peer| enter(&crowd, peer).ok().unwrap());
        for same in ["10.0.0.1", "::ffff:10.0.0.1"] {
            assert_eq!(enter(&crowd, same).err(), Some(Refusal::NO_CONNECTION_OF_PEER));
        }
        assert!(enter(&crowd, "10.0.0.2").is_ok());
        crowd.leave(&held[0]);
        assert!(enter(&crowd, "10.0.0.1").is_ok() && enter(&crowd, "10.0.0.1").is_err());
        assert!(["2001:db8::1", "2001:db8::2"].iter().all(|peer| enter(&crowd, peer).is_ok()));
        assert!(enter(&crowd, "2001:db8::3:1:2:3").is_err(), "one network, one peer");
        assert!(enter(&crowd, "2001:db8:0:1::1").is_ok());
        // Refused connections took no place.
        assert_eq!(crowd.open.load(Ordering::Relaxed), 6);
    }

    #[test]
    fn peers_that_left_are_forgotten() {
        let crowd = Crowd::new(100, 1);
        for n in 0..10 * IDLE_PEERS_MAX as u32 {
            let place = crowd.enter(Some(IpAddr::V4(n.into()))).ok().unwrap();
            crowd.leave(&place);
        }
        assert!(crowd.peers.lock().len() <= IDLE_PEERS_MAX + 4);
    }
}
