//! The change log of this crate, on a kernel unit in a folder.

use super::{CHUNK_BYTES, Keeper, Reader, body, bytes_in};
use crate::change_cache::ChangeCache;
use crate::format::references::{Group, References};
use crate::read::{self, ReadRange, Sources};
use crate::recent_window::RecentWindow;
use crate::state::transaction::Transaction;
use crate::store::Store;
use crate::unit;
use std::sync::Arc;
use tempfile::TempDir;
use thalweg_base::{Lsn, Millis};
use thalweg_log::When;
use thalweg_shapes_core::route::ids::{ProjectionId, RouteId};
use thalweg_shapes_core::state::entries::{Entries, Entry};
use thalweg_shapes_model::offset::ShapeOffset;

/// As the server has them.
const HOT_BYTES: usize = 64 << 20;
const KEPT_BYTES: usize = 32 << 20;
const SPLIT_BYTES: usize = 64 << 10;

/// `SETTLED`: changes are read from objects, where they lie when they are no longer recent. `KEPT`: assembled changes
/// are kept for other readers.
pub(super) struct Ours<const SETTLED: bool, const KEPT: bool> {
    folder: TempDir,
    store: Arc<Store>,
    recent_window: Arc<RecentWindow>,
    change_cache: Arc<ChangeCache>,
    route_ids: Vec<RouteId>,
    shapes: Vec<Entries>,
    tail: u64,
    end: Lsn,
}

impl<const SETTLED: bool, const KEPT: bool> Keeper for Ours<SETTLED, KEPT> {
    const NAME: &'static str = match (SETTLED, KEPT) {
        (false, _) => "ours",
        (true, true) => "ours, settled",
        (true, false) => "ours, settled, nothing kept",
    };
    type Reader = OurReader;

    fn open(shapes: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(unit::open(folder.path())).unwrap());
        // Settled reads do not measure the content of the recent window.
        let recent_window = Arc::new(RecentWindow::new(if SETTLED { 1 } else { HOT_BYTES }));
        let shapes = vec![Entries::default(); shapes as usize];
        Self {
            folder,
            store,
            recent_window,
            change_cache: Arc::new(ChangeCache::new(if KEPT { KEPT_BYTES } else { 0 })),
            route_ids: (0..shapes.len() as u32).map(RouteId).collect(),
            shapes,
            tail: 0,
            end: Lsn::ZERO,
        }
    }

    fn append(&mut self, lsn: u64, changes: u64) {
        let mut transaction = Transaction::new(lsn as u32, lsn, SPLIT_BYTES);
        for _ in 0..changes {
            let op = transaction.op();
            transaction.add(ProjectionId(0), &self.route_ids, op, |out| {
                out.extend_from_slice(&body(lsn, u64::from(op), false))
            });
        }
        let (bodies, lengths) = transaction.place(self.tail);
        let numbers: Arc<[u64]> = self.route_ids.iter().map(|route_id| u64::from(route_id.0)).collect();
        let group = |placed: &crate::state::transaction::Placed| Group {
            at: placed.at,
            len: placed.len,
            op: placed.op,
            shapes: Arc::clone(&numbers),
        };
        let groups = transaction.placed().iter().map(group).collect();
        let references = References { groups, ..References::new(lsn, lsn as u32) };
        self.end = self.store.write_changes(&bodies, &lengths, &[references]).unwrap().end;
        let at = self.tail;
        self.tail += bodies.len() as u64;
        self.recent_window.push(&self.store, at, bodies, self.end).unwrap();
        for placed in transaction.placed() {
            let entry = Entry { lsn, at: placed.at, op: placed.op, len: placed.len };
            placed.route_ids.iter().for_each(|&route_id| self.shapes[route_id.index()].push(entry, CHUNK_BYTES));
        }
    }

    fn sync(&mut self) {
        self.store.wait(self.end).unwrap();
        if SETTLED {
            self.store.logs().settle(Millis(1), When::Now).unwrap();
        }
    }

    fn bytes_on_disk(&self) -> u64 {
        // The journal's segments are allocated before they are used.
        if SETTLED { bytes_in(self.folder.path()) } else { self.end.0 }
    }

    fn reader(&self) -> OurReader {
        OurReader {
            store: Arc::clone(&self.store),
            recent_window: Arc::clone(&self.recent_window),
            change_cache: Arc::clone(&self.change_cache),
            entries: self.shapes[0].clone(),
        }
    }
}

pub(super) struct OurReader {
    store: Arc<Store>,
    recent_window: Arc<RecentWindow>,
    change_cache: Arc<ChangeCache>,
    entries: Entries,
}

impl Reader for OurReader {
    fn read(&mut self, chunks: usize, sink: &mut dyn FnMut(&[u8])) {
        let mut from = ShapeOffset::SNAPSHOT_END;
        for _ in 0..chunks {
            let part = self.entries.after(from);
            let wanted = ReadRange::Changes { entries: part.entries.to_vec(), whole: part.whole };
            let sources =
                Sources { recent_window: &self.recent_window, store: &self.store, change_cache: &self.change_cache };
            let messages = match read::try_read(1, &wanted, sources) {
                Some(messages) => messages.unwrap(),
                None => read::read(1, &wanted, sources).unwrap(),
            };
            messages.iter().for_each(|part| sink(part));
            from = part.end;
        }
    }
}
