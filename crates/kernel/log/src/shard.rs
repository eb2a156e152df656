//! One shard of the table of logs: slots, and two indexes into them.
//!
//! A log is *awake* while something about it is in memory only or in the journal only, and *at rest* otherwise: then
//! one compact record is all there is of it. Both indexes hold slot numbers, not keys, so a log at rest costs its
//! record and about 40 bytes.

use crate::attachment::Attachment;
use crate::log::{Head, Log, record_name};
use crate::run::Live;
use crate::wakeup::Awakened;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use std::cell::Cell;
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{DecodeError, Decoder, LogId, Lsn, Offset};

pub(crate) enum Slot<A> {
    Vacant,
    Rest { id: LogId, record: Box<[u8]> },
    Awake(Box<Log<A>>),
}

impl<A> Slot<A> {
    fn id(&self) -> Option<LogId> {
        match self {
            Slot::Vacant => None,
            Slot::Rest { id, .. } => Some(*id),
            Slot::Awake(log) => Some(log.id),
        }
    }

    /// Empty if vacant.
    pub(crate) fn name(&self) -> &[u8] {
        match self {
            Slot::Vacant => &[],
            Slot::Rest { record, .. } => record_name(record),
            Slot::Awake(log) => log.name.as_bytes(),
        }
    }
}

/// A name that is free, but not durably so.
struct Vanished {
    name: Box<str>,
    at: Lsn,
}

pub(crate) struct Shard<A> {
    slots: Vec<Slot<A>>,
    vacant: Vec<u32>,
    by_name: HashTable<u32>,
    by_id: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// The slot that was looked up last: one request asks for its log several times.
    last: Cell<u32>,
    /// Slots of awake logs that the next round must visit. A slot may have been reused since: its log's `active` says
    /// if it is listed.
    pub(crate) active: Vec<u32>,
    /// Logs removed since the last checkpoint.
    pub(crate) tombstones: Vec<LogId>,
    vanished: Vec<Vanished>,
    awakened: Arc<Awakened>,
    pub(crate) moved: Moved,
}

/// Logs of a shard that retain other content than when live bytes were counted: bounded, since any number may be
/// deleted at once.
pub(crate) struct Moved {
    /// The content that each log retained at the last count.
    before: HashMap<LogId, Retained>,
    max: usize,
    /// More logs moved than `max`: every object must be counted again.
    pub(crate) is_lost: bool,
}

impl Moved {
    fn new(max: usize) -> Self {
        Self { before: HashMap::new(), max, is_lost: false }
    }

    /// Forgets all moves: every log is counted as it is now.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.max);
    }

    /// Notes that a log's retained content is about to change, or has just changed, from `before`.
    fn note(&mut self, log: LogId, before: Retained) {
        if self.is_lost {
            return;
        }
        if self.before.len() >= self.max && !self.before.contains_key(&log) {
            self.clear();
            self.is_lost = true;
            return;
        }
        self.before.entry(log).or_insert(before);
    }

    /// Notes that a log was counted with `after`; it retains `now` by now.
    pub(crate) fn counted(&mut self, log: LogId, after: Option<Retained>, now: Option<Retained>) {
        match after {
            Some(after) if Some(after.unwanted()) != now.map(Retained::unwanted) => {
                if let Some(before) = self.before.get_mut(&log) {
                    *before = after;
                }
            }
            _ => {
                self.before.remove(&log);
            }
        }
    }

    pub(crate) fn logs(&self) -> impl Iterator<Item = (LogId, Retained)> + '_ {
        self.before.iter().map(|(log, before)| (*log, *before))
    }
}

