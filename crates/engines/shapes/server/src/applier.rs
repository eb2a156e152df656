//! Puts transactions into the change log and into their shapes.

use crate::acknowledge::Acknowledge;
use crate::engine::Engine;
use crate::format::references::{Group, References};
use crate::router::Upset;
use crate::shape::Shape;
use crate::state::transaction::Transaction;
use crate::store::StoreError;
use crate::subquery::{Ended, Publication, Verdict};
use crate::trim_index::TrimPoint;
use bytes::Bytes;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::Lsn;
use thalweg_log::Lengths;
use thalweg_shapes_core::state::entries::Entry;
use thalweg_shapes_model::history::Anchor;
use thalweg_shapes_source::anchor::Diverged;
use thalweg_shapes_source::replicate::Apply;
use thalweg_wire::pg;
use thalweg_wire::pg::pgoutput::{DecodeError, Message};

/// Bodies of one transaction beyond this go to the change log before it is complete.
const PLACE_BYTES: usize = 4 << 20;
/// How long to wait for the disk to have space again, or for settling to catch up.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Why following must end for now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error(transparent)]
    Stream(#[from] pg::Error),
    #[error("a message of the replication stream cannot be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("a large transaction cannot be kept on the disk: {0}")]
    Spill(#[from] std::io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Diverged(#[from] Diverged),
}

/// Applies what one stream sends.
pub(crate) struct Applier {
    engine: Arc<Engine>,
    transaction: Option<Transaction>,
    /// Where the next bodies go in the change log.
    tail: u64,
    /// Where the next references go.
    references_tail: u64,
    /// Where the bodies of this transaction begin.
    first: u64,
    acknowledge: Acknowledge,
    /// Everything before it was applied.
    reached: u64,
    /// Before this was applied the stream does not end because nobody asks for shapes.
    owed: u64,
    /// The end of the last frame.
    written: Lsn,
    /// Something was written since the last pause.
    fresh: bool,
}

impl Applier {
    /// `from`: where the stream starts.
    pub(crate) fn new(engine: Arc<Engine>, from: u64) -> Self {
        let tail = engine.store.changes_tail();
        let references_tail = engine.store.references_tail();
        engine.watermarks.set_published(tail);
        engine.write_stall.forget();
        let acknowledge = Acknowledge::new(from, engine.clock.now());
        Self {
            engine,
            transaction: None,
            tail,
            references_tail,
            first: tail,
            acknowledge,
            reached: from,
            owed: from,
            written: Lsn::ZERO,
            fresh: false,
        }
    }

    /// Has the stream come this far before it may end because nobody asks for shapes. A stream that was cut off earlier each time would never
    /// get past a long transaction, and Postgres would keep its log for ever.
    pub(crate) fn at_least(self, end: u64) -> Self {
        Self { owed: end, ..self }
    }

    /// Writes bodies, and the references if the transaction is complete; tries again for as long as there is no space.
    fn write(&mut self, transaction: &mut Transaction, complete: bool) -> Result<(), ApplyError> {
        let (bodies, lengths) = transaction.place(self.tail);
        let references = complete.then(|| self.references(transaction));
        self.append(bodies, &lengths, references.as_slice(), complete)
    }

    /// Writes one frame, or several if there is too much for one: the references, which make the transaction complete, come with the last.
    fn append(
        &mut self,
        bodies: Bytes,
        lengths: &Lengths,
        references: &[References],
        complete: bool,
    ) -> Result<(), ApplyError> {
        let frame_max = match self.append_frame(bodies.clone(), lengths, references, complete) {
            Err(ApplyError::Store(error)) if !bodies.is_empty() && error.frame_max().is_some() => error.frame_max(),
            done => return done,
        };
        let mut rest = bodies;
        // A frame has more than bodies.
        for piece in pieces(lengths, frame_max.unwrap_or_default() / 2) {
            let bodies = rest.split_to(usize::try_from(piece.bytes()).unwrap_or(usize::MAX).min(rest.len()));
            self.append_frame(bodies, &piece, &[], false)?;
        }
        if complete { self.append_frame(Bytes::new(), &Lengths::default(), references, true) } else { Ok(()) }
    }

    /// The transaction's references are more than a frame holds. They cannot be written in parts, as a crash between two would leave it half
    /// told: the shapes that it changes go.
    fn too_many_ranges(&mut self, transaction: &Transaction, error: &StoreError) {
        let shapes: Vec<Arc<Shape>> = {
            let slots: HashSet<u32> =
                transaction.placed().iter().flat_map(|placed| placed.slots.iter().copied()).collect();
            let router = self.engine.router.lock();
            slots.into_iter().filter_map(|slot| router.shape(slot).cloned()).collect()
        };
        tracing::warn!(shapes = shapes.len(), %error, "shapes are dropped: one transaction has too many changes for different shapes in turn (journal_segment_bytes)");
        for shape in shapes {
            self.written = self.written.max(self.engine.drop_shape(&shape));
        }
        self.fresh = true;
    }

    fn append_frame(
        &mut self,
        bodies: Bytes,
        lengths: &Lengths,
        references: &[References],
        complete: bool,
    ) -> Result<(), ApplyError> {
        let written = loop {
            match self.engine.store.write_changes(&bodies, lengths, references) {
                Err(error) if error.is_transient() && !self.engine.stopping() => {
                    self.engine.write_stall.failed(&error, self.engine.clock.now());
                    self.engine.clock.sleep(RETRY_AFTER);
                }
                written => break written?,
            }
        };
        self.engine.write_stall.over(|| self.engine.clock.now());
        let end = written.end;
        (self.written, self.fresh) = (end, true);
        if complete {
            self.engine.trim_index.lock().note(TrimPoint { bodies: self.first, references: self.references_tail });
            self.references_tail += written.references;
        }
        let at = self.tail;
        self.tail += bodies.len() as u64;
        if !bodies.is_empty() {
            self.engine.recent_window.push(&self.engine.store, at, bodies, end)?;
        }
        Ok(())
    }

    /// Finds out what a table is a partition of. If that cannot be had in time, shapes that its rows may belong to are dropped.
    fn meet(&mut self, relation: u32, transaction: Option<&Transaction>) {
        match self.engine.partitions.ancestors(relation) {
            Ok(ancestors) => self.engine.router.lock().know_ancestors([(relation, ancestors)]),
            Err(error) => {
                tracing::warn!(relation, %error, "it is not known what a table is a partition of");
                let wholes: Vec<u32> = self.engine.router.lock().wholes().collect();
                for oid in wholes {
                    let why = "may have a new partition";
                    let end = match transaction {
                        None => self.engine.drop_table(oid, why),
                        Some(transaction) => self.engine.drop_table_by(oid, why, transaction.xid, transaction.lsn),
                    };
                    (self.written, self.fresh) = (self.written.max(end), true);
                }
            }
        }
    }

    fn references(&self, transaction: &Transaction) -> References {
        let router = self.engine.router.lock();
        let mut groups: Vec<Group> = Vec::with_capacity(transaction.placed().len());
        let mut before: Option<&Arc<[u32]>> = None;
        // What belongs behind rows that are still on their way is referred to together with them.
        let graph = self.engine.subqueries.graph.lock();
        for placed in transaction.placed() {
            if !graph.held().is_empty() && placed.slots.iter().all(|slot| graph.held().contains(slot)) {
                continue;
            }
            let shapes = match (before, groups.last()) {
                (Some(slots), Some(group)) if *slots == placed.slots => Arc::clone(&group.shapes),
                _ => {
                    let mut numbers: Vec<u64> =
                        placed.slots.iter().filter_map(|slot| Some(router.shape(*slot)?.number)).collect();
                    numbers.sort_unstable();
                    numbers.into()
                }
            };
            before = Some(&placed.slots);
            groups.push(Group { at: placed.at, len: placed.len, op: placed.op, shapes });
        }
        groups.retain(|group| !group.shapes.is_empty());
        References { groups, ..References::new(transaction.lsn, transaction.xid) }
    }

    /// Has the shapes with subqueries see a whole transaction.
    fn depend(&mut self, transaction: &mut Transaction) -> Verdict {
        let mut graph = self.engine.subqueries.graph.lock();
        if graph.is_empty() {
            return Verdict::default();
        }
        match transaction.take_kept() {
            Ok(changes) => graph.transaction(&changes, transaction),
            Err(tables) => {
                let drop = graph.of_tables(&tables).into_iter();
                Verdict {
                    drop: drop.map(|shape| (shape, "one transaction changed too much".into())).collect(),
                    ..Verdict::default()
                }
            }
        }
    }

    /// Drops the shapes that cannot go on with what the graph saw. That is written before what it saw: a start must not find a shape whose log
    /// has this transaction behind it, and knows nothing of it.
    fn drop_ended(&mut self, verdict: &Verdict) {
        for (shape, why) in &verdict.drop {
            let end = match why {
                Ended::Because(why) => {
                    tracing::info!(table = %shape.family.name, "a shape with subqueries is dropped: {why}");
                    self.engine.drop_shape(shape)
                }
                Ended::Costly => self.engine.drop_costly(shape),
            };
            self.written = self.written.max(end);
            self.fresh = true;
        }
    }

    /// Everything before `lsn` was applied.
    fn pass(&mut self, lsn: u64) {
        let mut graph = self.engine.subqueries.graph.lock();
        if graph.is_listening() {
            let verdict = graph.pass(None, lsn);
            drop(graph);
            self.drop_ended(&verdict);
        }
    }

    /// Puts rows that came into the log, and shows what is durable.
    fn moves(&mut self) -> Result<(), ApplyError> {
        self.engine.subqueries.fetcher.start(&self.engine);
        // Snapshots may have become known since the stream got here.
        self.pass(self.reached);
        for arrival in self.engine.subqueries.fetcher.arrivals() {
            let mut graph = self.engine.subqueries.graph.lock();
            match arrival.rows {
                Ok(rows) => graph.arrived(arrival.shape, arrival.pending, rows),
                Err(why) => {
                    let shape = graph.shape(arrival.shape);
                    drop(graph);
                    if let Some(shape) = shape {
                        tracing::warn!(table = %shape.family.name, why, "rows of a subquery cannot be fetched");
                        self.engine.drop_shape(&shape);
                    }
                }
            }
        }
        loop {
            let publication = self.engine.subqueries.graph.lock().publish(self.engine.split_bytes());
            let Some(publication) = publication else { break };
            self.put_in(publication)?;
        }
        // Another stream may have begun since they were put in.
        let mut holding = self.engine.subqueries.holding.lock();
        if !holding.is_empty() {
            let durable = self.engine.store.durable();
            let chunk_bytes = self.engine.config.http.chunk_bytes;
            holding.retain(|(shape, end)| {
                let done = *end <= durable;
                if done {
                    shape.change(|state| state.release(durable, chunk_bytes));
                }
                !done
            });
        }
        Ok(())
    }

    /// Writes rows that came for one shape, what waited for them, and what they do to others.
    fn put_in(&mut self, publication: Publication) -> Result<(), ApplyError> {
        let Publication { mut transaction, shape, pending, boundary, slot, verdict } = publication;
        self.drop_ended(&verdict);
        let (bodies, lengths) = transaction.place(self.tail);
        let number: Arc<[u64]> = [shape.number].into();
        let mut own = References::new(boundary, transaction.xid);
        let mut references = References::new(transaction.lsn, transaction.xid);
        let mut rows = Vec::new();
        let mut others: Vec<(Arc<Shape>, Entry)> = Vec::new();
        {
            let router = self.engine.router.lock();
            let graph = self.engine.subqueries.graph.lock();
            for placed in transaction.placed() {
                let entry = Entry { lsn: transaction.lsn, at: placed.at, op: placed.op, len: placed.len };
                for at in placed.slots.iter() {
                    let Some(of) = router.shape(*at) else { continue };
                    let group = |shapes| Group { at: placed.at, len: placed.len, op: placed.op, shapes };
                    if *at == slot {
                        rows.push((transaction.xid, Entry { lsn: boundary, ..entry }));
                        own.groups.push(group(Arc::clone(&number)));
                    } else {
                        others.push((Arc::clone(of), entry));
                        if !graph.held().contains(at) {
                            references.groups.push(group([of.number].into()));
                        }
                    }
                }
            }
        }
        references.began = sorted(&verdict.began);
        own.ended = vec![shape.number];
        let mut all = vec![own];
        for (xid, entry) in shape.lock().held_behind(pending) {
            let group = Group { at: entry.at, len: entry.len, op: entry.op, shapes: Arc::clone(&number) };
            match all.last_mut() {
                Some(last) if last.lsn == entry.lsn && last.ended.is_empty() => last.groups.push(group),
                _ => all.push(References { groups: vec![group], ..References::new(entry.lsn, xid) }),
            }
        }
        if !references.groups.is_empty() || !references.began.is_empty() {
            all.push(references);
        }
        match self.append(bodies, &lengths, &all, true) {
            Err(ApplyError::Store(error)) if error.frame_max().is_some() => {
                tracing::warn!(%error, "shapes are dropped: rows that came for a subquery are for too many of them in turn (journal_segment_bytes)");
                for shape in others.iter().map(|(other, _)| other).chain([&shape]) {
                    self.written = self.written.max(self.engine.drop_shape(shape));
                }
                self.fresh = true;
                self.engine.subqueries.graph.lock().published(shape.number);
                self.engine.subqueries.fetcher.want(&self.engine, &verdict.ask);
                return Ok(());
            }
            written => written?,
        }
        let end = self.written;
        shape.lock().open_barrier(pending, &rows, end);
        let number = shape.number;
        let mut holding = vec![(shape, end)];
        for (other, entry) in others {
            let mut state = other.lock();
            // It tells of rows that cannot be fetched twice.
            state.hold_until(end);
            state.push(transaction.xid, entry, self.engine.config.http.chunk_bytes);
            drop(state);
            holding.push((other, end));
        }
        self.engine.subqueries.graph.lock().published(number);
        self.engine.subqueries.holding.lock().append(&mut holding);
        self.engine.watermarks.set_published(self.tail);
        self.engine.subqueries.fetcher.want(&self.engine, &verdict.ask);
        // If nothing happens in the database, nobody says again how far it is.
        self.pass(self.reached);
        Ok(())
    }

    /// Tells the shapes, and whoever waits for them.
    fn publish(&mut self, transaction: &Transaction) {
        let mut waiters = Vec::new();
        {
            let router = self.engine.router.lock();
            for placed in transaction.placed() {
                let entry = Entry { lsn: transaction.lsn, at: placed.at, op: placed.op, len: placed.len };
                for shape in placed.slots.iter().filter_map(|slot| router.shape(*slot)) {
                    let mut state = shape.lock();
                    state.push(transaction.xid, entry, self.engine.config.http.chunk_bytes);
                    if state.has_waiters() {
                        waiters.append(&mut state.take_waiters());
                    }
                }
            }
        }
        self.engine.watermarks.processed(transaction.lsn);
        waiters.iter().for_each(|(_, waker)| waker.wake());
    }
}

/// Lengths in groups of at most `bytes_max`; a longer message is cut, as where messages end matters to nobody who reads changes.
fn pieces(lengths: &Lengths, bytes_max: usize) -> Vec<Lengths> {
    let bytes_max = u32::try_from(bytes_max).unwrap_or(u32::MAX).max(1);
    let mut pieces = vec![Lengths::default()];
    for mut length in lengths.iter() {
        while length > 0 {
            let part = length.min(bytes_max);
            length -= part;
            match pieces.last_mut() {
                Some(last) if last.bytes() + u64::from(part) <= u64::from(bytes_max) => last.push(part),
                _ => pieces.push(Lengths::one(part)),
            }
        }
    }
    pieces.retain(|piece| piece.bytes() > 0);
    pieces
}

/// In the order in which references have numbers.
fn sorted(numbers: &[u64]) -> Vec<u64> {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers
}

impl Apply for Applier {
    type Error = ApplyError;

    fn begin(&mut self, xid: u32, lsn: u64) -> bool {
        self.engine.idle.touch(self.engine.now_ms());
        let wanted = lsn > self.engine.watermarks.applied();
        let verdict = {
            // Who takes a snapshot meanwhile learns of the transaction, or the graph of the snapshot: one of both.
            let mut graph = self.engine.subqueries.graph.lock();
            self.engine.recent.lock().push(xid);
            if wanted && graph.is_waiting() { graph.pass(Some(xid), lsn) } else { Verdict::default() }
        };
        self.drop_ended(&verdict);
        self.engine.router.lock().turn();
        self.first = self.tail;
        self.transaction = wanted.then(|| Transaction::new(xid, lsn, self.engine.split_bytes()));
        wanted
    }

    fn change(&mut self, message: &Message<'_>) -> Result<(), ApplyError> {
        // Descriptions come outside of transactions too.
        let mut nothing = Transaction::new(0, 0, usize::MAX);
        let mut transaction = self.transaction.take();
        let strangers = self.engine.router.lock().strangers(message);
        for relation in strangers {
            self.meet(relation, transaction.as_ref());
        }
        let upsets = self.engine.router.lock().change(message, transaction.as_mut().unwrap_or(&mut nothing));
        for upset in upsets {
            let end = match upset {
                // Postgres may forget the transaction only when the shapes are gone for good.
                Upset::Table { oid, why } => match &mut transaction {
                    None => self.engine.drop_table(oid, why),
                    Some(transaction) => {
                        if !transaction.first_upset(oid) {
                            continue;
                        }
                        self.engine.drop_table_by(oid, why, transaction.xid, transaction.lsn)
                    }
                },
                Upset::Costly { slot } => {
                    let shape = self.engine.router.lock().shape(slot).cloned();
                    shape.map_or(Lsn::ZERO, |shape| self.engine.drop_costly(&shape))
                }
                Upset::Nullable(table) => {
                    self.engine.described(Arc::clone(&table));
                    self.engine.store.put_table(&table)?
                }
            };
            self.written = self.written.max(end);
            self.fresh = true;
        }
        if let Some(transaction) = &mut transaction
            && transaction.bytes() > PLACE_BYTES
        {
            self.write(transaction, false)?;
        }
        self.transaction = transaction;
        Ok(())
    }

    fn commit(&mut self, end: u64) -> Result<(), ApplyError> {
        let Some(mut transaction) = self.transaction.take() else { return Ok(()) };
        let verdict = self.depend(&mut transaction);
        self.drop_ended(&verdict);
        if transaction.is_empty() && verdict.began.is_empty() {
            self.engine.watermarks.processed(transaction.lsn);
        } else {
            let (bodies, lengths) = transaction.place(self.tail);
            let mut references = self.references(&transaction);
            references.began = sorted(&verdict.began);
            match self.append(bodies, &lengths, &[references], true) {
                Ok(()) => {
                    self.engine.watermarks.set_applied(transaction.lsn);
                    self.publish(&transaction);
                }
                Err(ApplyError::Store(error)) if error.frame_max().is_some() => {
                    self.too_many_ranges(&transaction, &error);
                    self.engine.watermarks.processed(transaction.lsn);
                }
                Err(error) => return Err(error),
            }
            self.engine.watermarks.set_published(self.tail);
        }
        let evaluations =
            self.engine.router.lock().take_evaluations() + self.engine.subqueries.graph.lock().take_evaluations();
        self.engine.counters.applied(transaction.told(), evaluations);
        self.engine.subqueries.fetcher.want(&self.engine, &verdict.ask);
        self.reached(end);
        if self.waiting() {
            self.moves()?;
        }
        Ok(())
    }

    fn brought(&mut self, anchor: Anchor) {
        self.engine.watermarks.set_anchor(Some(anchor));
    }

    fn reached(&mut self, lsn: u64) {
        if lsn <= self.reached {
            return;
        }
        self.reached = lsn;
        self.acknowledge.reached(self.written, lsn);
        self.engine.watermarks.processed(lsn.saturating_sub(1));
        self.pass(lsn);
    }

    fn pause(&mut self) -> Result<(), ApplyError> {
        self.moves()?;
        if std::mem::take(&mut self.fresh) {
            self.engine.store.logs().journal().kick();
        }
        Ok(())
    }

    fn wants_pause(&self) -> bool {
        self.fresh
    }

    fn flushed(&mut self) -> u64 {
        self.acknowledge.told(&self.engine)
    }

    fn hurry(&mut self) {
        self.acknowledge.hurry();
    }

    fn unconfirmed(&self) -> bool {
        self.acknowledge.is_waiting()
    }

    fn waiting(&self) -> bool {
        !self.engine.subqueries.holding.lock().is_empty() || self.engine.subqueries.graph.lock().is_listening()
    }

    fn stopping(&self) -> bool {
        self.engine.stopping() || self.reached >= self.owed && self.engine.is_idle() && !self.waiting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_cut_into_pieces_that_fit() {
        let of = |list: &[u32]| {
            let mut lengths = Lengths::default();
            list.iter().for_each(|length| lengths.push(*length));
            lengths
        };
        let cut =
            |list: &[u32]| pieces(&of(list), 10).iter().map(|piece| piece.iter().collect()).collect::<Vec<Vec<u32>>>();
        assert_eq!(cut(&[]), Vec::<Vec<u32>>::new());
        assert_eq!(cut(&[3, 7, 1]), [vec![3, 7], vec![1]]);
        assert_eq!(cut(&[4, 25, 5]), [vec![4], vec![10], vec![10], vec![5, 5]]);
    }
}
