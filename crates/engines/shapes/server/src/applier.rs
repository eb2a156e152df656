//! Puts transactions into the change log and into their shapes.

use crate::acknowledge::Acknowledge;
use crate::change_log::ChangeLogWriter;
use crate::feed::MoveInEntries;
use crate::format::references::{Group, References};
use crate::router::Invalidation;
use crate::server::ShapesServer;
use crate::state::transaction::Transaction;
use crate::store::StoreError;
use crate::subquery::{Ended, MoveIn, Verdict};
use std::sync::Arc;
use thalweg_base::Lsn;
use thalweg_pg as pg;
use thalweg_pg::PgLsn;
use thalweg_pg::pgoutput::{DecodeError, Message};
use thalweg_shapes_model::history::Anchor;
use thalweg_shapes_source::anchor::Diverged;
use thalweg_shapes_source::replicate::Apply;

/// Encoded changes of one transaction beyond this go to the change log before it is complete.
const PLACE_BYTES: usize = 4 << 20;

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

/// Applies the transactions of one replication stream. The feed is locked once per message, and at most four times per
/// commit.
pub(crate) struct Applier {
    server: Arc<ShapesServer>,
    log: ChangeLogWriter,
    transaction: Option<Transaction>,
    acknowledge: Acknowledge,
    /// Everything before it was applied.
    reached: PgLsn,
    /// Before this was applied the stream does not end for want of requests.
    owed: PgLsn,
}

impl Applier {
    /// `from`: where the stream starts.
    pub(crate) fn new(server: Arc<ShapesServer>, from: PgLsn) -> Self {
        let log = ChangeLogWriter::new(Arc::clone(&server.changes), Arc::clone(&server.lifetime));
        server.watermarks.set_published(log.tail());
        let acknowledge = Acknowledge::new(from, server.lifetime.clock.now());
        Self { server, log, transaction: None, acknowledge, reached: from, owed: from }
    }

    /// Has the stream come this far before it may end for want of requests. A stream that was cut off earlier each time
    /// would never get past a long transaction, and Postgres would keep its log for ever.
    pub(crate) fn at_least(self, end: PgLsn) -> Self {
        Self { owed: end, ..self }
    }

    /// The transaction's references are more than a frame holds. They cannot be written in parts, as a crash between
    /// two would leave half of the transaction: the shapes that it changes are dropped.
    fn too_many_ranges(&mut self, transaction: &Transaction, began: &[u64], error: &StoreError) {
        let shapes: Vec<_> = {
            let feed = self.server.feed.lock();
            let began = began.iter().filter_map(|number| feed.graph.shape(*number));
            feed.shapes_with(transaction).into_iter().chain(began).collect()
        };
        tracing::warn!(shapes = shapes.len(), %error, "shapes are dropped: one transaction has too many changes for different shapes in turn (journal_segment_bytes)");
        for shape in shapes {
            self.log.wrote(self.server.retirement.drop_shape(&shape));
        }
    }

    /// Finds the tables that a table is a partition of. Without an answer in time, the shapes that its rows may belong
    /// to are dropped.
    fn resolve(&mut self, relation: u32, transaction: Option<&Transaction>) {
        match self.server.source.partitions.ancestors(relation) {
            Ok(ancestors) => self.server.feed.lock().router.know_ancestors([(relation, ancestors)]),
            Err(error) => {
                tracing::warn!(relation, %error, "it is not known what a table is a partition of");
                let wholes: Vec<u32> = self.server.feed.lock().router.wholes().collect();
                for oid in wholes {
                    let why = "may have a new partition";
                    let end = match transaction {
                        None => self.server.retirement.drop_table(oid, why),
                        Some(transaction) => self.server.retirement.drop_table_by(oid, why, transaction),
                    };
                    self.log.wrote(end);
                }
            }
        }
    }

    /// Drops the shapes that cannot go on after a transaction. The drops are written before the transaction: a start
    /// must not find a shape whose log goes on after a transaction that it does not have.
    fn drop_ended(&mut self, verdict: &Verdict) {
        for (shape, why) in &verdict.drop {
            let end = match why {
                Ended::Because(why) => {
                    tracing::info!(table = %shape.family.name, "a shape with subqueries is dropped: {why}");
                    self.server.retirement.drop_shape(shape)
                }
                Ended::Costly => self.server.retirement.drop_costly(shape),
            };
            self.log.wrote(end);
        }
    }

