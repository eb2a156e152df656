//! What must hold in every history, whoever answers: one content for each offset, nothing acknowledged lost or doubled,
//! every read at least as new as what was acknowledged or shown before it began, and no owner that goes on behind its
//! successor's start.

use std::collections::BTreeMap;
use thalweg_base::Lsn;

/// A position in a stream, as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offset {
    pub(super) text: String,
    pub(super) at: usize,
}

impl Offset {
    pub(super) fn parse(text: &str) -> Self {
        let at = text.rsplit('_').next().and_then(|digits| digits.parse().ok());
        Self { text: text.to_owned(), at: at.unwrap_or_else(|| panic!("`{text}` is no offset")) }
    }

    fn history(&self) -> &str {
        self.text.split('_').next().unwrap_or_default()
    }
}

/// One stream, as all clients together have seen it.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// The content that any reader has seen: the only one.
    known: Vec<u8>,
    /// The first part of its offsets behind the start.
    history: Option<String>,
    /// The highest offset that was acknowledged or shown.
    shown: usize,
    /// Messages that were acknowledged, each with the offset behind it if its answer told that.
    acknowledged: BTreeMap<String, Option<usize>>,
}

#[derive(Debug)]
struct Owner {
    machine: usize,
    epoch: u64,
    /// Where it found the journal's end.
    end: Lsn,
}

/// The truth of one history.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    streams: BTreeMap<String, Stream>,
    /// The owners of each unit, in the order in which they took it over.
    owners: BTreeMap<u64, Vec<Owner>>,
}

impl Oracle {
    pub(super) fn stream(&mut self, name: &str) -> &mut Stream {
        self.streams.entry(name.to_owned()).or_default()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.streams.keys().cloned().collect()
    }

    /// An owner has fenced and replayed a unit.
    pub(super) fn took_over(&mut self, unit: u64, machine: usize, epoch: u64, end: Lsn) {
        let owners = self.owners.entry(unit).or_default();
        if let Some(twin) = owners.iter().find(|owner| owner.epoch == epoch) {
            panic!("unit {unit} has two owners with epoch {epoch}: machines {} and {machine}", twin.machine);
        }
        owners.push(Owner { machine, epoch, end });
    }

    /// An owner acknowledges up to this position of its journal.
    pub(super) fn durable(&self, unit: u64, epoch: u64, upto: Lsn) {
        let later = self.owners.get(&unit).into_iter().flatten().filter(|owner| owner.epoch > epoch);
        for successor in later {
            assert!(
                upto <= successor.end,
                "the owner of unit {unit} with epoch {epoch} acknowledges up to {upto}, and its successor with epoch {} began at {}",
                successor.epoch,
                successor.end
            );
        }
    }

    /// How many take-overs there were.
    pub(super) fn take_overs(&self) -> usize {
        self.owners.values().map(Vec::len).sum()
    }
}

impl Stream {
    /// The offset that a read which begins now must reach.
    pub(super) fn least(&self) -> usize {
        self.shown
    }

    fn check_history(&mut self, name: &str, offset: &Offset) {
        if offset.at == 0 {
            return;
        }
        let history = self.history.get_or_insert_with(|| offset.history().to_owned());
        assert_eq!(history, offset.history(), "the stream {name} has two histories");
    }

    /// An append was acknowledged. `next`: the offset in its answer; `is_new`: that is the one behind the message.
    pub(super) fn acknowledge(&mut self, name: &str, message: &str, next: &Offset, is_new: bool) {
        self.check_history(name, next);
        self.shown = self.shown.max(next.at);
        let end = self.acknowledged.entry(message.to_owned()).or_default();
        *end = end.or(is_new.then_some(next.at));
        if is_new {
            self.check_place(name, message, next.at);
        }
    }

    fn check_place(&self, name: &str, message: &str, end: usize) {
        if let Some(found) = self.known.get(end.saturating_sub(message.len())..end) {
            assert!(
                found == message.as_bytes(),
                "the append {message:?} of {name} was acknowledged with the offset {end}, before which is {:?}",
                String::from_utf8_lossy(found)
            );
        }
    }

    /// A read gave these bytes from `from` on, up to `next`.
    pub(super) fn read(&mut self, name: &str, from: usize, bytes: &[u8], next: &Offset) {
        assert_eq!(from + bytes.len(), next.at, "a read of {name} from {from} gave {} bytes", bytes.len());
        self.check_history(name, next);
        assert!(from <= self.known.len(), "{name} was read from {from}, which no read has reached");
        let common = (self.known.len() - from).min(bytes.len());
        assert!(
            self.known[from..from + common] == bytes[..common],
            "the offset {from} of {name} has two contents: {:?} and {:?}",
            String::from_utf8_lossy(&self.known[from..from + common]),
            String::from_utf8_lossy(&bytes[..common])
        );
        self.known.extend_from_slice(&bytes[common..]);
    }

    /// A whole read, which began when [`Self::least`] was `least`, has reached `end`.
    pub(super) fn reached(&mut self, name: &str, least: usize, end: usize, by: &str) {
        assert!(end >= least, "{by} read {name} up to {end}, and {least} had been acknowledged or shown before");
        self.shown = self.shown.max(end);
    }

    /// At the end, when everything was read: every acknowledged message is there once, and none is there twice.
    pub(super) fn check_all(&self, name: &str) -> usize {
        let text = String::from_utf8_lossy(&self.known);
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for message in text.split_inclusive('\n') {
            *counts.entry(message).or_default() += 1;
        }
        if let Some((message, count)) = counts.iter().find(|(_, count)| **count > 1) {
            panic!("the append {message:?} is in {name} {count} times");
        }
        for (message, end) in &self.acknowledged {
            assert!(
                counts.contains_key(message.as_str()),
                "the append {message:?} was acknowledged, and {name} lacks it"
            );
            if let Some(end) = end {
                self.check_place(name, message, *end);
            }
        }
        self.acknowledged.len()
    }
}
