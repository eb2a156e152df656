//! Locked shards: here engines read the state of logs and commit transactions.
//!
//! Check, assign offsets, reserve the frame, apply: one step under the shards' locks, so journal order is log order.
//! The locks are held for microseconds and never across IO: appending to the journal only copies into its filling
//! batch.

use crate::attachment::Attachment;
use crate::error::CommitError;
use crate::frame::{Ancestor, FrameBuilder};
use crate::log::{Log, Piece};
use crate::logs::{Logs, incarnation, shard_of_log, shard_of_name};
use crate::op::{Append, Op, Origin};
use crate::shard::Shard;
use thalweg_base::{Durability, LogId, Lsn, Offset, Reached, Until};
use thalweg_journal::{AppendError, Class, FrameRef};
use thalweg_unit::Part;
use thalweg_unit::sync::MutexGuard;

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 4096;

/// Some locked shards of [`Logs`].
pub struct Guard<'a, A: Attachment> {
    logs: &'a Logs<A>,
    /// The locked shards, by number, so that two guards never wait for each other.
    shards: Locked<'a, A>,
}

/// Almost always one shard: no allocation then.
enum Locked<'a, A> {
    One(usize, MutexGuard<'a, Shard<A>>),
    Many(Vec<(usize, MutexGuard<'a, Shard<A>>)>),
}

/// A committed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The place of the frame.
    pub at: FrameRef,
    /// The position just after the frame.
    pub end: Lsn,
    /// The condition that its acknowledgement waits for.
    pub until: Until,
    /// The log of the last `Create`.
    pub created: Option<LogId>,
}

/// A log's state at this moment.
#[derive(Clone, Copy)]
pub struct LogView<'a, A> {
    /// The log's id.
    pub id: LogId,
    /// The log's name.
    pub name: &'a str,
    /// The earliest retained position.
    pub start: Offset,
    /// The position of the next append: the end of accepted content, perhaps not durable.
    pub tail: Offset,
    /// The end of visible content: the durable tail, or the written one of a buffered log.
    pub published: Offset,
    /// End of the last frame that changed the log: answers from this view wait for it, see [`LogView::when`].
    pub changed: Lsn,
    /// End of the frame that created the log; zero if that was before the last start.
    pub created: Lsn,
    /// The engine's state of the log.
    pub attachment: &'a A,
    lineage: &'a [Ancestor],
    /// Incarnations below this one may have lost positions (see [`crate::Loss`]).
    loss_mark: LogId,
    /// The durability that an answer waits for: while a durable frame of the log is pending, that of a durable log.
    durability: Durability,
}

impl<A> LogView<'_, A> {
    /// The incarnation that positions carry at `offset`: an ancestor's inside inherited content (but none from before a
    /// loss), else the log's own. It never decreases with `offset`, and under one name no pair of incarnation and
    /// offset ever stands for two different byte histories.
    #[must_use]
    pub fn incarnation(&self, offset: Offset) -> u64 {
        incarnation(self.lineage, self.id, self.loss_mark, offset)
    }

    /// The condition that an answer waits for if it follows from a frame of this log that ends at `at`.
    #[must_use]
    pub fn when(&self, at: Lsn) -> Until {
        Until::of(self.durability, at)
    }

    /// The parent of a fork and the fork point.
    #[must_use]
    pub fn origin(&self) -> Option<Origin> {
        self.lineage.last().map(|a| Origin { source: a.id, at: a.upto })
    }
}

impl<'a, A: Attachment> Guard<'a, A> {
    pub(crate) fn lock(logs: &'a Logs<A>, mut shards: Vec<usize>) -> Self {
        shards.sort_unstable();
        shards.dedup();
        let shards = shards.into_iter().map(|s| (s, logs.shards[s].lock())).collect();
        Self { logs, shards: Locked::Many(shards) }
    }

    pub(crate) fn lock_one(logs: &'a Logs<A>, shard: usize) -> Self {
        Self { logs, shards: Locked::One(shard, logs.shards[shard].lock()) }
    }

    fn shard(&self, number: usize) -> Option<&Shard<A>> {
        match &self.shards {
            Locked::One(n, shard) => (*n == number).then_some(&**shard),
            Locked::Many(shards) => shards.iter().find(|(n, _)| *n == number).map(|(_, s)| &**s),
        }
    }

