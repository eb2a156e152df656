//! Pending values, whose rows have not come yet: the difference between a node and its sets.

use super::node::Node;
use hashbrown::{HashMap, HashSet};
use std::cell::Cell;
use std::sync::Arc;
use thalweg_filter::{Condition, Key};
use thalweg_shapes_core::subquery::place::{At, ROWS_MAX};
use thalweg_shapes_core::subquery::set::Moves;
use thalweg_shapes_core::subquery::sets::Sets;
use thalweg_shapes_model::row::{Cells, RowChange, borrowed};
use thalweg_shapes_model::snapshot::PgSnapshot;

/// Most values whose rows are fetched at once for one shape; with more the shape is dropped.
const KEYS_MAX: usize = 20_000;
const TOO_MANY: &str = "too many values of an inner query came at once";
/// Most transactions whose xids clients get with the rows of one pending.
const XIDS_MAX: usize = 1000;

/// Values whose rows come, and are not here yet.
pub(super) struct Pending {
    pub(super) number: u64,
    /// The transactions that brought them, and the position of the first: from there on they are missing.
    pub(super) xids: Vec<u32>,
    pub(super) lsn: u64,
    /// The last transaction that took away a row or a value before it was here; 0: there is none.
    pub(super) lost: u64,
    /// With their positions.
    pub(super) keys: Vec<(usize, Key)>,
    /// For values that count as before until the boundary: whether they are in the set.
    pub(super) before: Overlay,
    /// For values that changed again between the boundary and now: their state at the boundary.
    pub(super) boundary: Overlay,
    /// How far asking for the rows has come.
    pub(super) asked: Asked,
    /// From which the rows are.
    pub(super) snapshot: Option<PgSnapshot>,
    /// The boundary was passed.
    pub(super) reached: bool,
    /// Every transaction that the snapshot may have was passed.
    pub(super) complete: bool,
    pub(super) rows: Option<Vec<Cells>>,
    /// The last transaction before the boundary, and where behind it the next body goes.
    pub(super) place: (u64, Cell<u32>),
    /// Keys of an inner shape's rows that were changed since the boundary.
    pub(super) touched: HashSet<Arc<[u8]>>,
}

/// How far asking for rows has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// It waits for its turn: values that come until then are fetched together with it.
    Not,
    /// A snapshot is being taken, or was.
    Begun,
}

/// Whether values are in a position's set, for values for which the set itself answers otherwise.
#[derive(Default, Debug)]
pub(super) struct Overlay(HashMap<(usize, Box<[u8]>), bool>);

impl Overlay {
    pub(super) fn get(&self, position: usize, key: &Key) -> Option<bool> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&(position, key.bytes().into())).copied()
    }

    fn put(&mut self, position: usize, key: &Key, is_in: bool) {
        self.0.insert((position, key.bytes().into()), is_in);
    }

    /// Keeps the answer that was put first.
    fn put_first(&mut self, position: usize, key: &Key, is_in: bool) {
        self.0.entry((position, key.bytes().into())).or_insert(is_in);
    }

    fn take(&mut self, position: usize, key: &Key) -> bool {
        self.0.remove(&(position, key.bytes().into())).is_some()
    }
}

/// The effect of the moves of sets on a node.
#[derive(Default)]
pub(super) struct Step {
    /// Values whose rows go now.
    pub(super) gone: Vec<(usize, Key)>,
    /// Values whose rows come. It has no number yet.
    pub(super) pending: Option<Pending>,
}

impl Pending {
    fn new(at: At, keys: Vec<(usize, Key)>, before: Overlay) -> Self {
        Self {
            number: 0,
            xids: vec![at.xid],
            lsn: at.since,
            lost: 0,
            keys,
            before,
            boundary: Overlay::default(),
            asked: Asked::Not,
            snapshot: None,
            reached: false,
            complete: false,
            rows: None,
            place: (0, Cell::new(0)),
            touched: HashSet::new(),
        }
    }

    /// The first transaction that brought some of them.
    pub(super) fn xid(&self) -> u32 {
        self.xids.first().copied().unwrap_or_default()
    }

