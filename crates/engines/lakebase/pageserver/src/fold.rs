//! Pages out of what has changed them: in turns, because what is done here and what redo routines do may alternate.

use crate::error::PageError;
use crate::timeline::Key;
use crate::value::Value;
use std::collections::VecDeque;
use thalweg_lakebase_redo::{Change, Page, PageRedo, Redo, apply_image, clear_visibility, heap_blocks_per_map};
use thalweg_lakebase_wal::PAGE_BYTES;
use thalweg_pg::PgLsn;

/// A page that is being made.
pub(crate) struct Fold {
    key: Key,
    /// `None`: all zeros.
    page: Option<Page>,
    rest: VecDeque<(PgLsn, Value)>,
}

impl Fold {
    /// From a page, or nothing, and what changes it.
    pub(crate) fn new(key: Key, page: Option<Page>, values: Vec<(PgLsn, Value)>) -> Self {
        Self { key, page, rest: values.into() }
    }

    /// Does all that needs no redo routine, and gives the records that come then.
    fn advance(&mut self) -> Result<Vec<Change>, PageError> {
        let (_, _, block) = self.key;
        let per_map = heap_blocks_per_map();
        while let Some((at, value)) = self.rest.front() {
            match value {
                Value::Image(image) => {
                    let at = *at;
                    self.page = Some(apply_image(image, at).map_err(|error| PageError::Image { at, error })?);
                }
                Value::Hide { heap_block, only_frozen } => {
                    if let Some(map) = &mut self.page {
                        clear_visibility(map, *heap_block, *only_frozen);
                    }
                }
                Value::HideFrom { heap_block } => {
                    let first = (*heap_block).max(block.saturating_mul(per_map));
                    if let Some(map) = &mut self.page {
                        let end = block.saturating_add(1).saturating_mul(per_map);
                        (first..end).for_each(|heap_block| clear_visibility(map, heap_block, false));
                    }
                }
                Value::Record { begins, .. } => {
                    if *begins {
                        self.page = None;
                    }
                    return Ok(self.records());
                }
            }
            self.rest.pop_front();
        }
        Ok(Vec::new())
    }

    /// Takes the records at the front, up to the next value that is none.
    fn records(&mut self) -> Vec<Change> {
        let mut records = Vec::new();
        while let Some((_, Value::Record { .. })) = self.rest.front() {
            if let Some((_, Value::Record { change, .. })) = self.rest.pop_front() {
                records.push(change);
            }
        }
        records
    }
}

/// Makes all of them: a page for each, in order.
pub(crate) fn finish(redo: &Redo, folds: Vec<Fold>) -> Vec<Result<Page, PageError>> {
    let mut folds: Vec<Result<Fold, PageError>> = folds.into_iter().map(Ok).collect();
    loop {
        let (mut asked, mut requests) = (Vec::new(), Vec::new());
        for (at, slot) in folds.iter_mut().enumerate() {
            let Ok(fold) = slot else { continue };
            match fold.advance() {
                Ok(changes) if changes.is_empty() => {}
                Ok(changes) => {
                    let (relation, fork, block) = fold.key;
                    asked.push(at);
                    requests.push(PageRedo { relation, fork, block, base: fold.page.take(), changes });
                }
                Err(error) => *slot = Err(error),
            }
        }
        if requests.is_empty() {
            break;
        }
        for (at, made) in asked.into_iter().zip(redo.apply(&requests)) {
            match (made, &mut folds[at]) {
                (Ok(page), Ok(fold)) => fold.page = Some(page),
                (Ok(_), Err(_)) => {}
                (Err(error), slot) => *slot = Err(error.into()),
            }
        }
    }
    let empty = || Box::new([0; PAGE_BYTES]);
    folds.into_iter().map(|fold| fold.map(|fold| fold.page.unwrap_or_else(empty))).collect()
}
