//! The other nodes, as far as this one has heard of them.

use super::{FORGOTTEN_AFTER, Moment, STALE_AFTER, SUSPECT_AFTER};
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
    /// How often in a row it did not answer itself.
    unanswered: u32,
}

impl Peer {
    /// For how long its announcement is known not to have changed.
    fn silence(&self) -> Duration {
        self.asked.since(self.since)
    }

    /// Whether its announcement has not changed for so long that its lease has ended.
    pub(crate) fn is_stale(&self) -> bool {
        self.silence() >= periods(&self.announcement, STALE_AFTER)
    }

    /// Whether it is probably dead: it does not answer, and its announcement is late. Its lease may still run.
    pub(super) fn is_suspect(&self) -> bool {
        self.unanswered >= UNANSWERED && self.silence() >= periods(&self.announcement, SUSPECT_AFTER)
    }
}

/// Requests in a row that a suspect has not answered.
const UNANSWERED: u32 = 2;

/// So many periods of a node's announcements.
fn periods(announcement: &Announcement, count: f64) -> Duration {
    Duration::from_millis(announcement.every_ms.max(1)).mul_f64(count)
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

    /// The nodes that live, without those that do not answer, or at whose address another process does: nobody else should
    /// get what is for them.
    pub(super) fn answering(&self) -> impl Iterator<Item = &Announcement> {
        let peers = self.all().filter(|peer| !peer.is_stale() && peer.unanswered < UNANSWERED);
        peers.map(|peer| &peer.announcement)
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
            known => {
                let unanswered = known.map_or(0, |peer| peer.unanswered);
                let peer = Peer { announcement: found.clone(), since: now, asked, unanswered };
                self.0.insert(found.instance, peer).is_none()
            }
        }
    }

    /// The node was asked itself.
    pub(super) fn note_answer(&mut self, instance: &str, has_answered: bool) {
        if let Some(peer) = self.0.get_mut(instance) {
            peer.unanswered = if has_answered { 0 } else { peer.unanswered.saturating_add(1) };
        }
    }

    /// The bucket has no announcement of the node in its object of this number, asked at `asked`. Returns the node if it
    /// is gone: somebody else may have removed the announcement of one that lives, and whose leases run.
    pub(super) fn note_missing(&mut self, instance: &str, object: u64, asked: Moment) -> Option<Announcement> {
        self.note_silence(instance, object, asked);
        let peer = self.0.get(instance).filter(|peer| peer.announcement.object == object)?;
        let is_gone = peer.announcement.units.is_empty() || peer.is_stale();
        is_gone.then(|| self.0.remove(instance).map(|peer| peer.announcement)).flatten()
    }

    /// The object that has the last announcement of a node had none that is newer, asked at `asked`.
    pub(super) fn note_silence(&mut self, instance: &str, object: u64, asked: Moment) {
        if let Some(peer) = self.0.get_mut(instance).filter(|peer| peer.announcement.object == object) {
            peer.asked.steady = peer.asked.steady.max(asked.steady);
        }
    }

    /// Whether anything is known of a node.
    pub(super) fn knows(&self, instance: &str) -> bool {
        self.0.contains_key(instance)
    }

    /// The bucket had announcements of these when it was asked. One that was heard of since may have come after that.
    /// Returns those that are gone.
    pub(super) fn note_list(&mut self, instances: &[String], asked: Moment) -> Vec<Announcement> {
        let is_missing =
            |(instance, peer): &(&String, &Peer)| !instances.contains(instance) && peer.asked.steady <= asked.steady;
        let missing = self.0.iter().filter(is_missing);
        let missing: Vec<_> = missing.map(|(instance, peer)| (instance.clone(), peer.announcement.object)).collect();
        missing.iter().filter_map(|(instance, object)| self.note_missing(instance, *object, asked)).collect()
    }

    /// Those that have said nothing new for so long, when they were asked for, that their announcements are retired.
    pub(super) fn forgotten(&self) -> Vec<Announcement> {
        let is_gone =
            |peer: &&Peer| peer.silence() >= FORGOTTEN_AFTER.max(4 * periods(&peer.announcement, STALE_AFTER));
        self.all().filter(is_gone).map(|peer| peer.announcement.clone()).collect()
    }

    /// Whether a live node claims a unit.
    pub(super) fn claims(&self, unit: u64) -> bool {
        self.live().any(|peer| peer.epoch_of(unit).is_some())
    }

    /// Whether a node claims a unit that lives and is no suspect.
    pub(super) fn keeps(&self, unit: u64) -> bool {
        let mut keepers = self.all().filter(|peer| !peer.is_stale() && !peer.is_suspect());
        keepers.any(|peer| peer.announcement.epoch_of(unit).is_some())
    }

    /// Whether this node is a suspect.
    pub(super) fn suspects(&self, instance: &str) -> bool {
        self.0.get(instance).is_some_and(Peer::is_suspect)
    }

    /// Whether a live node claims a unit with an epoch above this one.
    pub(super) fn claims_above(&self, unit: u64, own: Option<u64>) -> bool {
        self.live().filter_map(|peer| peer.epoch_of(unit)).any(|claim| Some(claim) > own)
    }
}
