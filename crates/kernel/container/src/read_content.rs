//! Reading content by ranges; never waits.

use crate::cache::BlockCache;
use crate::content::PAGE_BYTES;
use crate::error::ContainerError;
use crate::footer::HEADER_BYTES;
use crate::load::{Loader, Need};
use crate::object::Object;
use bytes::Bytes;
use std::ops::Range;

/// The longest range of content that one reader takes, in bytes.
pub const CONTENT_READ_MAX: u64 = 16 << 20;

/// Reads a range of the section of content, and checks every page of it.
pub struct ContentRead {
    load: Loader,
    range: Range<u64>,
    /// Blocks of checksums: the pages that they are of.
    sums: Vec<(Range<u64>, Bytes)>,
}

impl ContentRead {
    /// A read of `range` of the section of content, at most [`CONTENT_READ_MAX`] bytes.
    pub fn new(object: Object, codec: u32, range: Range<u64>) -> Result<Self, ContainerError> {
        let len = range.end.saturating_sub(range.start);
        if len > CONTENT_READ_MAX {
            let max = CONTENT_READ_MAX as usize;
            return Err(ContainerError::TooLarge { what: "a read of content", len: len as usize, max });
        }
        Ok(Self { load: Loader::new(object, codec), range, sums: Vec::new() })
    }

    /// Goes on with the bytes that the step before wanted.
    pub fn step(&mut self, cache: &dyn BlockCache, fed: Option<Bytes>) -> Result<Need<Bytes>, ContainerError> {
        self.load.feed(fed)?;
        let Some(root) = self.load.root(cache)? else { return Ok(self.load.wants()) };
        let layout = self.load.layout(&root);
        let object = self.load.object().id;
        if self.range.end > layout.content_bytes || self.range.start > self.range.end {
            let what = format!("{:?} is outside of its {} bytes of content", self.range, layout.content_bytes);
            return Err(ContainerError::corrupt(object, HEADER_BYTES, what));
        }
        if self.range.is_empty() {
            return Ok(Need::Done(Bytes::new()));
        }
        let pages = layout.pages_of(&self.range);
        while let Some(page) =
            self.sums.last().map_or(Some(pages.start), |(of, _)| Some(of.end).filter(|end| *end < pages.end))
        {
            let (of, range) = layout.sums_of(page);
            let Some(sums) = self.load.sums(cache, &layout, range)? else { return Ok(self.load.wants()) };
            self.sums.push((of, sums));
        }
        let range = layout.range_of(&pages);
        let Some(bytes) = self.load.fetch(range.clone()) else { return Ok(self.load.wants()) };
        for (page, content) in pages.zip(bytes.chunks(PAGE_BYTES as usize)) {
            if let Some((of, sums)) = self.sums.iter().find(|(of, _)| of.contains(&page)) {
                layout.check(of, sums, page, content)?;
            }
        }
        let from = (self.range.start + HEADER_BYTES - range.start) as usize;
        Ok(Need::Done(bytes.slice(from..from + (self.range.end - self.range.start) as usize)))
    }
}
