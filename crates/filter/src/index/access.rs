//! Filing slots under keys, and finding them by the values of a row.

use super::Filed;
use super::keys::{Case, Key, Kind, What, hash_bytes, hash_value};
use super::plan::plan;
use super::postings::{Half, SLOTS_MAX};
use super::scalars::Scalar;
use crate::expr::Expr;
use crate::row::Row;
use crate::types::value::Value;
use hashbrown::DefaultHashBuilder;
use std::borrow::Cow;

/// Where a slot is filed.
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

    /// Calls for every slot that a row may satisfy, perhaps several times.
    pub(super) fn candidates(&self, row: &Row<'_>, hasher: &DefaultHashBuilder, each: &mut impl FnMut(u32)) {
        self.residual.iter().for_each(|slot| each(*slot));
        for (id, scalar) in &self.scalars.all {
            // Where an expression fails, no condition on it is true.
            let Ok(value) = scalar.expr.eval(row) else { continue };
            let probe = Probe { filed: self, id: id as u32, scalar, hasher };
            probe.run(&value, each);
        }
    }
}

/// One value of a row, looked up in all ways that its scalar has keys for.
struct Probe<'a> {
    filed: &'a Filed,
    id: u32,
    scalar: &'a Scalar,
    hasher: &'a DefaultHashBuilder,
}

impl Probe<'_> {
    fn run(&self, value: &Value<'_>, each: &mut impl FnMut(u32)) {
        // Texts are folded once for all keys that need it.
        let mut folded: [Option<Cow<'_, str>>; 3] = [None, None, None];
        for (kind, _) in &self.scalar.kinds {
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
