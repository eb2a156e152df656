//! From text to a tree, by Postgres's grammar: lexical rules of `scan.l`, precedences of `gram.y`. This module knows no
//! types.

mod lex;
mod parse;
mod primary;
mod select;
mod tree;
mod type_name;

pub(crate) use lex::renumbered;
pub(crate) use parse::parse;
pub(crate) use tree::{Kind, Node, Select, Test, TypeName};

/// Longest text that is read, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 10;
/// Most bytes of parameters, each counted as often as it is used.
pub(crate) const USES_BYTES_MAX: usize = 1 << 20;
/// Most nodes of a tree, where BETWEEN and IN repeat their operands.
pub(crate) const SIZE_MAX: u32 = 1 << 17;
/// Most of these in a text that is no clause for us, if another parser is to read it.
pub(crate) const REPEATS_MAX: usize = 6;
/// Deepest nesting. Walks of trees may recurse: their depth is at most a small multiple of this.
pub(crate) const DEPTH_MAX: u16 = 100;
