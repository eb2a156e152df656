//! A cursor over one container, both ways; never waits.

use crate::block::BlockCursor;
use crate::cache::BlockCache;
use crate::codec::Entry;
use crate::error::ContainerError;
use crate::load::{Loader, Need};
use crate::lookup::Found;
use crate::object::Object;
use crate::root::{Root, Stats};
use bytes::Bytes;
use std::sync::Arc;

/// Stands at an entry, or nowhere: before the first move, and after one that went over an end.
pub struct Cursor {
    load: Loader,
    goal: Goal,
    /// The block at hand: its partition, its number there, and the place in it.
    block: Option<(usize, usize, BlockCursor)>,
    is_at_entry: bool,
}

/// The destination of the cursor.
enum Goal {
    Stay,
    Key(Vec<u8>),
    /// The first entry of a block, or the last one.
    Edge {
        part: usize,
        block: usize,
        edge: Edge,
    },
    Next,
    Previous,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    First,
    Last,
}

impl Cursor {
    /// A cursor at no entry: seek first. A container of another codec than `codec` is refused at the first step.
    #[must_use]
    pub fn new(object: Object, codec: u32) -> Self {
        Self { load: Loader::new(object, codec), goal: Goal::Stay, block: None, is_at_entry: false }
    }

    /// To the first entry at or after `key`.
    pub fn seek(&mut self, key: &[u8]) {
        self.goal = Goal::Key(key.to_vec());
    }

    /// To the first entry of the container.
    pub fn seek_first(&mut self) {
        self.goal = Goal::Edge { part: 0, block: 0, edge: Edge::First };
    }

    /// To the last entry of the container.
    pub fn seek_last(&mut self) {
        self.goal = Goal::Edge { part: usize::MAX, block: usize::MAX, edge: Edge::Last };
    }

    /// To the entry behind the one at hand.
    pub fn next(&mut self) {
        self.goal = Goal::Next;
    }

    /// To the entry before the one at hand.
    pub fn previous(&mut self) {
        self.goal = Goal::Previous;
    }

    /// The entry at hand.
    #[must_use]
    pub fn entry(&self) -> Option<Entry<'_>> {
        self.block.as_ref().filter(|_| self.is_at_entry).map(|(_, _, cursor)| cursor.entry())
    }

    /// The entry at hand, with memory of its own but for the value.
    #[must_use]
    pub fn found(&self) -> Option<Found> {
        self.block.as_ref().filter(|_| self.is_at_entry).map(|(_, _, cursor)| Found::of(cursor))
    }

    /// Goes on with the bytes that the step before wanted; done, it says whether the cursor stands at an entry.
    pub fn step(&mut self, cache: &dyn BlockCache, fed: Option<Bytes>) -> Result<Need<bool>, ContainerError> {
        self.load.feed(fed)?;
        let Some(root) = self.load.root(cache)? else { return Ok(self.load.wants()) };
        loop {
            let done = match std::mem::replace(&mut self.goal, Goal::Stay) {
                Goal::Stay => return Ok(Need::Done(self.is_at_entry)),
                Goal::Key(key) => {
                    let part = root.part_of(&key);
                    self.enter(cache, &root, part, &Goal::Key(key))?
                }
                Goal::Edge { part, block, edge } => {
                    let part = if edge == Edge::Last { part.min(root.parts.len().wrapping_sub(1)) } else { part };
                    self.enter(cache, &root, part, &Goal::Edge { part, block, edge })?
                }
                Goal::Next => self.move_on(Edge::First)?,
                Goal::Previous => self.move_on(Edge::Last)?,
            };
            if !done {
                return Ok(self.load.wants());
            }
        }
    }

    /// The container's statistics; `None` before the first step is done.
    pub fn stats(&mut self, cache: &dyn BlockCache) -> Result<Option<Stats>, ContainerError> {
        Ok(self.load.root(cache)?.map(|root| root.stats.clone()))
    }

    /// Within the block, or sets the goal to the neighbouring block's edge.
    fn move_on(&mut self, edge: Edge) -> Result<bool, ContainerError> {
        let Some((part, block, cursor)) = self.block.as_mut().filter(|_| self.is_at_entry) else {
            return Ok(true);
        };
        let moved = if edge == Edge::First { cursor.advance() } else { cursor.previous() };
        let object = self.load.object();
        self.is_at_entry = moved.map_err(|error| ContainerError::corrupt(object.id, 0, error))?;
        if !self.is_at_entry {
            let (part, block) = (*part, *block);
            self.goal = match (edge, block.checked_sub(1), part.checked_sub(1)) {
                (Edge::First, ..) => Goal::Edge { part, block: block + 1, edge },
                (Edge::Last, Some(block), _) => Goal::Edge { part, block, edge },
                (Edge::Last, None, Some(part)) => Goal::Edge { part, block: usize::MAX, edge },
                (Edge::Last, None, None) => Goal::Stay,
            };
        }
        Ok(true)
    }

    /// Loads a block and goes to its entry. False if something must be waited for: the goal stays.
    fn enter(
        &mut self,
        cache: &dyn BlockCache,
        root: &Arc<Root>,
        part: usize,
        goal: &Goal,
    ) -> Result<bool, ContainerError> {
        let Some(of_root) = root.parts.get(part) else {
            self.is_at_entry = false;
            return Ok(true);
        };
        let Some(partition) = self.load.partition(cache, root, part)? else {
            self.goal = goal.again();
            return Ok(false);
        };
        let block = match goal {
            Goal::Key(key) => partition.block_of(key),
            Goal::Edge { block, edge: Edge::Last, .. } => (*block).min(partition.len() - 1),
            Goal::Edge { block, .. } => *block,
            _ => 0,
        };
        if block >= partition.len() {
            self.goal = Goal::Edge { part: part + 1, block: 0, edge: Edge::First };
            return Ok(true);
        }
        let range = partition.range(block, of_root.data);
        let at = range.start;
        let Some(loaded) = self.load.block(cache, range)? else {
            self.goal = goal.again();
            return Ok(false);
        };
        let mut cursor = BlockCursor::new(loaded);
        let found = match goal {
            Goal::Key(key) => cursor.seek(key),
            Goal::Edge { edge: Edge::Last, .. } => cursor.last(),
            _ => cursor.advance(),
        };
        let object = self.load.object().id;
        if !found.map_err(|error| ContainerError::corrupt(object, at, error))? {
            return Err(ContainerError::corrupt(object, at, "the block ends before its last key"));
        }
        self.block = Some((part, block, cursor));
        self.is_at_entry = true;
        Ok(true)
    }
}

impl Goal {
    fn again(&self) -> Self {
        match self {
            Self::Key(key) => Self::Key(key.clone()),
            Self::Edge { part, block, edge } => Self::Edge { part: *part, block: *block, edge: *edge },
            _ => Self::Stay,
        }
    }
}