    /// Carries out the effects of a change beyond its rows.
    fn invalidate(
        &mut self,
        invalidation: Invalidation,
        transaction: Option<&mut Transaction>,
    ) -> Result<(), ApplyError> {
        let server = &self.server;
        let end = match invalidation {
            // Postgres may forget the transaction only when the shapes are gone for good.
            Invalidation::Table { oid, why } => match transaction {
                None => server.retirement.drop_table(oid, why),
                Some(transaction) => {
                    if !transaction.first_invalidation(oid) {
                        return Ok(());
                    }
                    server.retirement.drop_table_by(oid, why, transaction)
                }
            },
            Invalidation::Costly { route_id } => {
                let shape = server.feed.lock().shape(route_id).cloned();
                shape.map_or(Lsn::ZERO, |shape| server.retirement.drop_costly(&shape))
            }
            Invalidation::Nullable(table) => {
                server.catalog.described(Arc::clone(&table));
                server.changes.store.put_table(&table)?
            }
        };
        self.log.wrote(end);
        Ok(())
    }

    /// Marks all changes before `lsn` as applied. Returns whether the graph waits for rows or transactions, or entries
    /// wait to be durable.
    fn pass(&mut self, lsn: PgLsn) -> bool {
        let (verdict, is_waiting) = {
            let mut feed = self.server.feed.lock();
            (feed.pass(lsn.0), feed.is_waiting())
        };
        self.drop_ended(&verdict);
        is_waiting
    }

    /// The same, if it is news.
    fn reach(&mut self, lsn: PgLsn) -> bool {
        if lsn <= self.reached {
            return self.server.feed.lock().is_waiting();
        }
        self.reached = lsn;
        self.acknowledge.reached(self.log.written(), lsn);
        self.server.watermarks.processed(lsn.before());
        self.pass(lsn)
    }

    /// Writes fetched move-ins to the log, and publishes the entries that are durable.
    fn publish_move_ins(&mut self) -> Result<(), ApplyError> {
        self.server.fetcher.start();
        // Snapshots may have become known since the stream got here.
        self.pass(self.reached);
        for fetched in self.server.fetcher.arrivals() {
            let unfetched = self.server.feed.lock().fetched(fetched);
            if let Some((shape, why)) = unfetched {
                tracing::warn!(table = %shape.family.name, why, "rows of a subquery cannot be fetched");
                self.server.retirement.drop_shape(&shape);
            }
        }
        loop {
            let move_in = self.server.feed.lock().graph.publish(self.server.config.split_bytes());
            let Some(move_in) = move_in else { break };
            self.write_move_in(move_in)?;
        }
        let durable = self.server.changes.store.durable();
        let ready = self.server.feed.lock().take_durable(durable);
        let chunk_bytes = self.server.config.http.chunk_bytes;
        for shape in ready {
            shape.change(|state| state.release(durable, chunk_bytes));
        }
        Ok(())
    }

    /// Writes the fetched rows of one shape, the entries that waited for them, and their effects on other shapes.
    fn write_move_in(&mut self, mut move_in: MoveIn) -> Result<(), ApplyError> {
        self.drop_ended(&move_in.verdict);
        let (bodies, lengths) = move_in.transaction.place(self.log.tail());
        let entries = self.server.feed.lock().move_in_entries(&move_in);
        let MoveIn { transaction, shape, pending, verdict, .. } = move_in;
        let MoveInEntries { rows, mut own, others, mut references } = entries;
        own.ended = vec![shape.number];
        references.began = sorted(&verdict.began);
        let number: Arc<[u64]> = [shape.number].into();
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
        match self.log.append(bodies, &lengths, &all, true) {
            Err(error) if error.frame_max().is_some() => {
                tracing::warn!(%error, "shapes are dropped: rows that came for a subquery are for too many of them in turn (journal_segment_bytes)");
                for shape in others.iter().map(|(other, _)| other).chain([&shape]) {
                    self.log.wrote(self.server.retirement.drop_shape(shape));
                }
                self.server.feed.lock().moved_in(shape.number, Vec::new());
                self.server.fetcher.want(&verdict.ask);
                return Ok(());
            }
            written => written?,
        }
        let end = self.log.written();
        shape.lock().open_barrier(pending, &rows, end);
        let number = shape.number;
        let mut holding = vec![(shape, end)];
        for (other, entry) in others {
            let mut state = other.lock();
            // It tells of rows that cannot be fetched twice.
            state.hold_until(end);
            state.push(transaction.xid, entry, self.server.config.http.chunk_bytes);
            drop(state);
            holding.push((other, end));
        }
        {
            let mut feed = self.server.feed.lock();
            feed.moved_in(number, holding);
            feed.hold_began(&verdict.began, end);
        }
        self.server.watermarks.set_published(self.log.tail());
        self.server.fetcher.want(&verdict.ask);
        // While the database is idle, no later message gives its position.
        self.pass(self.reached);
        Ok(())
    }

