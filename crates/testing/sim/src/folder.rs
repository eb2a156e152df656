//! The names in one folder: as the cache shows them, as the medium holds them, and the changes in between, in order.

use std::collections::{BTreeMap, BTreeSet};

/// Names one unsynced move between two folders.
pub(crate) type MoveId = u64;
pub(crate) type Inode = u64;

#[derive(Clone, Debug, Default)]
pub(crate) struct Folder {
    pub(crate) cached: BTreeMap<String, Inode>,
    pub(crate) durable: BTreeMap<String, Inode>,
    pending: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Link {
        name: String,
        inode: Inode,
    },
    Unlink {
        name: String,
    },
    Rename {
        from: String,
        to: String,
        inode: Inode,
    },
    /// The two halves of a move between folders: the file never leaves the one without having arrived in the other.
    Arrive {
        name: String,
        inode: Inode,
        id: MoveId,
    },
    Leave {
        name: String,
        id: MoveId,
    },
}

impl Folder {
    pub(crate) fn link(&mut self, name: &str, inode: Inode) {
        self.cached.insert(name.to_owned(), inode);
        self.pending.push(Change::Link { name: name.to_owned(), inode });
    }

    pub(crate) fn unlink(&mut self, name: &str) {
        self.cached.remove(name);
        self.pending.push(Change::Unlink { name: name.to_owned() });
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str, inode: Inode) {
        self.cached.remove(from);
        self.cached.insert(to.to_owned(), inode);
        self.pending.push(Change::Rename { from: from.to_owned(), to: to.to_owned(), inode });
    }

    pub(crate) fn arrive(&mut self, name: &str, inode: Inode, id: MoveId) {
        self.cached.insert(name.to_owned(), inode);
        self.pending.push(Change::Arrive { name: name.to_owned(), inode, id });
    }

    pub(crate) fn leave(&mut self, name: &str, id: MoveId) {
        self.cached.remove(name);
        self.pending.push(Change::Leave { name: name.to_owned(), id });
    }

    pub(crate) fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// The moves into this folder among the first `n` changes.
    pub(crate) fn arrivals(&self, n: usize) -> impl Iterator<Item = MoveId> {
        self.pending[..n].iter().filter_map(|change| match change {
            Change::Arrive { id, .. } => Some(*id),
            _ => None,
        })
    }

    pub(crate) fn departures(&self) -> impl Iterator<Item = MoveId> {
        self.pending.iter().filter_map(|change| match change {
            Change::Leave { id, .. } => Some(*id),
            _ => None,
        })
    }

    /// How many changes must become durable for this arrival to be.
    pub(crate) fn upto_arrival(&self, wanted: MoveId) -> Option<usize> {
        self.pending.iter().position(|c| matches!(c, Change::Arrive { id, .. } if *id == wanted)).map(|i| i + 1)
    }

    /// Makes the first `n` changes durable. A departure in `undone` did not happen.
    pub(crate) fn settle(&mut self, n: usize, undone: &BTreeSet<MoveId>) {
        for change in self.pending.drain(..n) {
            match change {
                Change::Link { name, inode } | Change::Arrive { name, inode, .. } => {
                    self.durable.insert(name, inode);
                }
                Change::Unlink { name } => {
                    self.durable.remove(&name);
                }
                Change::Rename { from, to, inode } => {
                    self.durable.remove(&from);
                    self.durable.insert(to, inode);
                }
                Change::Leave { name, id } => {
                    if !undone.contains(&id) {
                        self.durable.remove(&name);
                    }
                }
            }
        }
    }

    /// A sync that failed: the first `n` changes reached the medium, and the others are dropped. The cache goes on
    /// showing them, but no later sync makes them durable.
    pub(crate) fn fail_sync(&mut self, n: usize) {
        self.settle(n, &BTreeSet::new());
        self.pending.clear();
    }

    /// A name is gone from cache and medium: the directory is damaged.
    pub(crate) fn lose(&mut self, name: &str) {
        self.cached.remove(name);
        self.durable.remove(name);
        self.pending.retain(|change| match change {
            Change::Link { name: of, .. } | Change::Unlink { name: of } | Change::Arrive { name: of, .. } => of != name,
            Change::Leave { name: of, .. } => of != name,
            Change::Rename { from, to, .. } => from != name && to != name,
        });
    }

    /// Forgets the changes that had not reached the medium, after a power cut.
    pub(crate) fn forget_pending(&mut self) {
        self.pending.clear();
        self.cached = self.durable.clone();
    }
}
