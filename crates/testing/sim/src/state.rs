//! The whole disk: folders, files, faults and the generator behind every coin that is tossed.

use crate::content::{Content, chance};
use crate::folder::{Folder, Inode, MoveId};
use oorandom::Rand64;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

#[derive(Clone)]
pub(crate) struct State {
    pub(crate) rng: Rand64,
    pub(crate) folders: BTreeMap<String, Folder>,
    pub(crate) files: BTreeMap<Inode, Content>,
    pub(crate) faults: Faults,
    /// Handles from before the last crash carry an older number.
    pub(crate) life: u64,
    next: u64,
    /// Changes that were asked for: creations, writes, syncs, renames, removals.
    pub(crate) changes: u64,
}

/// How far a change gets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Whole,
    /// The process dies in it.
    Part,
}

#[derive(Clone, Debug)]
pub(crate) struct Faults {
    pub(crate) capacity: u64,
    pub(crate) fail_next_sync: bool,
    pub(crate) fail_next_write: bool,
    pub(crate) fail_next_dir_sync: bool,
    pub(crate) sync_failures: f64,
    pub(crate) write_failures: f64,
    pub(crate) waits: f64,
    pub(crate) lie_on_sync: bool,
    pub(crate) fail_next_read: bool,
    /// The `errno` with which creating a file fails.
    pub(crate) no_new_files: Option<i32>,
    pub(crate) misreads: f64,
    /// How many changes still happen. The change after them is cut short, and all later ones are lost.
    pub(crate) left: Option<u64>,
    pub(crate) stopped: bool,
    /// A fault that was armed has come true.
    pub(crate) failed: bool,
}

impl State {
    pub(crate) fn new(seed: u64) -> Self {
        let faults = Faults {
            capacity: u64::MAX,
            fail_next_sync: false,
            fail_next_write: false,
            fail_next_dir_sync: false,
            sync_failures: 0.0,
            write_failures: 0.0,
            waits: 0.0,
            lie_on_sync: false,
            fail_next_read: false,
            no_new_files: None,
            misreads: 0.0,
            left: None,
            stopped: false,
            failed: false,
        };
        Self {
            rng: Rand64::new(u128::from(seed)),
            folders: BTreeMap::new(),
            files: BTreeMap::new(),
            faults,
            life: 0,
            next: 0,
            changes: 0,
        }
    }

    pub(crate) fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(crate) fn folder(&mut self, name: &str) -> &mut Folder {
        self.folders.entry(name.to_owned()).or_default()
    }

    pub(crate) fn lookup(&self, folder: &str, name: &str) -> Option<Inode> {
        self.folders.get(folder)?.cached.get(name).copied()
    }

    pub(crate) fn used(&self) -> u64 {
        let linked: BTreeSet<Inode> = self.folders.values().flat_map(|f| f.cached.values().copied()).collect();
        linked.iter().filter_map(|inode| self.files.get(inode)).map(|file| file.cached.len() as u64).sum()
    }

    pub(crate) fn free(&self) -> u64 {
        self.faults.capacity.saturating_sub(self.used())
    }

    /// Fails if a file cannot grow by `more`.
    pub(crate) fn room(&self, more: u64) -> io::Result<()> {
        if more > 0 && (self.faults.capacity != u64::MAX && more > self.free()) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no space left on the simulated disk"));
        }
        Ok(())
    }

    /// Asked before every operation that does not change anything.
    pub(crate) fn alive(&self) -> io::Result<()> {
        if self.faults.stopped { Err(stopped()) } else { Ok(()) }
    }

    /// Asked before every change.
    pub(crate) fn change(&mut self) -> io::Result<Reach> {
        self.alive()?;
        self.changes += 1;
        match &mut self.faults.left {
            None => Ok(Reach::Whole),
            Some(0) => {
                self.faults.stopped = true;
                Ok(Reach::Part)
            }
            Some(left) => {
                *left -= 1;
                Ok(Reach::Whole)
            }
        }
    }

    /// Asked before a change that happens as a whole or not at all.
    pub(crate) fn whole_change(&mut self) -> io::Result<()> {
        if self.change()? == Reach::Whole { Ok(()) } else { Err(stopped()) }
    }

    pub(crate) fn read_fails(&mut self) -> bool {
        let fails = std::mem::take(&mut self.faults.fail_next_read);
        self.fails(fails)
    }

    pub(crate) fn write_fails(&mut self) -> bool {
        let fails =
            std::mem::take(&mut self.faults.fail_next_write) || chance(&mut self.rng, self.faults.write_failures);
        self.fails(fails)
    }

    pub(crate) fn sync_fails(&mut self) -> bool {
        let fails = std::mem::take(&mut self.faults.fail_next_sync) || chance(&mut self.rng, self.faults.sync_failures);
        self.fails(fails)
    }

    pub(crate) fn folder_sync_fails(&mut self) -> bool {
        let fails = std::mem::take(&mut self.faults.fail_next_dir_sync);
        self.fails(fails)
    }

    fn fails(&mut self, fails: bool) -> bool {
        self.faults.failed |= fails;
        fails
    }

    /// Syncs one folder. A move out of it becomes durable together with its arrival elsewhere.
    pub(crate) fn sync_folder(&mut self, name: &str) {
        let Some(folder) = self.folders.get_mut(name) else {
            return;
        };
        let leaving: Vec<MoveId> = folder.departures().collect();
        let all = folder.pending_len();
        folder.settle(all, &BTreeSet::new());
        for other in self.folders.values_mut() {
            for id in &leaving {
                if let Some(n) = other.upto_arrival(*id) {
                    other.settle(n, &BTreeSet::new());
                }
            }
        }
    }

    /// Moves between folders stay as they are: only changes of this folder alone are dropped.
    pub(crate) fn fail_folder_sync(&mut self, name: &str) {
        let dropped = self.rng.rand_range(0..2) == 0;
        let Some(folder) = self.folders.get_mut(name) else { return };
        let moves = folder.departures().next().is_some() || folder.arrivals(folder.pending_len()).next().is_some();
        if moves || folder.pending_len() == 0 {
            return;
        }
        let reached = self.rng.rand_range(0..folder.pending_len() as u64 + 1) as usize;
        if dropped {
            folder.fail_sync(reached);
        } else {
            folder.settle(reached, &BTreeSet::new());
        }
    }

    /// The next process finds a disk that works.
    pub(crate) fn revive(&mut self) {
        (self.faults.left, self.faults.stopped) = (None, false);
    }

    pub(crate) fn crash_power(&mut self) {
        self.life += 1;
        self.revive();
        let mut survive = BTreeMap::new();
        let mut undone: BTreeSet<MoveId> = BTreeSet::new();
        for (name, folder) in &self.folders {
            let n = self.rng.rand_range(0..folder.pending_len() as u64 + 1) as usize;
            survive.insert(name.clone(), n);
            undone.extend(folder.arrivals(folder.pending_len()));
            for arrived in folder.arrivals(n) {
                undone.remove(&arrived);
            }
        }
        for (name, folder) in &mut self.folders {
            folder.settle(survive[name], &undone);
            folder.forget_pending();
        }
        let linked: BTreeSet<Inode> = self.folders.values().flat_map(|f| f.durable.values().copied()).collect();
        self.files.retain(|inode, _| linked.contains(inode));
        for file in self.files.values_mut() {
            file.crash_power(&mut self.rng);
        }
    }
}

pub(crate) fn stopped() -> io::Error {
    io::Error::other("the simulated process is dead")
}
