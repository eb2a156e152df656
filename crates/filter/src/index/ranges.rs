//! Ranges of values, and lookup of those that hold a value: a treap by lower bounds, each node of which has the highest
//! upper bound below it (an interval tree; Cormen et al., "Introduction to Algorithms", 14.3).

use crate::types::value::{Value, compare};
use std::cmp::Ordering;
use std::ops::Bound;

type Limit = Bound<Value<'static>>;

const NONE: u32 = u32::MAX;

#[derive(Default)]
pub(super) struct Ranges {
    nodes: slab::Slab<Node>,
    root: Option<u32>,
    /// State of a xorshift generator: the treap's shape must not depend on inserted values.
    random: u64,
}

struct Node {
    low: Limit,
    high: Limit,
    slot: u32,
    priority: u32,
    left: u32,
    right: u32,
    /// The node of this subtree with the highest `high`.
    highest: u32,
}

fn compare_low(a: &Limit, b: &Limit) -> Ordering {
    match (a, b) {
        (Bound::Unbounded, Bound::Unbounded) => Ordering::Equal,
        (Bound::Unbounded, _) => Ordering::Less,
        (_, Bound::Unbounded) => Ordering::Greater,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => compare(a, b),
    }
}

fn compare_high(a: &Limit, b: &Limit) -> Ordering {
    match (a, b) {
        (Bound::Unbounded, Bound::Unbounded) => Ordering::Equal,
        (Bound::Unbounded, _) => Ordering::Greater,
        (_, Bound::Unbounded) => Ordering::Less,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => compare(a, b),
    }
}

/// Bounds count as inclusive here: evaluation of the predicate decides.
fn begins_by(low: &Limit, value: &Value<'_>) -> bool {
    match low {
        Bound::Unbounded => true,
        Bound::Included(low) | Bound::Excluded(low) => compare(low, value).is_le(),
    }
}

fn ends_after(high: &Limit, value: &Value<'_>) -> bool {
    match high {
        Bound::Unbounded => true,
        Bound::Included(high) | Bound::Excluded(high) => compare(high, value).is_ge(),
    }
}

impl Ranges {
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the handle for [`Ranges::remove`].
    pub(super) fn insert(&mut self, low: Limit, high: Limit, slot: u32) -> u32 {
        self.random = if self.random == 0 { 0x9e37_79b9_7f4a_7c15 } else { self.random };
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let priority = (self.random >> 32) as u32;
        let id = self.nodes.vacant_key() as u32;
        self.nodes.insert(Node { low, high, slot, priority, left: NONE, right: NONE, highest: id });
        let (left, right) = self.split(self.root.unwrap_or(NONE), id);
        let left = self.merge(left, id);
        self.root = Some(self.merge(left, right));
        id
    }

    pub(super) fn remove(&mut self, id: u32) {
        let root = self.root.unwrap_or(NONE);
        self.root = Some(self.without(root, id)).filter(|root| *root != NONE);
        self.nodes.remove(id as usize);
    }

    /// Calls for the slots of the ranges that hold a value.
    pub(super) fn holding(&self, value: &Value<'_>, each: &mut impl FnMut(u32)) {
        self.visit(self.root.unwrap_or(NONE), value, each);
    }

    fn visit(&self, at: u32, value: &Value<'_>, each: &mut impl FnMut(u32)) {
        if at == NONE || !ends_after(&self.node(self.node(at).highest).high, value) {
            return;
        }
        let node = self.node(at);
        self.visit(node.left, value, each);
        if begins_by(&node.low, value) {
            if ends_after(&node.high, value) {
                each(node.slot);
            }
            self.visit(node.right, value, each);
        }
    }

    fn node(&self, id: u32) -> &Node {
        &self.nodes[id as usize]
    }

    /// Order by lower bound, then by node: no two nodes are equal.
    fn order(&self, a: u32, b: u32) -> Ordering {
        compare_low(&self.node(a).low, &self.node(b).low).then(a.cmp(&b))
    }

    fn update(&mut self, id: u32) {
        let node = self.node(id);
        let mut highest = id;
        for child in [node.left, node.right] {
            if child != NONE {
                let below = self.node(child).highest;
                if compare_high(&self.node(below).high, &self.node(highest).high).is_gt() {
                    highest = below;
                }
            }
        }
        self.nodes[id as usize].highest = highest;
    }

    /// Splits a subtree at a node.
    fn split(&mut self, at: u32, by: u32) -> (u32, u32) {
        if at == NONE {
            return (NONE, NONE);
        }
        if self.order(at, by).is_lt() {
            let (left, right) = self.split(self.node(at).right, by);
            self.nodes[at as usize].right = left;
            self.update(at);
            (at, right)
        } else {
            let (left, right) = self.split(self.node(at).left, by);
            self.nodes[at as usize].left = right;
            self.update(at);
            (left, at)
        }
    }

    fn merge(&mut self, a: u32, b: u32) -> u32 {
        if a == NONE || b == NONE {
            return if a == NONE { b } else { a };
        }
        let root = if self.node(a).priority > self.node(b).priority {
            self.nodes[a as usize].right = self.merge(self.node(a).right, b);
            a
        } else {
            self.nodes[b as usize].left = self.merge(a, self.node(b).left);
            b
        };
        self.update(root);
        root
    }

    fn without(&mut self, at: u32, id: u32) -> u32 {
        if at == NONE {
            return NONE;
        }
        if at == id {
            return self.merge(self.node(at).left, self.node(at).right);
        }
        if self.order(id, at).is_lt() {
            self.nodes[at as usize].left = self.without(self.node(at).left, id);
        } else {
            self.nodes[at as usize].right = self.without(self.node(at).right, id);
        }
        self.update(at);
        at
    }
}