impl<A: Attachment> Shard<A> {
    pub(crate) fn new(moved_max: usize, awakened: Arc<Awakened>) -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
            by_name: HashTable::new(),
            by_id: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            last: Cell::new(0),
            active: Vec::new(),
            tombstones: Vec::new(),
            vanished: Vec::new(),
            awakened,
            moved: Moved::new(moved_max),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// All slots, vacant ones included.
    pub(crate) fn slots(&self) -> &[Slot<A>] {
        &self.slots
    }

    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(name.as_bytes());
        let slot = *self.by_name.find(hash, |slot| self.slots[*slot as usize].name() == name.as_bytes())?;
        self.last.set(slot);
        Some(slot)
    }

    pub(crate) fn slot_of(&self, id: LogId) -> Option<u32> {
        let last = self.last.get();
        if self.id_at(last) == Some(id) {
            return Some(last);
        }
        let slot = *self.by_id.find(self.hasher.hash_one(id), |slot| self.slots[*slot as usize].id() == Some(id))?;
        self.last.set(slot);
        Some(slot)
    }

    /// The id in a slot, if it is not vacant.
    pub(crate) fn id_at(&self, slot: u32) -> Option<LogId> {
        self.slots.get(slot as usize)?.id()
    }

    /// The log in a slot, if it is awake.
    pub(crate) fn awake_at(&mut self, slot: u32) -> Option<&mut Log<A>> {
        match self.slots.get_mut(slot as usize)? {
            Slot::Awake(log) => Some(log),
            _ => None,
        }
    }

    /// The log, woken if it was at rest.
    pub(crate) fn wake(&mut self, id: LogId) -> Result<Option<&mut Log<A>>, DecodeError> {
        let Some(slot) = self.slot_of(id) else {
            return Ok(None);
        };
        let place = &mut self.slots[slot as usize];
        if let Slot::Rest { id, record } = place {
            let mut log = Log::from_record(*id, record)?;
            // Listed, so that it goes back to rest.
            log.active = true;
            self.active.push(slot);
            *place = Slot::Awake(Box::new(log));
            self.awakened.note();
        }
        match place {
            Slot::Awake(log) => Ok(Some(log)),
            _ => Ok(None),
        }
    }

    /// The content that a log retains, without waking it; `None` if there is no such log.
    pub(crate) fn retained(&self, id: LogId) -> Option<Retained> {
        match &self.slots[self.slot_of(id)? as usize] {
            Slot::Vacant => None,
            Slot::Rest { record, .. } => {
                let head = Head::decode(&mut Decoder::new(record)).ok()?;
                Some(Retained { start: head.start.0, pinned: head.pinned.0 })
            }
            Slot::Awake(log) => Some(Retained { start: log.start.0, pinned: log.pinned.0 }),
        }
    }

    /// Puts a log in. The caller has checked that its name is free.
    pub(crate) fn insert(&mut self, log: Log<A>) {
        self.place(Slot::Awake(Box::new(log)));
    }

    /// Makes room for `count` logs more, in one step: whenever a table grows it hashes all names again.
    pub(crate) fn reserve(&mut self, count: usize) {
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.by_id.reserve(count, |s| hasher.hash_one(slots[*s as usize].id().unwrap_or_default()));
        self.by_name.reserve(count, |s| hasher.hash_one(slots[*s as usize].name()));
        self.slots.reserve(count);
    }

    pub(crate) fn insert_at_rest(&mut self, id: LogId, record: Box<[u8]>) {
        self.place(Slot::Rest { id, record });
    }

    fn place(&mut self, content: Slot<A>) {
        let (Some(id), hasher) = (content.id(), &self.hasher) else {
            return;
        };
        let (by_id, by_name) = (hasher.hash_one(id), hasher.hash_one(content.name()));
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.slots[slot as usize] = content;
                slot
            }
            None => {
                self.slots.push(content);
                (self.slots.len() - 1) as u32
            }
        };
        let slots = &self.slots;
        self.by_id.insert_unique(by_id, slot, |s| hasher.hash_one(slots[*s as usize].id().unwrap_or_default()));
        self.by_name.insert_unique(by_name, slot, |s| hasher.hash_one(slots[*s as usize].name()));
        if let Slot::Awake(log) = &self.slots[slot as usize]
            && log.active
        {
            self.active.push(slot);
        }
    }

    /// The content that a log retained at the last count of live bytes.
    pub(crate) fn counted_retained(&self, id: LogId) -> Option<Retained> {
        self.moved.before.get(&id).copied().or_else(|| self.retained(id))
    }

    /// Notes a change of a log's retained content, if that differs from `before`; returns whether it does.
    pub(crate) fn note_moved(&mut self, id: LogId, before: Option<Retained>) -> bool {
        let now = self.retained(id).map(Retained::unwanted);
        let Some(before) = before.filter(|before| Some(before.unwanted()) != now) else { return false };
        self.moved.note(id, before);
        true
    }

    /// Takes a log out. Its name stays known as vanished until `at` is durable.
    pub(crate) fn remove(&mut self, id: LogId, at: Lsn) {
        let Some(slot) = self.slot_of(id) else { return };
        if let Some(before) = self.retained(id) {
            self.moved.note(id, before);
        }
        let by_id = self.hasher.hash_one(id);
        let name: Box<[u8]> = self.slots[slot as usize].name().into();
        let by_name = self.hasher.hash_one(&name[..]);
        if let Ok(entry) = self.by_id.find_entry(by_id, |s| *s == slot) {
            entry.remove();
        }
        if let Ok(entry) = self.by_name.find_entry(by_name, |s| *s == slot) {
            entry.remove();
        }
        self.slots[slot as usize] = Slot::Vacant;
        self.vacant.push(slot);
        self.tombstones.push(id);
        if let Ok(name) = std::str::from_utf8(&name) {
            self.vanished.push(Vanished { name: name.into(), at });
        }
    }

    /// The position that must be durable before `name` may be called absent.
    pub(crate) fn absent_since(&self, name: &str) -> Lsn {
        self.vanished.iter().filter(|v| &*v.name == name).map(|v| v.at).max().unwrap_or(Lsn::ZERO)
    }

    pub(crate) fn forget_vanished(&mut self, durable: Lsn) {
        if !self.vanished.is_empty() {
            self.vanished.retain(|v| v.at > durable);
        }
    }

    /// Puts the log in `slot` to rest if it may rest; else returns `true`: the log stays listed as active.
    pub(crate) fn put_to_rest(&mut self, slot: u32, durable: Lsn) -> bool {
        let Some(Slot::Awake(log)) = self.slots.get_mut(slot as usize) else {
            return false;
        };
        if !log.active {
            return false;
        }
        if !log.may_rest(durable) {
            return true;
        }
        let rest = Slot::Rest { id: log.id, record: log.record(Lsn::MAX).into_boxed_slice() };
        self.slots[slot as usize] = rest;
        false
    }
}

/// The content that a log retains: below `pinned`, and from `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retained {
    pub(crate) start: u64,
    pub(crate) pinned: u64,
}

impl Retained {
    /// The content between them, which is dead.
    pub(crate) fn unwanted(self) -> Range<u64> {
        if self.pinned < self.start { self.pinned..self.start } else { 0..0 }
    }

    pub(crate) fn live(self) -> Live {
        let Self { start, pinned } = self;
        Live::new([Offset::ZERO..Offset(pinned), Offset(start)..Offset::MAX])
    }
}
