//! The expressions over which predicates are filed: mostly columns. Each is evaluated once per row.

use super::keys::Kind;
use super::ranges::Ranges;
use crate::expr::Expr;
use hashbrown::HashMap;

#[derive(Default)]
pub(super) struct Scalars {
    ids: HashMap<Expr, u32>,
    pub(super) all: slab::Slab<Scalar>,
}

pub(super) struct Scalar {
    pub(super) expr: Expr,
    /// The kinds of keys that are filed, ascending, and how many of each.
    pub(super) kinds: Vec<(Kind, u32)>,
    pub(super) ranges: Ranges,
}

impl Scalars {
    pub(super) fn find(&self, expr: &Expr) -> Option<u32> {
        self.ids.get(expr).copied()
    }

    pub(super) fn find_or_add(&mut self, expr: &Expr) -> u32 {
        if let Some(id) = self.find(expr) {
            return id;
        }
        let id = self.all.insert(Scalar { expr: expr.clone(), kinds: Vec::new(), ranges: Ranges::default() }) as u32;
        self.ids.insert(expr.clone(), id);
        id
    }

    pub(super) fn add_kind(&mut self, id: u32, kind: Kind) {
        let kinds = &mut self.all[id as usize].kinds;
        match kinds.binary_search_by_key(&kind, |(k, _)| *k) {
            Ok(at) => kinds[at].1 += 1,
            Err(at) => kinds.insert(at, (kind, 1)),
        }
    }

    pub(super) fn remove_kind(&mut self, id: u32, kind: Kind) {
        let kinds = &mut self.all[id as usize].kinds;
        if let Ok(at) = kinds.binary_search_by_key(&kind, |(k, _)| *k) {
            kinds[at].1 -= 1;
            if kinds[at].1 == 0 {
                kinds.remove(at);
            }
        }
        self.drop_if_unused(id);
    }

    pub(super) fn drop_if_unused(&mut self, id: u32) {
        let scalar = &self.all[id as usize];
        if scalar.kinds.is_empty() && scalar.ranges.len() == 0 {
            let removed = self.all.remove(id as usize);
            self.ids.remove(&removed.expr);
        }
    }
}
