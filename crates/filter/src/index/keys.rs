//! Keys under which predicates are filed.

use crate::expr::Expr;
use crate::like;
use crate::types::value::{self, Value};
use std::borrow::Cow;
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Bound;

/// Longest prefix or suffix of a key, in bytes: longer ones would distinguish hardly more texts.
pub(super) const AFFIX_BYTES_MAX: usize = 32;
/// Lengths of the pieces that are looked up in the middle of texts, in bytes.
pub(super) const PIECE_BYTES: [usize; 4] = [8, 4, 2, 1];

/// The part of a value that a key uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    Equal,
    Null,
    NotNull,
    /// An array has it as an element.
    Element,
    /// The first bytes of a text, this many.
    Prefix(Case, u8),
    Suffix(Case, u8),
    /// This many bytes anywhere in a text.
    Piece(Case, u8),
}

/// Case conversion of a text before the lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Case {
    Kept,
    Folded,
    FoldedAscii,
}

impl Case {
    pub(super) const ALL: [Self; 3] = [Self::Kept, Self::Folded, Self::FoldedAscii];

    pub(super) fn apply(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::Kept => Cow::Borrowed(text),
            Self::Folded => like::fold(text),
            Self::FoldedAscii => Cow::Owned(text.to_ascii_lowercase()),
        }
    }
}

/// A planned key: `what` of `scalar`.
#[derive(Debug, Clone)]
pub(super) struct Key<'a> {
    pub(super) scalar: &'a Expr,
    pub(super) what: What,
}

#[derive(Debug, Clone)]
pub(super) enum What {
    Value(Kind, Value<'static>),
    Bytes(Kind, Vec<u8>),
    Range(Bound<Value<'static>>, Bound<Value<'static>>),
}

pub(super) fn hash_value<S: BuildHasher>(hasher: &S, scalar: u32, kind: Kind, value: &Value<'_>) -> u64 {
    let mut state = hasher.build_hasher();
    (scalar, kind).hash(&mut state);
    value::hash(value, &mut state);
    state.finish()
}

pub(super) fn hash_bytes<S: BuildHasher>(hasher: &S, scalar: u32, kind: Kind, bytes: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    (scalar, kind).hash(&mut state);
    state.write(bytes);
    state.finish()
}
