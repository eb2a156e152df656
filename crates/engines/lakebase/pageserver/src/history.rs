//! One fork of a relation through time.

use crate::value::Value;
use std::collections::BTreeMap;
use thalweg_pg::PgLsn;

/// One fork of a relation through time. Positions are ends of records, and rise.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// From each position on the fork has so many blocks; `None`: it does not exist.
    sizes: Vec<(PgLsn, Option<u32>)>,
    /// At each position the blocks from this one on were cut off: they are empty if they come again.
    cuts: Vec<(PgLsn, u32)>,
    blocks: BTreeMap<u32, Vec<(PgLsn, Value)>>,
}

/// What makes a block's page at a position.
#[derive(Debug, Default)]
pub(crate) struct Chain<'a> {
    /// The page depends on nothing before these values.
    pub(crate) begins: bool,
    /// What changes it, in order.
    pub(crate) values: &'a [(PgLsn, Value)],
}

impl History {
    /// A fork that has so many blocks before the first record.
    pub(crate) fn new(blocks: Option<u32>) -> Self {
        Self { sizes: vec![(PgLsn(0), blocks)], ..Self::default() }
    }

    /// How many blocks the fork has at a position; `None`: it does not exist.
    pub(crate) fn size(&self, at: PgLsn) -> Option<u32> {
        let behind = self.sizes.partition_point(|(from, _)| *from <= at);
        behind.checked_sub(1).and_then(|newest| self.sizes[newest].1)
    }

    fn newest_size(&self) -> Option<u32> {
        self.sizes.last().and_then(|(_, size)| *size)
    }

    fn resize(&mut self, at: PgLsn, size: Option<u32>) {
        if self.newest_size() != size {
            self.sizes.push((at, size));
        }
    }

    /// A record that ends at `at` does this to a block, which exists from then on.
    pub(crate) fn put(&mut self, at: PgLsn, block: u32, value: Value) {
        let size = self.newest_size().unwrap_or_default().max(block.saturating_add(1));
        self.resize(at, Some(size));
        self.blocks.entry(block).or_default().push((at, value));
    }

    /// As [`Self::put`], if the block exists.
    pub(crate) fn put_if_there(&mut self, at: PgLsn, block: u32, value: Value) {
        if self.newest_size().is_some_and(|size| block < size) {
            self.put(at, block, value);
        }
    }

    pub(crate) fn create(&mut self, at: PgLsn) {
        if self.newest_size().is_none() {
            self.resize(at, Some(0));
        }
    }

    /// The fork has so many blocks from then on, and no more than before.
    pub(crate) fn truncate(&mut self, at: PgLsn, blocks: u32) {
        if self.newest_size().is_some_and(|before| before > blocks) {
            self.cuts.push((at, blocks));
            self.resize(at, Some(blocks));
        }
    }

    pub(crate) fn remove(&mut self, at: PgLsn) {
        self.truncate(at, 0);
        self.resize(at, None);
    }

    /// What makes a block's page at a position: from the last value on that begins it, or all there are.
    pub(crate) fn chain(&self, block: u32, at: PgLsn) -> Chain<'_> {
        let is_cut = |(position, blocks): &&(PgLsn, u32)| *position <= at && *blocks <= block;
        let cut = self.cuts.iter().rev().find(is_cut).map(|(position, _)| *position);
        let values = self.blocks.get(&block).map_or(&[][..], Vec::as_slice);
        let behind = |upto: PgLsn| values.partition_point(|(position, _)| *position <= upto);
        let values = &values[cut.map_or(0, behind)..behind(at)];
        match values.iter().rposition(|(_, value)| value.begins()) {
            Some(begin) => Chain { begins: true, values: &values[begin..] },
            None => Chain { begins: cut.is_some(), values },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_chains_are_those_of_each_position() {
        let hide = |heap_block| Value::Hide { heap_block, only_frozen: false };
        let mut history = History::new(Some(2));
        history.put(PgLsn(10), 1, hide(1));
        history.put(PgLsn(20), 4, hide(4));
        history.put_if_there(PgLsn(25), 9, hide(9));
        history.truncate(PgLsn(30), 1);
        history.put(PgLsn(40), 1, hide(2));
        history.remove(PgLsn(50));
        history.create(PgLsn(60));
        let sizes: Vec<_> = [5, 20, 29, 30, 45, 50, 60].map(|at| history.size(PgLsn(at))).into();
        assert_eq!(sizes, [Some(2), Some(5), Some(5), Some(1), Some(2), None, Some(0)]);
        let chain = |at| {
            let chain = history.chain(1, PgLsn(at));
            (chain.begins, chain.values.iter().map(|(at, _)| at.0).collect::<Vec<_>>())
        };
        let chains = [9, 10, 35, 45].map(chain);
        assert_eq!(chains, [(false, vec![]), (false, vec![10]), (true, vec![]), (true, vec![40])]);
        assert!(history.chain(0, PgLsn(45)).values.is_empty() && !history.chain(0, PgLsn(45)).begins);
    }
}
