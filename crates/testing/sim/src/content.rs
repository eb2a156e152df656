//! The bytes of one file: as the cache shows them, as the medium holds them, and the writes in between.
//!
//! A write is remembered as the whole sectors that it left in the cache, so that any one of a sector's successive
//! states may remain after a power cut, but never a state that no moment had.

use oorandom::Rand64;
use std::collections::BTreeMap;
use std::ops::Range;

pub(crate) const SECTOR: usize = 512;

#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    pub(crate) cached: Vec<u8>,
    pub(crate) durable: Vec<u8>,
    pending: Vec<Pending>,
    /// The bytes of a sector before its last write.
    older: BTreeMap<usize, Vec<u8>>,
}

#[derive(Clone, Debug)]
enum Pending {
    Len(usize),
    /// Whole sectors from `first` on. Those not in `alive` were dropped by a failed sync.
    Write {
        first: usize,
        bytes: Vec<u8>,
        alive: Vec<bool>,
    },
}

impl Content {
    pub(crate) fn write(&mut self, buf: &[u8], at: usize) {
        if buf.is_empty() {
            return;
        }
        let end = at + buf.len();
        if end > self.cached.len() {
            self.set_len(end);
        }
        let (first, last) = (at / SECTOR, end.div_ceil(SECTOR));
        for sector in first..last {
            let from = sector * SECTOR;
            let mut before = self.cached[from..self.cached.len().min(from + SECTOR)].to_vec();
            before.resize(SECTOR, 0);
            self.older.insert(sector, before);
        }
        self.cached[at..end].copy_from_slice(buf);
        let mut bytes = self.cached[first * SECTOR..self.cached.len().min(last * SECTOR)].to_vec();
        bytes.resize((last - first) * SECTOR, 0);
        self.pending.push(Pending::Write { first, bytes, alive: vec![true; last - first] });
    }

    pub(crate) fn set_len(&mut self, len: usize) {
        if len != self.cached.len() {
            self.cached.resize(len, 0);
            self.pending.push(Pending::Len(len));
        }
    }

    /// Puts into `buf`, read from `at`, a sector as it was before its last write; whether there is one.
    pub(crate) fn make_stale(&self, buf: &mut [u8], at: usize, rng: &mut Rand64) -> bool {
        let known: Vec<usize> =
            self.older.range(at / SECTOR..(at + buf.len()).div_ceil(SECTOR)).map(|(n, _)| *n).collect();
        if known.is_empty() {
            return false;
        }
        let sector = known[rng.rand_range(0..known.len() as u64) as usize];
        let from = (sector * SECTOR).max(at);
        let to = ((sector + 1) * SECTOR).min(at + buf.len());
        buf[from - at..to - at].copy_from_slice(&self.older[&sector][from - sector * SECTOR..to - sector * SECTOR]);
        true
    }

    /// A sync: all pending writes reach the medium.
    pub(crate) fn sync(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Len(len) => self.durable.resize(len, 0),
                Pending::Write { first, bytes, alive } => place(&mut self.durable, first, &bytes, &alive),
            }
        }
    }

    /// A sync that fails: some pending writes reach the medium, some stay dirty, and some are dropped. Reads from the
    /// cache still show the dropped ones, but no later sync writes them.
    pub(crate) fn fail_sync(&mut self, rng: &mut Rand64) {
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Len(len) => {
                    if chance(rng, 0.5) {
                        self.durable.resize(len, 0);
                    } else {
                        self.pending.push(Pending::Len(len));
                    }
                }
                Pending::Write { first, bytes, alive } => {
                    let mut reached = vec![false; alive.len()];
                    let mut stays = vec![false; alive.len()];
                    for i in (0..alive.len()).filter(|i| alive[*i]) {
                        match rng.rand_range(0..3) {
                            0 => reached[i] = true,
                            1 => stays[i] = true,
                            _ => {}
                        }
                    }
                    place(&mut self.durable, first, &bytes, &reached);
                    self.pending.push(Pending::Write { first, bytes, alive: stays });
                }
            }
        }
    }

    /// The power goes: each write survives, or not, or in part. Lengths survive in order.
    pub(crate) fn crash_power(&mut self, rng: &mut Rand64) {
        let lens = self.pending.iter().filter(|p| matches!(p, Pending::Len(_))).count();
        let mut lens = rng.rand_range(0..lens as u64 + 1);
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Len(to) if lens > 0 => {
                    lens -= 1;
                    self.durable.resize(to, 0);
                }
                Pending::Len(_) => {}
                Pending::Write { first, bytes, mut alive } => {
                    match rng.rand_range(0..10) {
                        0..4 => {}
                        4..8 => alive.fill(false),
                        _ => alive.iter_mut().for_each(|sector| *sector &= chance(rng, 0.5)),
                    }
                    place(&mut self.durable, first, &bytes, &alive);
                }
            }
        }
        self.cached = self.durable.clone();
    }

    /// Flips one bit that is the same in cache and medium and not about to be overwritten; its byte position.
    pub(crate) fn flip(&mut self, within: Range<usize>, rng: &mut Rand64) -> Option<usize> {
        let within = within.start..within.end.min(self.durable.len()).min(self.cached.len());
        if within.is_empty() {
            return None;
        }
        for _ in 0..64 {
            let at = rng.rand_range(within.start as u64..within.end as u64) as usize;
            if self.durable[at] == self.cached[at] && !self.is_pending(at / SECTOR) {
                let bit = 1 << rng.rand_range(0..8);
                self.durable[at] ^= bit;
                self.cached[at] ^= bit;
                return Some(at);
            }
        }
        None
    }

    fn is_pending(&self, sector: usize) -> bool {
        self.pending.iter().any(|p| match p {
            Pending::Len(_) => false,
            Pending::Write { first, alive, .. } => {
                sector.checked_sub(*first).and_then(|i| alive.get(i)).is_some_and(|alive| *alive)
            }
        })
    }
}

/// Writes the chosen sectors, as far as they lie within the length.
fn place(durable: &mut [u8], first: usize, bytes: &[u8], chosen: &[bool]) {
    for (i, _) in chosen.iter().enumerate().filter(|(_, chosen)| **chosen) {
        let at = (first + i) * SECTOR;
        let end = durable.len().min(at + SECTOR);
        if at < end {
            durable[at..end].copy_from_slice(&bytes[i * SECTOR..i * SECTOR + end - at]);
        }
    }
}

pub(crate) fn chance(rng: &mut Rand64, p: f64) -> bool {
    p > 0.0 && rng.rand_float() < p
}
