//! List objects: the parts of runs' object lists that the root does not hold itself.
//!
//! A run has thousands of objects, and the root is written with every edit. So a list is cut into *pages*, in the order
//! of keys, and each page is an immutable object. The root names the pages of a run and holds how the run differs from
//! them by now: objects that are gone, objects in which something has died since, and objects that came. When the root
//! would hold more of that than [`ListOptions::root_bytes`], the run with the largest part of it has the pages that
//! differ written once more ([`pack`]).
//!
//! Hence the root has at most `root_bytes` of lists, and about 12 bytes for every page. A change of one object costs a
//! page at most, and only in the edit that folds it: usually many changes share one. An object's number of live bytes
//! is no such change: see `crate::ledger`. `docs/format/objects.md` has the bytes of a page.

mod pack;
mod page;

pub(crate) use pack::Packer;
pub(crate) use page::{decode_page, verify_page};
#[cfg(all(test, not(feature = "shuttle")))]
pub(crate) use tests::{sample_root, samples};

use crate::root::RunObject;
use crate::run::RunError;
use page::read_page;
use std::sync::Arc;
use thalweg_base::{DecodeError, Decoder, Encoder, Millis, ObjectId};
use thalweg_storage::{Storage, StorageError};

/// No page is longer: one that says so is damaged.
const PAGE_BYTES_MAX: u64 = 64 << 20;

/// The bounds of lists in the root and in list objects. They affect the root's size only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListOptions {
    /// How many bytes of lists the root holds itself, at most, as long as list objects can be written.
    pub root_bytes: u64,
    /// How many objects one list object lists, at most.
    pub page_objects: usize,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self { root_bytes: 32 << 10, page_objects: 1024 }
    }
}

/// A part of a run's list that is in a list object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) id: ObjectId,
    /// The length of the list object.
    pub(crate) bytes: u64,
    /// As they were listed. Never empty.
    objects: Arc<[RunObject]>,
}

