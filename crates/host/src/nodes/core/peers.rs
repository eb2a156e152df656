//! The other nodes, as far as this one has heard of them.

use super::{FORGOTTEN_AFTER, Moment, STALE_AFTER};
use crate::nodes::announcement::Announcement;
use std::collections::BTreeMap;
use std::time::Duration;

/// What this node knows of another one.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its last announcement.
    pub(crate) announcement: Announcement,
    /// When this announcement was seen first.
    pub(crate) since: Moment,
    /// When it was asked for last, with an answer. Only what was asked for can be known not to have changed.
    asked: Moment,
}

impl Peer {
    /// For how long its announcement is known not to have changed.
    fn silence(&self) -> Duration {
        self.asked.since(self.since)
    }

    /// Whether its announcement has not changed for so long that its lease has ended.
    pub(crate) fn is_stale(&self) -> bool {
        self.silence() >= stale_after(&self.announcement)
    }
}

fn stale_after(announcement: &Announcement) -> Duration {
    Duration::from_millis(announcement.every_ms.max(1)).mul_f64(STALE_AFTER)
}

/// The other nodes, by instance.
#[derive(Debug, Default)]
pub(super) struct Peers(BTreeMap<String, Peer>);

impl Peers {
    pub(super) fn all(&self) -> impl Iterator<Item = &Peer> {
        self.0.values()
    }

    pub(super) fn live(&self) -> impl Iterator<Item = &Announcement> {
        self.all().filter(|peer| !peer.is_stale()).map(|peer| &peer.announcement)
    }

    /// An announcement, asked for at `asked`. Returns whether the node is a new one.
    pub(super) fn note(&mut self, found: Announcement, asked: Moment, now: Moment) -> bool {
        match self.0.get_mut(&found.instance) {
            // A request that was sent before has written an object that the node writes no more.
            Some(peer) if peer.announcement.object > found.object => false,
            Some(peer) if peer.announcement.seq >= found.seq => {
                // An answer between two announcements may know of a unit more, or less.
                if peer.announcement.seq == found.seq {
                    peer.announcement = found;
                }
                peer.asked.steady = peer.asked.steady.max(asked.steady);
                false
            }
            _ => {
                let peer = Peer { announcement: found.clone(), since: now, asked };
                self.0.insert(found.instance, peer).is_none()
            }
        }
    }

    pub(super) fn remove(&mut self, instance: &str, object: u64) -> Option<Announcement> {
        self.0.get(instance).filter(|peer| peer.announcement.object <= object)?;
        self.0.remove(instance).map(|peer| peer.announcement)
    }

    /// The bucket had these when it was asked. One that was heard of since may have come after that.
    pub(super) fn retain(&mut self, instances: &[String], asked: Moment) {
        self.0.retain(|instance, peer| instances.contains(instance) || peer.asked.steady > asked.steady);
    }

    /// Those that have said nothing new for so long, when they were asked for, that their announcements are retired.
    pub(super) fn forgotten(&self) -> Vec<Announcement> {
        let is_gone = |peer: &&Peer| peer.silence() >= FORGOTTEN_AFTER.max(4 * stale_after(&peer.announcement));
        self.all().filter(is_gone).map(|peer| peer.announcement.clone()).collect()
    }

    /// Whether a live node claims a unit.
    pub(super) fn claims(&self, unit: u64) -> bool {
        self.live().any(|peer| peer.epoch_of(unit).is_some())
    }

    /// Whether a live node claims a unit with an epoch above this one.
    pub(super) fn claims_above(&self, unit: u64, own: Option<u64>) -> bool {
        self.live().filter_map(|peer| peer.epoch_of(unit)).any(|claim| Some(claim) > own)
    }
}
