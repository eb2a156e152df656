//! One transaction before it is written to the change log: encoded changes by projection, and the shapes that have
//! them.

use bytes::Bytes;
use hashbrown::HashMap;
use std::sync::Arc;
use thalweg_log::Lengths;
use thalweg_shapes_core::route::ids::{ProjectionId, RouteId};
use thalweg_shapes_model::row::RowChange;

/// Bodies that lie together in the change log, and the route ids of the shapes that have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub at: u64,
    pub len: u32,
    /// The place of the last change in its transaction.
    pub op: u32,
    /// Ascending.
    pub route_ids: Arc<[RouteId]>,
}

/// Most bytes of changes that are kept for the end of a transaction.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// A transaction that is being read.
#[derive(Debug)]
pub struct Transaction {
    pub xid: u32,
    /// The commit's.
    pub lsn: u64,
    /// A range of bodies is closed when it has this many bytes, so that answers can end there.
    split_bytes: usize,
    next_op: u32,
    bytes: usize,
    deliveries: Deliveries,
    /// Tables that it has invalidated.
    invalidated: Vec<u32>,
    buffers: Vec<Buffer>,
    /// Their places, by their projections.
    by_projection: HashMap<ProjectionId, usize>,
    placed: Vec<Placed>,
    /// Changes that shapes with subqueries have to see together.
    kept: Vec<Arc<RowChange>>,
    kept_bytes: usize,
}

/// How much was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deliveries {
    /// Bodies that were made.
    pub changes: u64,
    /// One for each shape that has one.
    pub shapes: u64,
}

/// Bodies of one projection that are not placed yet.
#[derive(Debug, Default)]
struct Buffer {
    bodies: Vec<u8>,
    lengths: Lengths,
    groups: Vec<Group>,
}

#[derive(Debug)]
struct Group {
    from: usize,
    to: usize,
    op: u32,
    route_ids: Arc<[RouteId]>,
}

impl Transaction {
    #[must_use]
    pub fn new(xid: u32, lsn: u64, split_bytes: usize) -> Self {
        Self {
            xid,
            lsn,
            split_bytes,
            next_op: 0,
            bytes: 0,
            deliveries: Deliveries::default(),
            invalidated: Vec::new(),
            buffers: Vec::new(),
            by_projection: HashMap::new(),
            placed: Vec::new(),
            kept: Vec::new(),
            kept_bytes: 0,
        }
    }

    /// The place of the next change. Places go up by two, so that an update of a key can be a delete and, one place
    /// later, an insert.
    pub fn op(&mut self) -> u32 {
        let op = self.next_op;
        self.next_op = op.saturating_add(2);
        op
    }

    /// Bytes of bodies that are not placed yet.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a table is invalidated for the first time in this transaction.
    pub fn first_invalidation(&mut self, table: u32) -> bool {
        let first = !self.invalidated.contains(&table);
        if first {
            self.invalidated.push(table);
        }
        first
    }

    #[must_use]
    pub fn deliveries(&self) -> Deliveries {
        self.deliveries
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0 && self.placed.is_empty()
    }

    /// Keeps a change for the end of the transaction.
    pub(crate) fn keep(&mut self, change: RowChange) {
        // Beyond the bound only the changed tables are kept.
        let cells = || change.old.iter().chain(&change.new).flat_map(|cells| cells.iter().flatten());
        self.kept_bytes += 64 + cells().map(|cell| cell.len() + 16).sum::<usize>();
        if self.kept_bytes <= KEPT_BYTES_MAX {
            self.kept.push(Arc::new(change));
        } else if !self.kept.iter().any(|kept| kept.table == change.table && kept.is_empty()) {
            self.kept.retain(|kept| kept.is_empty());
            self.kept.push(Arc::new(RowChange { old: None, new: None, ..change }));
        }
    }

    /// The kept changes; `Err`: there were too many, and these are their tables.
    pub(crate) fn take_kept(&mut self) -> Result<Vec<Arc<RowChange>>, Vec<u32>> {
        let kept = std::mem::take(&mut self.kept);
        if self.kept_bytes <= KEPT_BYTES_MAX { Ok(kept) } else { Err(kept.iter().map(|change| change.table).collect()) }
    }

    /// Adds one body for these shapes, which all have this projection. `route_ids` ascend.
    pub fn add(&mut self, projection: ProjectionId, route_ids: &[RouteId], op: u32, render: impl FnOnce(&mut Vec<u8>)) {
        if route_ids.is_empty() {
            return;
        }
        self.deliveries.changes += 1;
        self.deliveries.shapes += route_ids.len() as u64;
        let buffers = &mut self.buffers;
        let at = *self.by_projection.entry(projection).or_insert_with(|| {
            buffers.push(Buffer::default());
            buffers.len() - 1
        });
        let buffer = &mut self.buffers[at];
        let from = buffer.bodies.len();
        render(&mut buffer.bodies);
        let to = buffer.bodies.len();
        self.bytes += to - from;
        buffer.lengths.push(u32::try_from(to - from).unwrap_or(u32::MAX));
        match buffer.groups.last_mut() {
            Some(last) if *last.route_ids == *route_ids && last.to - last.from < self.split_bytes => {
                last.to = to;
                last.op = op;
            }
            last => {
                let route_ids = match last {
                    Some(last) if *last.route_ids == *route_ids => Arc::clone(&last.route_ids),
                    _ => route_ids.into(),
                };
                buffer.groups.push(Group { from, to, op, route_ids });
            }
        }
    }