    fn shard_mut(&mut self, number: usize) -> Option<&mut Shard<A>> {
        match &mut self.shards {
            Locked::One(n, shard) => (*n == number).then_some(&mut **shard),
            Locked::Many(shards) => shards.iter_mut().find(|(n, _)| *n == number).map(|(_, s)| &mut **s),
        }
    }

    pub(crate) fn awake(&mut self, log: LogId) -> Option<&mut Log<A>> {
        match self.shard_mut(shard_of_log(log))?.wake(log) {
            Ok(log) => log,
            Err(error) => {
                tracing::error!(%log, %error, "a log's record is damaged in memory");
                None
            }
        }
    }

    /// The log of that name, if its shard is locked and it exists.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<LogId> {
        let shard = self.shard(shard_of_name(name))?;
        shard.id_at(shard.find(name)?)
    }

    /// Before `name` is called absent, this position must be durable: that of its delete. Zero if nothing is pending.
    #[must_use]
    pub fn absent_since(&self, name: &str) -> Lsn {
        self.shard(shard_of_name(name)).map_or(Lsn::ZERO, |shard| shard.absent_since(name))
    }

    /// A log's state, if its shard is locked and it exists.
    pub fn view(&mut self, log: LogId) -> Option<LogView<'_, A>> {
        let (reached, logs) = (self.logs.reached(), self.logs);
        let log = self.awake(log)?;
        let durability = log.durability(logs.options.durability);
        let waits = if log.durable_end > reached.durable { Durability::Durable } else { durability };
        Some(LogView {
            id: log.id,
            name: &log.name,
            start: log.start,
            tail: log.tail,
            published: log.published(reached.of(durability)),
            changed: log.changed,
            created: log.created,
            attachment: &log.attachment,
            lineage: &log.lineage,
            loss_mark: logs.loss.of(log.attachment.durability()),
            durability: waits,
        })
    }

    /// The engine's state of a log, for changes to the part that it does not encode. The encoded part changes by notes
    /// only.
    pub fn attachment_mut(&mut self, log: LogId) -> Option<&mut A> {
        self.awake(log).map(|log| &mut log.attachment)
    }

    /// Commits one transaction: one frame, all or nothing. On an error nothing has changed. The frame is buffered if
    /// every log that it touches is, if it removes none, and if nothing durable is still pending for one of them or its
    /// name.
    pub fn commit(&mut self, class: Class, ops: &[Op<'_>]) -> Result<Committed, CommitError> {
        self.commit_as(Durability::Buffered, class, ops, &[])
    }

    /// Commits one transaction as a durable frame, whatever logs it touches: see [`Guard::commit`].
    pub fn commit_durably(&mut self, class: Class, ops: &[Op<'_>]) -> Result<Committed, CommitError> {
        self.commit_as(Durability::Durable, class, ops, &[])
    }

    /// One durable transaction of logs and of other indexes of the unit: the frame also holds `others`, each of which
    /// is replayed by its index. The caller holds the locks that order the frames of these indexes, and applies their
    /// parts when this has returned. No engine has a second index yet: only tests call this.
    ///
    /// # Panics
    ///
    /// If two parts are of one index, or one is of logs.
    pub fn commit_beside(
        &mut self,
        class: Class,
        ops: &[Op<'_>],
        others: &[Part<'_>],
    ) -> Result<Committed, CommitError> {
        self.commit_as(Durability::Durable, class, ops, others)
    }

    fn commit_as(
        &mut self,
        least: Durability,
        class: Class,
        ops: &[Op<'_>],
        others: &[Part<'_>],
    ) -> Result<Committed, CommitError> {
        if class == Class::User && self.logs.is_low_on_space() {
            return Err(AppendError::NoSpace.into());
        }
        let mut plan =
            Plan { builder: FrameBuilder::new(ops.len()), steps: Vec::with_capacity(ops.len()), durability: least };
        let reached = self.logs.reached();
        for op in ops {
            self.plan(op, &mut plan, reached)?;
        }
        let durability = plan.durability;
        let append = |pieces: &[&[u8]]| self.logs.journal().append_as(durability, class, pieces);
        let appended = plan.builder.finish_beside(others, append)?;
        let frame = Frame { at: appended.frame, end: appended.end, durability };
        let mut created = None;
        for (step, op) in plan.steps.into_iter().zip(ops) {
            if let Step::Create { log, .. } = step {
                created = Some(log);
            }
            self.apply(step, op, frame)?;
        }
        Ok(Committed { at: frame.at, end: frame.end, until: Until::of(durability, frame.end), created })
    }

    /// Checks one operation against the state before the transaction, and puts it into the frame.
    fn plan<'b>(&mut self, op: &'b Op<'b>, plan: &mut Plan<'b>, reached: Reached) -> Result<(), CommitError> {
        let unsaid = self.logs.options.durability;
        match op {
            Op::Create { name, note, origin, append } => {
                if name.is_empty() || name.len() > NAME_BYTES_MAX {
                    return Err(CommitError::Name { len: name.len(), max: NAME_BYTES_MAX });
                }
                if let Some(exists) = self.find(name) {
                    return Err(CommitError::Exists(exists));
                }
                let (start, lineage) = match origin {
                    Some(origin) => self.inherited(*origin)?,
                    None => (Offset::ZERO, Box::default()),
                };
                plan.durability = plan.durability.max(self.of_create(name, note, *origin, reached)?);
                self.plan_reference(append.as_ref(), plan, reached)?;
                let tail = lineage.last().map_or(Offset::ZERO, |a| a.upto);
                let ids = || CommitError::Ids(self.logs.options.id_reserve);
                let log = self.logs.ids.take(shard_of_name(name)).ok_or_else(ids)?;
                plan.builder.create(log, name, start, &lineage, note, append.as_ref().map(|a| (tail, a)));
                plan.steps.push(Step::Create { log, start, lineage });
            }
            Op::Write { log, note, append } => {
                let found = self.must(*log)?;
                if !note.is_empty() {
                    found.attachment.check(note).map_err(|error| CommitError::Note { log: *log, error })?;
                }
                let (kind, tail) = (found.frame_durability(unsaid, reached), found.tail);
                plan.durability = plan.durability.max(kind);
                // An operation before this one may append to the same log.
                let start = tail.plus(plan.appended_to(*log));
                plan.builder.write(*log, note, append.as_ref().map(|a| (start, a)));
                self.plan_reference(append.as_ref(), plan, reached)?;
                let bytes = append.as_ref().map_or(0, |a| a.lengths().bytes());
                plan.steps.push(Step::Write { log: *log, bytes });
            }
            Op::Trim { log, start } => {
                let found = self.must(*log)?;
                plan.durability = plan.durability.max(found.frame_durability(unsaid, reached));
                if *start > found.tail {
                    return Err(CommitError::Range { log: *log, offset: *start, start: found.start, tail: found.tail });
                }
                plan.builder.trim(*log, *start);
                plan.steps.push(Step::Trim { log: *log, start: *start });
            }
            Op::Unpin { log } => {
                let kind = self.must(*log)?.frame_durability(unsaid, reached);
                plan.durability = plan.durability.max(kind);
                plan.builder.unpin(*log);
                plan.steps.push(Step::Other);
            }
            Op::Delete { log } => {
                self.must(*log)?;
                // If a crash lost the delete, a log would be back that a client was told is gone.
                plan.durability = Durability::Durable;
                plan.builder.delete(*log);
                plan.steps.push(Step::Delete { log: *log });
            }
        }
        Ok(())
    }

    /// Checks that the content to which an append refers exists: it lies between the start and the tail of its source,
    /// appends of earlier operations included. A frame that refers to a log is as durable as a frame of that log.
    fn plan_reference(
        &mut self,
        append: Option<&Append<'_>>,
        plan: &mut Plan<'_>,
        reached: Reached,
    ) -> Result<(), CommitError> {
        let Some(Append::Reference { source, from, lengths }) = append else { return Ok(()) };
        let unsaid = self.logs.options.durability;
        let found = self.must(*source)?;
        let (kind, start) = (found.frame_durability(unsaid, reached), plan.start_of(*source).max(found.start));
        if plan.deletes(*source) {
            return Err(CommitError::Missing(*source));
        }
        let tail = found.tail.plus(plan.appended_to(*source));
        if *from < start || from.0.checked_add(lengths.bytes()).is_none_or(|end| end > tail.0) {
            return Err(CommitError::Range { log: *source, offset: *from, start, tail });
        }
        plan.durability = plan.durability.max(kind);
        Ok(())
    }

    fn must(&mut self, log: LogId) -> Result<&mut Log<A>, CommitError> {
        self.awake(log).ok_or(CommitError::Missing(log))
    }

    /// The durability that a frame needs to create a log. An answer about the new log also says that an earlier log of
    /// its name is gone, so while that delete is not durable the frame must be.
    fn of_create(
        &mut self,
        name: &str,
        note: &[u8],
        origin: Option<Origin>,
        reached: Reached,
    ) -> Result<Durability, CommitError> {
        let bad = |error| CommitError::Note { log: LogId::ZERO, error };
        let said = A::create(note, Lsn::ZERO).map_err(bad)?.durability();
        let own = said.unwrap_or(self.logs.options.durability);
        let freed = if self.absent_since(name) > reached.durable { Durability::Durable } else { own };
        let Some(Origin { source, .. }) = origin else { return Ok(freed) };
        let unsaid = self.logs.options.durability;
        let found = self.must(source)?;
        if found.attachment.durability() != said {
            return Err(CommitError::Durability(source));
        }
        Ok(freed.max(found.frame_durability(unsaid, reached)))
    }

    /// The inheritance of a fork: the source's earliest position, its ancestors below the fork point, then the source.
    fn inherited(&mut self, origin: Origin) -> Result<(Offset, Box<[Ancestor]>), CommitError> {
        let source = self.must(origin.source)?;
        if origin.at > source.tail || origin.at < source.start {
            return Err(CommitError::Range {
                log: origin.source,
                offset: origin.at,
                start: source.start,
                tail: source.tail,
            });
        }
        let mut lineage: Vec<Ancestor> = source.lineage.iter().copied().take_while(|a| a.upto < origin.at).collect();
        if origin.at > Offset::ZERO {
            let owner = source.lineage.get(lineage.len()).map_or(origin.source, |a| a.id);
            lineage.push(Ancestor { upto: origin.at, id: owner });
        }
        Ok((source.start, lineage.into_boxed_slice()))
    }

    fn apply(&mut self, step: Step, op: &Op<'_>, frame: Frame) -> Result<(), CommitError> {
        let end = frame.end;
        match (step, op) {
            (Step::Create { log, start, lineage }, Op::Create { name, note, append, .. }) => {
                let attachment = A::create(note, end).map_err(|error| CommitError::Note { log, error })?;
                let mut fresh = fresh_log(log, name, start, lineage, attachment, end);
                fresh.durable_end = frame.durable_end();
                for ancestor in &fresh.lineage {
                    self.pin(ancestor.id, ancestor.upto, frame);
                }
                if let Some(shard) = self.shard_mut(shard_of_log(log)) {
                    shard.insert(fresh);
                }
                self.extend(log, append.as_ref(), frame);
            }
            (Step::Write { log, .. }, Op::Write { note, append, .. }) => {
                self.extend(log, append.as_ref(), frame);
                if let Some(found) = self.touched(log, frame)
                    && !note.is_empty()
                {
                    found.attachment.apply(note, end).map_err(|error| CommitError::Note { log, error })?;
                }
            }
            (_, Op::Trim { log, start }) => {
                self.change_retained(*log, frame, |found| found.start = found.start.max(*start));
            }
            (_, Op::Unpin { log }) => {
                self.change_retained(*log, frame, |found| found.pinned = Offset::ZERO);
            }
            (_, Op::Delete { log }) => {
                let durable = self.logs.durable();
                if let Some(shard) = self.shard_mut(shard_of_log(*log)) {
                    shard.forget_vanished(durable);
                    shard.remove(*log, end);
                }
                self.logs.note_death();
            }
            _ => {}
        }
        Ok(())
    }

    /// A log that the frame changes.
    fn touched(&mut self, log: LogId, frame: Frame) -> Option<&mut Log<A>> {
        let journal = self.logs.journal();
        let shard = self.shard_mut(shard_of_log(log))?;
        let slot = shard.slot_of(log)?;
        let found = shard.awake_at(slot)?;
        let (changed, durable_end) = (found.changed, found.durable_end);
        debug_assert!(
            changed <= frame.end,
            "log {log} knows {changed}, and a frame that ends at {} changes it",
            frame.end
        );
        debug_assert!(
            frame.durability == Durability::Durable || durable_end <= journal.durable(),
            "a buffered frame of log {log} ends at {}, and one before it must be durable up to {durable_end}",
            frame.end
        );
        found.changed = frame.end;
        found.durable_end = found.durable_end.max(frame.durable_end());
        found.dirty = true;
        if !found.active {
            found.active = true;
            shard.active.push(slot);
        }
        shard.awake_at(slot)
    }

    fn pin(&mut self, log: LogId, upto: Offset, frame: Frame) {
        // An ancestor whose shard is not locked is pinned already: by the fork through which it is inherited.
        if self.awake(log).is_some_and(|found| found.pinned < upto) {
            self.change_retained(log, frame, |found| found.pinned = upto);
        }
    }

    /// Changes which content of a log is wanted.
    fn change_retained(&mut self, log: LogId, frame: Frame, change: impl FnOnce(&mut Log<A>)) {
        let before = self.shard(shard_of_log(log)).and_then(|shard| shard.retained(log));
        if let Some(found) = self.touched(log, frame) {
            change(found);
        }
        if self.shard_mut(shard_of_log(log)).is_some_and(|shard| shard.note_moved(log, before)) {
            self.logs.note_death();
        }
    }

    fn extend(&mut self, log: LogId, append: Option<&Append<'_>>, frame: Frame) {
        let Some(append) = append else { return };
        let bytes = append.lengths().bytes();
        if bytes == 0 {
            return;
        }
        if let Append::Reference { source, from, .. } = append {
            self.pin(*source, from.plus(bytes), frame);
        }
        if let Some(found) = self.touched(log, frame) {
            let is_next =
                found.pieces.back().is_none_or(|last| last.start < found.tail && last.frame.lsn <= frame.at.lsn);
            debug_assert!(
                is_next,
                "log {log} goes on at {} with frame {}: {:?}",
                found.tail,
                frame.at.lsn,
                found.pieces.back()
            );
            found.pieces.push_back(Piece { start: found.tail, frame: frame.at });
            found.tail = found.tail.plus(bytes);
        }
        self.logs.note_append(bytes);
    }
}

/// A log that a `Create` made, before its first append.
pub(crate) fn fresh_log<A>(
    id: LogId,
    name: &str,
    start: Offset,
    lineage: Box<[Ancestor]>,
    attachment: A,
    end: Lsn,
) -> Log<A> {
    let tail = lineage.last().map_or(Offset::ZERO, |a| a.upto);
    Log {
        id,
        name: name.into(),
        start,
        tail,
        settled: tail,
        pieces: std::collections::VecDeque::new(),
        pinned: Offset::ZERO,
        lineage,
        created: end,
        changed: end,
        durable_end: Lsn::ZERO,
        dirty: true,
        active: true,
        attachment,
    }
}

/// A transaction that was checked: its frame, and the step that each operation takes when it is applied.
struct Plan<'a> {
    builder: FrameBuilder<'a>,
    steps: Vec<Step>,
    /// The durability that the operations checked so far need.
    durability: Durability,
}

impl Plan<'_> {
    /// The bytes that the operations so far append to `log`.
    fn appended_to(&self, log: LogId) -> u64 {
        self.steps.iter().map(|step| step.appended_to(log)).sum()
    }

    /// Whether one of the operations so far deletes `log`.
    fn deletes(&self, log: LogId) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Delete { log: deleted } if *deleted == log))
    }

    /// The start of `log` after the trims among the operations so far.
    fn start_of(&self, log: LogId) -> Offset {
        let start = |step: &Step| match step {
            Step::Trim { log: trimmed, start } if *trimmed == log => Some(*start),
            _ => None,
        };
        self.steps.iter().filter_map(start).max().unwrap_or(Offset::ZERO)
    }
}

/// A frame that the journal has accepted.
#[derive(Clone, Copy)]
struct Frame {
    at: FrameRef,
    end: Lsn,
    durability: Durability,
}

impl Frame {
    /// The least [`Log::durable_end`] after this frame: zero for a buffered frame.
    fn durable_end(self) -> Lsn {
        match self.durability {
            Durability::Durable => self.end,
            Durability::Buffered => Lsn::ZERO,
        }
    }
}

enum Step {
    Create { log: LogId, start: Offset, lineage: Box<[Ancestor]> },
    Write { log: LogId, bytes: u64 },
    Trim { log: LogId, start: Offset },
    Delete { log: LogId },
    Other,
}

impl Step {
    fn appended_to(&self, target: LogId) -> u64 {
        match self {
            Step::Write { log, bytes, .. } if *log == target => *bytes,
            _ => 0,
        }
    }
}
