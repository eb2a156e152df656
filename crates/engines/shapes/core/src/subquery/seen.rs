//! One row as a where clause with subqueries evaluates it, and the tags that clients get.

use crate::encode::message::push_tags;
use ring::digest::{SHA256, digest};
use thalweg_filter::{Condition, Key, Membership, Position, TooCostly};

/// The evaluation of a condition for one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The truth of each position.
    pub truths: Vec<bool>,
    /// The keys that the row asks for, at the positions that are memberships.
    pub keys: Vec<Option<Key>>,
    pub holds: bool,
}

impl Seen {
    /// `is_true` decides memberships. A position that is too costly to decide is an error only if the row could satisfy
    /// the condition without it: a row that other positions exclude costs nothing.
    pub fn new(
        condition: &Condition,
        row: &[Option<&[u8]>],
        is_true: &dyn Fn(usize, &Membership, &Key) -> bool,
    ) -> Result<Self, TooCostly> {
        let positions = condition.positions();
        let (mut truths, mut keys) = (Vec::with_capacity(positions.len()), Vec::with_capacity(positions.len()));
        let mut too_costly = None;
        for (at, position) in positions.iter().enumerate() {
            match position {
                Position::Row(predicate) => {
                    let held = predicate.holds(row);
                    truths.push(*held.as_ref().unwrap_or(&true));
                    too_costly = too_costly.or(held.err());
                    keys.push(None);
                }
                Position::In(membership) => {
                    let key = membership.key(row);
                    truths.push(is_true(at, membership, &key));
                    keys.push(Some(key));
                }
            }
        }
        // No position is negated: if the condition fails with the unknown positions true, it fails in any case.
        let holds = condition.holds(&truths);
        match too_costly {
            Some(error) if holds => Err(error),
            _ => Ok(Self { truths, keys, holds }),
        }
    }

    /// The evaluation of a row whose truth values are known already.
    pub fn told(condition: &Condition, row: &[Option<&[u8]>], truths: Vec<bool>) -> Self {
        let keys = condition.positions().iter().map(|position| match position {
            Position::Row(_) => None,
            Position::In(membership) => Some(membership.key(row)),
        });
        let keys = keys.collect();
        let holds = condition.holds(&truths);
        Self { truths, keys, holds }
    }

    /// One tag for each alternative: its slots, one for each position, between slashes. A slot is a hash of the row's
    /// key, `1` for a condition on the row alone, and empty if the alternative does not use the position.
    pub fn tags(&self, condition: &Condition, handle: &str) -> Vec<String> {
        let slots: Vec<String> =
            self.keys.iter().map(|key| key.as_ref().map_or_else(|| "1".to_owned(), |key| hash(handle, key))).collect();
        condition
            .alternatives()
            .map(|all| {
                let slot = |at: usize| if all.contains(&(at as u16)) { slots[at].as_str() } else { "" };
                (0..slots.len()).map(slot).collect::<Vec<_>>().join("/")
            })
            .collect()
    }

    /// JSON members for a row's headers; `before`: the old row of an update.
    pub fn push_headers(&self, condition: &Condition, handle: &str, before: Option<&Self>, out: &mut Vec<u8>) {
        let tags = self.tags(condition, handle);
        let old = before.map(|before| before.tags(condition, handle));
        let removed = old
            .as_ref()
            .map(|old| old.iter().filter(|tag| !tags.contains(tag)).map(String::as_str).collect::<Vec<_>>());
        let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
        push_tags(out, &tags, removed.as_deref(), &self.truths);
    }
}

/// The hash of a key in tags and patterns: 32 hexadecimal digits that reveal nothing to a client that does not know the
/// key.
pub fn hash(handle: &str, key: &Key) -> String {
    let digest = digest(&SHA256, &[handle.as_bytes(), &[0], key.bytes()].concat());
    digest.as_ref().iter().take(16).fold(String::with_capacity(32), |mut out, byte| {
        use std::fmt::Write;
        let _ = write!(out, "{byte:02x}");
        out
    })
}