    /// Takes the bodies out, which go to `at` in the change log.
    pub fn place(&mut self, mut at: u64) -> (Bytes, Lengths) {
        self.bytes = 0;
        self.by_projection.clear();
        let mut all = Vec::new();
        let mut lengths = Lengths::default();
        for buffer in std::mem::take(&mut self.buffers) {
            for group in buffer.groups {
                let len = u32::try_from(group.to - group.from).unwrap_or(u32::MAX);
                self.placed.push(Placed { at: at + group.from as u64, len, op: group.op, route_ids: group.route_ids });
            }
            let placed = self.placed.last().map(|last| last.at + u64::from(last.len));
            at += buffer.bodies.len() as u64;
            debug_assert!(buffer.bodies.is_empty() || placed == Some(at), "bodies that no shape has");
            lengths.append(&buffer.lengths);
            if all.is_empty() { all = buffer.bodies } else { all.extend_from_slice(&buffer.bodies) }
        }
        // The buffer stays in memory for a while, where only its used bytes are counted.
        if all.capacity() - all.len() > all.len() / 8 {
            all.shrink_to_fit();
        }
        (all.into(), lengths)
    }

    /// All placed changes, in the order of the bodies' places in the change log. For each shape that is the order of
    /// its changes: it has one projection.
    #[must_use]
    pub fn placed(&self) -> &[Placed] {
        &self.placed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(t: &mut Transaction, projection: u32, route_ids: &[u32], body: &str) {
        let op = t.op();
        let route_ids: Vec<RouteId> = route_ids.iter().copied().map(RouteId).collect();
        t.add(ProjectionId(projection), &route_ids, op, |out| out.extend_from_slice(body.as_bytes()));
    }

    fn placed(t: &Transaction) -> Vec<(u64, u32, u32, Vec<u32>)> {
        t.placed().iter().map(|p| (p.at, p.len, p.op, p.route_ids.iter().map(|id| id.0).collect())).collect()
    }

    #[test]
    fn changes_of_the_same_shapes_are_one_range() {
        let mut t = Transaction::new(7, 100, 1000);
        add(&mut t, 0, &[1, 2], "aa,");
        add(&mut t, 0, &[1, 2], "bb,");
        add(&mut t, 0, &[1], "c,");
        add(&mut t, 0, &[1, 2], "d,");
        let (bytes, lengths) = t.place(50);
        assert_eq!(&bytes[..], b"aa,bb,c,d,");
        assert_eq!(lengths.iter().collect::<Vec<_>>(), [3, 3, 2, 2]);
        assert_eq!(placed(&t), [(50, 6, 2, vec![1, 2]), (56, 2, 4, vec![1]), (58, 2, 6, vec![1, 2])]);
    }

    #[test]
    fn bodies_of_one_projection_lie_together() {
        let mut t = Transaction::new(7, 100, 1000);
        for body in ["1,", "2,"] {
            let op = t.op();
            t.add(ProjectionId(0), &[RouteId(1)], op, |out| out.extend_from_slice(body.as_bytes()));
            t.add(ProjectionId(4), &[RouteId(9)], op, |out| out.extend_from_slice(format!("f{body}").as_bytes()));
        }
        assert_eq!(&t.place(0).0[..], b"1,2,f1,f2,");
        assert_eq!(placed(&t), [(0, 4, 2, vec![1]), (4, 6, 2, vec![9])]);
    }

    #[test]
    fn a_large_transaction_is_placed_in_pieces_and_split() {
        let mut t = Transaction::new(7, 100, 4);
        add(&mut t, 0, &[1], "aa,");
        add(&mut t, 0, &[1], "bb,");
        add(&mut t, 0, &[1], "cc,");
        assert_eq!(t.bytes(), 9);
        t.place(0);
        assert_eq!(t.bytes(), 0);
        add(&mut t, 0, &[1], "dd,");
        t.place(9);
        assert_eq!(placed(&t), [(0, 6, 2, vec![1]), (6, 3, 4, vec![1]), (9, 3, 6, vec![1])]);
        assert!(!t.is_empty());
    }

    #[test]
    fn what_no_shape_wants_is_not_rendered() {
        let mut t = Transaction::new(7, 100, 4);
        t.add(ProjectionId(0), &[], 0, |_| panic!("rendered"));
        assert!(t.is_empty());
    }
}
