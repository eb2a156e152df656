//! Filing slots under keys, and finding them by the values of a row.

use super::Filed;
use super::keys::{Case, Key, Kind, What, hash_bytes, hash_value};
use super::plan::plan;
use super::postings::{Half, SLOTS_MAX};
use super::scalars::Scalar;
use crate::budget::Failed;
use crate::expr::Expr;
use crate::row::Row;
use crate::types::value::{Value, cost_of_hashing};
use hashbrown::DefaultHashBuilder;
use std::borrow::Cow;

/// Shorter texts are looked up piece by piece in any case.
const LONG_TEXT: usize = 64 << 10;

/// The places in which a slot is filed.
pub(super) enum Access {
    /// Nowhere: it is a candidate of each row.
    Residual,
    One(Place),
    #[expect(clippy::box_collection, reason = "the enum is a third smaller")]
    Many(Box<Vec<Place>>),
}

#[derive(Clone, Copy)]
pub(super) enum Place {
    Hash { scalar: u32, kind: Kind, hash: Half },
    Range { scalar: u32, node: u32 },
}

/// Keys of which it is not known whether a row has them.
#[derive(Default)]
pub(super) struct Undecided {
    scalars: Vec<u32>,
    kinds: Vec<(u32, Kind)>,
}

impl Undecided {
    pub(super) fn is_empty(&self) -> bool {
        self.scalars.is_empty() && self.kinds.is_empty()
    }

    fn has(&self, place: Place) -> bool {
        match place {
            Place::Hash { scalar, kind, .. } => self.scalars.contains(&scalar) || self.kinds.contains(&(scalar, kind)),
            Place::Range { scalar, .. } => self.scalars.contains(&scalar),
        }
    }
}

impl Access {
    /// Whether a slot is filed under one of these keys.
    pub(super) fn is_under(&self, keys: &Undecided) -> bool {
        match self {
            Self::Residual => false,
            Self::One(place) => keys.has(*place),
            Self::Many(places) => places.iter().any(|place| keys.has(*place)),
        }
    }
}

impl Filed {
    pub(super) fn insert(&mut self, slot: u32, expr: &Expr, hasher: &DefaultHashBuilder) -> Access {
        let Some(plan) = plan(expr, self, hasher).filter(|_| slot < SLOTS_MAX) else {
            self.residual.insert(slot);
            return Access::Residual;
        };
        let mut places: Vec<Place> = plan.keys.into_iter().map(|key| self.file(slot, key, hasher)).collect();
        match places.len() {
            1 => Access::One(places.remove(0)),
            _ => Access::Many(Box::new(places)),
        }
    }

    fn file(&mut self, slot: u32, key: Key<'_>, hasher: &DefaultHashBuilder) -> Place {
        let scalar = self.scalars.find_or_add(key.scalar);
        let (kind, hash) = match key.what {
            What::Range(low, high) => {
                let node = self.scalars.all[scalar as usize].ranges.insert(low, high, slot);
                return Place::Range { scalar, node };
            }
            What::Value(kind, value) => (kind, hash_value(hasher, scalar, kind, &value)),
            What::Bytes(kind, bytes) => (kind, hash_bytes(hasher, scalar, kind, &bytes)),
        };
        self.scalars.add_kind(scalar, kind);
        let hash = Half::of(hash);
        self.postings.insert(hash, slot);
        Place::Hash { scalar, kind, hash }
    }

    pub(super) fn remove(&mut self, slot: u32, access: Access) {
        match access {
            Access::Residual => {
                self.residual.remove(&slot);
            }
            Access::One(place) => self.unfile(slot, place),
            Access::Many(places) => places.iter().for_each(|place| self.unfile(slot, *place)),
        }
    }

    fn unfile(&mut self, slot: u32, place: Place) {
        match place {
            Place::Hash { scalar, kind, hash } => {
                self.postings.remove(hash, slot);
                self.scalars.remove_kind(scalar, kind);
            }
            Place::Range { scalar, node } => {
                self.scalars.all[scalar as usize].ranges.remove(node);
                self.scalars.drop_if_unused(scalar);
            }
        }
    }