    /// Takes in values that came later, if its rows are not requested yet.
    pub(super) fn join(&mut self, later: Self) -> Result<(), &'static str> {
        self.lsn = self.lsn.min(later.lsn);
        self.keys.extend(later.keys);
        for ((position, key), is_in) in later.before.0 {
            self.before.0.entry((position, key)).or_insert(is_in);
        }
        let room = XIDS_MAX.saturating_sub(self.xids.len());
        self.xids.extend(later.xids.iter().take(room));
        if self.keys.len() > KEYS_MAX { Err(TOO_MANY) } else { Ok(()) }
    }

    /// A reason of a row was missing since `lsn`, and another reason may stand for it since a transaction up to
    /// `until`: if this pending brings the other one, it is missing since `lsn` too.
    pub(super) fn backdate(&mut self, lsn: u64, until: u64) {
        if self.lsn <= until {
            self.lsn = self.lsn.min(lsn);
        }
    }

    /// Whether a row asks for one of these values.
    fn brings(&self, condition: &Condition, row: &[Option<&[u8]>]) -> bool {
        let is_among = |position: usize, key: &Key| self.before.get(position, key).is_some();
        condition.memberships().any(|(position, membership)| {
            is_among(position, &membership.key(row)) || membership.negated && is_among(position, &membership.null())
        })
    }

    pub(super) fn next_op(&self) -> u32 {
        let op = self.place.1.get();
        self.place.1.set(op.saturating_add(1));
        op
    }

    /// Rows of these keys, as SQL.
    pub(super) fn filter(&self, condition: &Condition) -> String {
        let filters = condition.memberships().filter_map(|(position, _)| {
            let of = self.keys.iter().filter(|(at, _)| *at == position);
            let keys: Vec<Key> = of.map(|(_, key)| key.clone()).collect();
            (!keys.is_empty()).then(|| condition.sql_moving(position, &keys))
        });
        format!("({})", filters.collect::<Vec<_>>().join(") OR ("))
    }

    /// A value went again before its rows were there: whether it was one of these.
    fn take_back(&mut self, position: usize, key: &Key) -> bool {
        let was = self.before.take(position, key);
        if was {
            self.keys.retain(|(at, known)| *at != position || known != key);
        }
        was
    }
}

impl Node {
    /// The effect of the moves of the sets below: values whose rows go now, and values whose rows come.
    pub(super) fn moved(&mut self, sets: &Sets, moves: &[(u64, Arc<Moves>)], at: At) -> Result<Step, &'static str> {
        let mut step = Step::default();
        let Some(condition) = self.condition().filter(|_| !moves.is_empty()).cloned() else { return Ok(step) };
        let mut gained = Vec::new();
        let mut before = Overlay::default();
        for (position, membership) in condition.memberships() {
            for (set, moves) in moves.iter().filter(|(set, _)| self.sets.get(position) == Some(&Some(*set))) {
                if membership.negated && moves.nulls {
                    return Err("nulls came to the inner query of a NOT IN, or went");
                }
                // A row with a null may be decided by any value that comes or goes.
                if membership.negated && membership.width() > 1 && self.has_nullable(membership) {
                    return Err(
                        "values of an inner query of NOT IN with several columns, which may be null, came or went",
                    );
                }
                // Null is not among the values of an empty set.
                let nothing = moves
                    .filled
                    .filter(|_| membership.negated && membership.width() == 1)
                    .map(|filled| (membership.null(), filled));
                // No value is `NOT IN` a set with a null, whichever other values come and go.
                let moot = |key: &Key| membership.negated && sets.get(*set).is_some_and(|set| set.is_unsure_of(key));
                for (key, entered) in moves.keys.iter().cloned().chain(nothing) {
                    if moot(&key) {
                        continue;
                    }
                    if entered != membership.negated {
                        before.put(position, &key, !entered);
                        gained.push((position, key));
                        continue;
                    }
                    let mut early = self.pendings.iter_mut().filter(|pending| !pending.reached);
                    if let Some(pending) =
                        early.find_map(|pending| pending.take_back(position, &key).then_some(pending))
                    {
                        pending.lost = at.lsn;
                        continue;
                    }
                    for late in self.pendings.iter_mut().filter(|pending| pending.reached) {
                        late.boundary.put_first(position, &key, !entered);
                    }
                    step.gone.push((position, key));
                }
            }
        }
        if gained.len() > KEYS_MAX {
            return Err(TOO_MANY);
        }
        step.pending = (!gained.is_empty()).then(|| Pending::new(at, gained, before));
        Ok(step)
    }

    /// Notes the transaction where it changed rows that may be pending: clients never see these rows as they were.
    pub(super) fn lose(&mut self, changes: &[Arc<RowChange>], at: At) {
        let Some(condition) = self.condition().cloned() else { return };
        for pending in self.pendings.iter_mut().filter(|pending| !pending.reached) {
            let mut old = changes.iter().filter_map(|change| change.old.as_ref());
            if old.any(|row| pending.brings(&condition, &borrowed(row))) {
                pending.lost = at.lsn;
            }
        }
    }

    /// The stream is at the boundary of a pending: its values count from now on, and later changes belong behind its
    /// rows.
    pub(super) fn reach(&mut self, at: usize, last_lsn: u64) {
        self.after.at(last_lsn);
        let first = self.after.take(ROWS_MAX);
        let pendings = self.pendings.make_contiguous();
        let (earlier, [pending, ..]) = pendings.split_at_mut(at) else { return };
        for (position, key) in &pending.keys {
            if let Some(was) = pending.before.get(*position, key) {
                earlier.iter_mut().for_each(|other| other.boundary.put_first(*position, key, was));
            }
        }
        pending.reached = true;
        pending.place = (last_lsn, Cell::new(first));
        self.shape.lock().hold(pending.number);
    }
}
