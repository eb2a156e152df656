//! Merging sorted sources: pure, a step at a time, with the memory of one block for each source.

use crate::build::{Builder, Written};
use crate::codec::{Codec, Entry};
use crate::error::ContainerError;
use crate::rule::Rule;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// Entries in key order.
pub trait Source {
    /// To the next entry; false at the end. Before the first call there is none.
    fn advance(&mut self) -> Result<bool, ContainerError>;
    /// The entry at hand.
    fn entry(&self) -> Entry<'_>;
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn advance(&mut self) -> Result<bool, ContainerError> {
        (**self).advance()
    }

    fn entry(&self) -> Entry<'_> {
        (**self).entry()
    }
}

/// Several sources as one, without the entries that a rule drops. Of entries with the same key the one of the newest
/// source comes first.
pub struct Merge<S: Source, R> {
    heads: BinaryHeap<Head<S>>,
    rule: R,
    is_begun: bool,
    read: u64,
}

struct Head<S> {
    source: S,
    /// Newer sources have larger ones.
    age: usize,
}

impl<S: Source> Ord for Head<S> {
    /// The greatest is the next one: the smallest key, and of equal keys the newest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.source.entry().key.cmp(self.source.entry().key).then(self.age.cmp(&other.age))
    }
}

impl<S: Source> PartialOrd for Head<S> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<S: Source> PartialEq for Head<S> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<S: Source> Eq for Head<S> {}

impl<S: Source, R: Rule> Merge<S, R> {
    /// A merge of sources, the oldest first.
    pub fn new(sources: impl IntoIterator<Item = S>, rule: R) -> Result<Self, ContainerError> {
        let mut heads = BinaryHeap::new();
        for (age, mut source) in sources.into_iter().enumerate() {
            if source.advance()? {
                heads.push(Head { source, age });
            }
        }
        Ok(Self { heads, rule, is_begun: false, read: 0 })
    }

    /// How many entries were read, those left out included.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.read
    }

    /// Whether a container may end before the entry at hand.
    #[must_use]
    pub fn may_cut(&self) -> bool {
        self.rule.may_cut()
    }

    fn next_head(&mut self) -> Result<(), ContainerError> {
        let is_begun = std::mem::replace(&mut self.is_begun, true);
        if let (true, Some(mut head)) = (is_begun, self.heads.peek_mut())
            && !head.source.advance()?
        {
            PeekMut::pop(head);
        }
        Ok(())
    }
}

impl<S: Source, R: Rule> Source for Merge<S, R> {
    fn advance(&mut self) -> Result<bool, ContainerError> {
        loop {
            self.next_head()?;
            let Some(head) = self.heads.peek() else { return Ok(false) };
            self.read += 1;
            if self.rule.keep(&head.source.entry())? {
                return Ok(true);
            }
        }
    }

    fn entry(&self) -> Entry<'_> {
        let none = Entry { key: &[], kind: crate::Kind::Value, value: &[] };
        self.heads.peek().map_or(none, |head| head.source.entry())
    }
}

/// Writes the remaining entries of a merge into containers of about `cut_bytes`, each from `begin`. Versions of one key
/// stay together, so a container may become longer. A merge without remaining entries writes nothing.
pub fn write_merged<C: Codec, S: Source, R: Rule>(
    merge: &mut Merge<S, R>,
    cut_bytes: u64,
    mut begin: impl FnMut() -> Result<Builder<C>, ContainerError>,
) -> Result<Vec<Written>, ContainerError> {
    let mut done = Vec::new();
    let mut out: Option<Builder<C>> = None;
    while merge.advance()? {
        if let Some(full) = out.take_if(|out| out.bytes() >= cut_bytes && merge.may_cut()) {
            done.push(full.finish()?);
        }
        let builder = match &mut out {
            Some(builder) => builder,
            None => out.insert(begin()?),
        };
        builder.push(&merge.entry())?;
    }
    if let Some(last) = out {
        done.push(last.finish()?);
    }
    Ok(done)
}
