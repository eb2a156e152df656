//! Moving lists of objects out of the root.

use super::page::{encode_page, verify_page};
use super::{Form, ListOptions, Page};
use crate::root::{Root, Run, RunObject};
use crate::run::{Key, RunError};
use std::sync::Arc;
use thalweg_base::ObjectId;
use thalweg_storage::Storage;

/// A page with less than this part of the objects that a page may have is joined to a neighbour that is written.
const SMALL_PART: usize = 4;

/// Writes pages for an edit.
pub(crate) struct Packer<'a> {
    pub(crate) storage: &'a Arc<dyn Storage>,
    pub(crate) options: ListOptions,
    pub(crate) new_object: &'a mut dyn FnMut() -> ObjectId,
    /// The list objects that were written.
    pub(crate) made: Vec<ObjectId>,
}

impl Packer<'_> {
    /// Moves lists of objects out of a root until the root is small enough. If a list object cannot be written, the
    /// root keeps that list, and may be larger than its bound until a later edit.
    pub(crate) fn pack(&mut self, root: &mut Root) {
        let loose = |run: &Run| Form::of(&run.objects, &run.pages).loose_bytes();
        let mut sizes: Vec<u64> = root.runs.iter().map(loose).collect();
        while sizes.iter().sum::<u64>() > self.options.root_bytes {
            let Some((run, size)) = root.runs.iter_mut().zip(&mut sizes).max_by_key(|(_, size)| **size) else { return };
            let known = self.made.len();
            match self.repack(run) {
                Ok(pages) => run.pages = pages,
                Err(error) => {
                    tracing::warn!(%error, "a list object could not be written: the manifest keeps the list");
                    self.made.drain(known..).for_each(|page| drop(self.storage.remove(page)));
                    return;
                }
            }
            *size = 0;
        }
    }

    /// The run's list in pages, those that say the same taken over.
    fn repack(&mut self, run: &Run) -> Result<Vec<Page>, RunError> {
        let (mut pages, mut changed) = (Vec::new(), Vec::new());
        let mut rest = &run.objects[..];
        for (number, page) in run.pages.iter().enumerate() {
            let next: Option<Key> = run.pages.get(number + 1).and_then(|next| Some(next.objects.first()?.meta.first));
            let (of_page, later) = rest.split_at(rest.partition_point(|o| next.is_none_or(|next| o.meta.first < next)));
            rest = later;
            let form = Form::of(of_page, std::slice::from_ref(page));
            let is_same = form.gone.is_empty() && form.noted.is_empty() && form.here.is_empty();
            if is_same && of_page.len() >= self.options.page_objects / SMALL_PART {
                self.write(&mut changed, &mut pages)?;
                pages.push(page.clone());
            } else {
                changed.extend_from_slice(of_page);
            }
        }
        changed.extend_from_slice(rest);
        self.write(&mut changed, &mut pages)?;
        Ok(pages)
    }

    fn write(&mut self, objects: &mut Vec<RunObject>, pages: &mut Vec<Page>) -> Result<(), RunError> {
        let count = objects.len().div_ceil(self.options.page_objects.max(1));
        let each = objects.len().div_ceil(count.max(1)).max(1);
        for objects in std::mem::take(objects).chunks(each) {
            let id = (self.new_object)();
            let bytes = encode_page(id, objects);
            let mut writer = self.storage.create(id)?;
            writer.write(&bytes)?;
            writer.finish()?;
            self.made.push(id);
            let page = Page { id, bytes: bytes.len() as u64, objects: objects.into() };
            verify_page(self.storage, &page)?;
            pages.push(page);
        }
        Ok(())
    }
}