    /// Gives the shapes their entries, and wakes the requests that wait for these.
    fn publish(&mut self, transaction: &Transaction) {
        let waiters = self.server.feed.lock().publish(transaction, self.server.config.http.chunk_bytes);
        self.server.watermarks.processed(PgLsn(transaction.lsn));
        waiters.iter().for_each(|(_, waker)| waker.wake());
    }
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
        self.server.source.idle.touch(self.server.lifetime.now_ms());
        // A stream that begins again repeats what had no effect on the log, too: shapes with subqueries no longer know
        // that their first rows have it.
        let wanted = !self.server.watermarks.is_applied(PgLsn(lsn));
        let verdict = self.server.feed.lock().begin(xid, lsn, wanted);
        self.drop_ended(&verdict);
        self.log.begin();
        self.transaction = wanted.then(|| Transaction::new(xid, lsn, self.server.config.split_bytes()));
        wanted
    }

    fn change(&mut self, message: &Message<'_>) -> Result<(), ApplyError> {
        // Descriptions come outside of transactions too.
        let mut nothing = Transaction::new(0, 0, usize::MAX);
        let mut transaction = self.transaction.take();
        let taken = self.server.feed.lock().change(message, transaction.as_mut().unwrap_or(&mut nothing));
        let invalidations = match taken {
            Ok(invalidations) => invalidations,
            Err(unknown) => {
                for relation in unknown {
                    self.resolve(relation, transaction.as_ref());
                }
                self.server.feed.lock().router.change(message, transaction.as_mut().unwrap_or(&mut nothing))
            }
        };
        for invalidation in invalidations {
            self.invalidate(invalidation, transaction.as_mut())?;
        }
        if let Some(transaction) = &mut transaction
            && transaction.bytes() > PLACE_BYTES
        {
            let (bodies, lengths) = transaction.place(self.log.tail());
            self.log.append(bodies, &lengths, &[], false)?;
        }
        self.transaction = transaction;
        Ok(())
    }

    fn commit(&mut self, end: u64) -> Result<(), ApplyError> {
        let Some(mut transaction) = self.transaction.take() else { return Ok(()) };
        let (verdict, evaluations) = self.server.feed.lock().see(&mut transaction);
        self.drop_ended(&verdict);
        if transaction.is_empty() && verdict.began.is_empty() {
            self.server.watermarks.processed(PgLsn(transaction.lsn));
        } else {
            let (bodies, lengths) = transaction.place(self.log.tail());
            let mut references = self.server.feed.lock().references(&transaction);
            references.began = sorted(&verdict.began);
            match self.log.append(bodies, &lengths, &[references], true) {
                Ok(()) => {
                    self.server.watermarks.set_applied(PgLsn(transaction.lsn));
                    self.publish(&transaction);
                    self.server.feed.lock().hold_began(&verdict.began, self.log.written());
                }
                Err(error) if error.frame_max().is_some() => {
                    self.too_many_ranges(&transaction, &verdict.began, &error);
                    self.server.watermarks.processed(PgLsn(transaction.lsn));
                }
                Err(error) => return Err(error.into()),
            }
            self.server.watermarks.set_published(self.log.tail());
        }
        self.server.watermarks.set_last_commit(PgLsn(transaction.lsn));
        self.server.lifetime.counters.applied(transaction.deliveries(), evaluations);
        self.server.fetcher.want(&verdict.ask);
        if self.reach(PgLsn(end)) {
            self.publish_move_ins()?;
        }
        Ok(())
    }

    fn brought(&mut self, anchor: Anchor) {
        self.server.watermarks.set_anchor(Some(anchor));
    }

    fn reached(&mut self, lsn: u64) {
        let lsn = PgLsn(lsn);
        if lsn > self.reached {
            self.reach(lsn);
        }
    }

    fn pause(&mut self) -> Result<(), ApplyError> {
        self.publish_move_ins()?;
        self.log.pause();
        Ok(())
    }

    fn wants_pause(&self) -> bool {
        self.log.is_fresh()
    }

    fn flushed(&mut self) -> u64 {
        self.acknowledge.confirmed(&self.server).0
    }

    fn hurry(&mut self) {
        self.acknowledge.hurry();
    }

    fn unconfirmed(&self) -> bool {
        self.acknowledge.is_waiting()
    }

    fn waiting(&self) -> bool {
        self.server.feed.lock().is_waiting()
    }

    fn stopping(&self) -> bool {
        let ShapesServer { lifetime, source, .. } = &*self.server;
        lifetime.stopping() || self.reached >= self.owed && source.is_idle(lifetime) && !self.waiting()
    }
}