    /// Calls for every slot that a row may satisfy, perhaps several times, but for slots under keys for which that
    /// takes too long to find out: these keys are given back.
    pub(super) fn candidates(
        &self,
        row: &Row<'_>,
        slots: usize,
        hasher: &DefaultHashBuilder,
        each: &mut impl FnMut(u32),
    ) -> Undecided {
        let mut undecided = Undecided::default();
        self.residual.iter().for_each(|slot| each(*slot));
        for (id, scalar) in &self.scalars.all {
            let id = id as u32;
            row.budget.refill(row.allowance());
            match scalar.expr.eval(row) {
                Ok(value) => Probe { filed: self, id, scalar, slots, hasher }.run(&value, row, each, &mut undecided),
                // A condition on a failing expression is not true.
                Err(Failed::Invalid) => {}
                Err(Failed::Costly) => undecided.scalars.push(id),
            }
        }
        undecided
    }
}

/// Lookups of one value of a row, under all kinds of keys of its scalar.
struct Probe<'a> {
    filed: &'a Filed,
    id: u32,
    scalar: &'a Scalar,
    /// Number of slots under any key.
    slots: usize,
    hasher: &'a DefaultHashBuilder,
}

impl Probe<'_> {
    fn run(&self, value: &Value<'_>, row: &Row<'_>, each: &mut impl FnMut(u32), undecided: &mut Undecided) {
        // Texts are folded once for all keys that need it.
        let mut folded: [Option<Cow<'_, str>>; 3] = [None, None, None];
        if row.budget.spend(cost_of_hashing(value)).is_err() {
            undecided.scalars.push(self.id);
            return;
        }
        for (kind, count) in &self.scalar.kinds {
            if self.is_quicker_asked(*kind, *count, value) {
                undecided.kinds.push((self.id, *kind));
                continue;
            }
            match (*kind, value) {
                (Kind::Null, Value::Null) => self.by_value(*kind, &Value::Null, each),
                (_, Value::Null) | (Kind::Null, _) => {}
                (Kind::NotNull, _) => self.by_value(*kind, &Value::Null, each),
                (Kind::Equal, value) => self.by_value(*kind, value, each),
                (Kind::Element, Value::Array(array)) => {
                    array
                        .elements
                        .iter()
                        .filter(|e| !e.is_null())
                        .for_each(|element| self.by_value(*kind, element, each));
                }
                (Kind::Prefix(case, _) | Kind::Suffix(case, _) | Kind::Piece(case, _), Value::Text(text)) => {
                    let at = Case::ALL.iter().position(|c| *c == case).unwrap_or(0);
                    let text = folded[at].get_or_insert_with(|| case.apply(text)).as_bytes();
                    self.by_text(*kind, text, each);
                }
                _ => {}
            }
        }
        if !value.is_null() {
            self.scalar.ranges.holding(value, each);
        }
    }

    /// Whether to evaluate all slots under a kind of keys takes less time than to look up every piece of a long text.
    fn is_quicker_asked(&self, kind: Kind, count: u32, value: &Value<'_>) -> bool {
        let (Kind::Piece(..), Value::Text(text)) = (kind, value) else { return false };
        let looking_up = 16 * text.len();
        let asking = 2 * self.slots + count as usize * (text.len() / 8 + 128);
        text.len() >= LONG_TEXT && asking < looking_up
    }

    fn by_value(&self, kind: Kind, value: &Value<'_>, each: &mut impl FnMut(u32)) {
        self.filed.postings.for_each(Half::of(hash_value(self.hasher, self.id, kind, value)), each);
    }

    fn by_text(&self, kind: Kind, text: &[u8], each: &mut impl FnMut(u32)) {
        let mut look =
            |bytes: &[u8]| self.filed.postings.for_each(Half::of(hash_bytes(self.hasher, self.id, kind, bytes)), each);
        match kind {
            Kind::Prefix(_, length) => text.get(..usize::from(length)).into_iter().for_each(&mut look),
            Kind::Suffix(_, length) => {
                text.len().checked_sub(length.into()).into_iter().for_each(|from| look(&text[from..]))
            }
            Kind::Piece(_, length) => text.windows(length.into()).for_each(look),
            _ => {}
        }
    }
}