/// A run's list as the root holds it. Positions count the objects of all pages, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    pages: Vec<Named>,
    /// Positions of objects that are in the run no longer.
    gone: Vec<u64>,
    /// Positions of objects of which something has died, or is live again, since the page was written.
    noted: Vec<(u64, Noted)>,
    /// Objects that no page has.
    pub(crate) here: Vec<RunObject>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named {
    id: ObjectId,
    bytes: u64,
    objects: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Noted {
    live_bytes: u64,
    dead_since: Option<Millis>,
}

impl Form {
    pub(crate) fn of(objects: &[RunObject], pages: &[Page]) -> Self {
        let named = |page: &Page| Named { id: page.id, bytes: page.bytes, objects: page.objects.len() as u64 };
        let mut form = Self { pages: pages.iter().map(named).collect(), ..Self::default() };
        let mut rest = objects.iter().copied().peekable();
        for (position, listed) in (0..).zip(pages.iter().flat_map(|page| page.objects.iter())) {
            while let Some(before) = rest.next_if(|object| object.meta.first < listed.meta.first) {
                form.here.push(before);
            }
            match rest.next_if(|object| object.meta.id == listed.meta.id) {
                None => form.gone.push(position),
                Some(object) if object.dead_since != listed.dead_since => {
                    let RunObject { live_bytes, dead_since, .. } = object;
                    form.noted.push((position, Noted { live_bytes, dead_since }));
                }
                Some(_) => {}
            }
        }
        form.here.extend(rest);
        form
    }

    pub(crate) fn has_pages(&self) -> bool {
        !self.pages.is_empty()
    }

    /// The list objects, with their lengths.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (ObjectId, u64)> + '_ {
        self.pages.iter().map(|page| (page.id, page.bytes))
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.pages.len() as u64);
        for page in &self.pages {
            out.put_varint(page.id.0);
            out.put_varint(page.bytes);
            out.put_varint(page.objects);
        }
        if self.has_pages() {
            self.encode_changes(out);
        }
        out.put_varint(self.here.len() as u64);
        self.here.iter().for_each(|object| object.encode(out));
    }

    fn encode_changes(&self, out: &mut Vec<u8>) {
        let mut before = 0;
        let mut step = |position: u64| position - std::mem::replace(&mut before, position);
        out.put_varint(self.gone.len() as u64);
        self.gone.iter().for_each(|position| out.put_varint(step(*position)));
        before = 0;
        let mut step = |position: u64| position - std::mem::replace(&mut before, position);
        out.put_varint(self.noted.len() as u64);
        for (position, noted) in &self.noted {
            out.put_varint(step(*position));
            out.put_varint(noted.live_bytes);
            out.put_varint(noted.dead_since.map_or(0, |at| at.0));
        }
    }

    pub(crate) fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut pages = Vec::new();
        let mut listed = 0u64;
        for _ in 0..d.varint()? {
            let page = Named { id: ObjectId(d.varint()?), bytes: d.varint()?, objects: d.varint()? };
            // An entry of a list has more than one byte.
            if page.bytes > PAGE_BYTES_MAX || !(1..page.bytes).contains(&page.objects) {
                return Err(DecodeError::Range("length of a list object"));
            }
            listed = listed.checked_add(page.objects).ok_or(DecodeError::Range("objects of a run"))?;
            pages.push(page);
        }
        let mut form = Self { pages, ..Self::default() };
        if form.has_pages() {
            form.decode_changes(d, listed)?;
        }
        form.here = Self::decode_here(d)?.here;
        Ok(form)
    }

    fn decode_changes(&mut self, d: &mut Decoder<'_>, listed: u64) -> Result<(), DecodeError> {
        let position = |d: &mut Decoder<'_>, before: Option<u64>| {
            let step = d.varint()?;
            let position = before.unwrap_or(0).checked_add(step).filter(|position| *position < listed);
            let rises = step > 0 || before.is_none();
            position.filter(|_| rises).ok_or(DecodeError::Range("position in a list"))
        };
        for _ in 0..d.varint()? {
            self.gone.push(position(d, self.gone.last().copied())?);
        }
        for _ in 0..d.varint()? {
            let position = position(d, self.noted.last().map(|(position, _)| *position))?;
            let live_bytes = d.varint()?;
            let dead_since = Some(Millis(d.varint()?)).filter(|at| at.0 > 0);
            self.noted.push((position, Noted { live_bytes, dead_since }));
        }
        Ok(())
    }

    /// A run that the root lists itself: all there was before list objects.
    pub(crate) fn decode_here(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut here = Vec::new();
        for _ in 0..d.varint()? {
            here.push(RunObject::decode(d)?);
        }
        Ok(Self { here, ..Self::default() })
    }

    /// The run's objects and its pages. Damaged list objects are left out, with the objects that they list.
    pub(crate) fn read(
        self,
        storage: &Arc<dyn Storage>,
        damaged: &mut Vec<(ObjectId, RunError)>,
    ) -> Result<(Vec<RunObject>, Vec<Page>), RunError> {
        let mut pages = Vec::with_capacity(self.pages.len());
        let mut objects = self.here;
        let (mut gone, mut noted) = (self.gone.iter().peekable(), self.noted.iter().peekable());
        let mut position = 0;
        for named in &self.pages {
            let end = position + named.objects;
            let page = match read_page(storage, named) {
                Ok(page) => page,
                Err(error) if is_damage(&error) => {
                    damaged.push((named.id, error));
                    while gone.next_if(|at| **at < end).is_some() {}
                    while noted.next_if(|(at, _)| *at < end).is_some() {}
                    position = end;
                    continue;
                }
                Err(error) => return Err(error),
            };
            for (at, listed) in (position..).zip(page.objects.iter()) {
                let mut object = *listed;
                if let Some((_, Noted { live_bytes, dead_since })) = noted.next_if(|(noted, _)| *noted == at) {
                    (object.live_bytes, object.dead_since) = (*live_bytes, *dead_since);
                }
                if gone.next_if(|gone| **gone == at).is_none() {
                    objects.push(object);
                }
            }
            position = end;
            pages.push(page);
        }
        objects.sort_by_key(|object| object.meta.first);
        Ok((objects, pages))
    }

    /// How many bytes the root would save if all of the run were in pages.
    fn loose_bytes(&self) -> u64 {
        let mut out = Vec::new();
        Self { pages: Vec::new(), ..self.clone() }.encode(&mut out);
        self.encode_changes(&mut out);
        out.len() as u64
    }
}

fn is_damage(error: &RunError) -> bool {
    match error {
        RunError::Storage(error) => matches!(error, StorageError::Unreadable { .. } | StorageError::Missing(_)),
        _ => true,
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
