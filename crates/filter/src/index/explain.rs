//! The keys of a predicate, in words.

use super::keys::{Key, Kind, What};
use super::plan::{KEYS_MAX, Plan, plan};
use super::{Filed, Index};
use crate::Predicate;
use crate::expr::Expr;
use crate::print;
use crate::schema::Schema;
use hashbrown::DefaultHashBuilder;
use std::fmt;

/// How rows find a predicate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// No row finds it: it is never true.
    Never,
    /// By any of these keys, such as ``equality on "name"``; equal ones are counted: ``3 x equality on "id"``.
    /// Candidates are then evaluated.
    Keys(Vec<String>),
    /// It has no keys, and is evaluated for each row. `because` says which part of it has no key.
    EachRow { because: String },
}

impl fmt::Display for Explanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => out.write_str("never true"),
            Self::Keys(keys) => out.write_str(&keys.join(", ")),
            Self::EachRow { .. } => out.write_str("evaluated for each row"),
        }
    }
}

impl<K: Copy + Ord> Index<K> {
    /// How rows find, or would find, a predicate: for people.
    pub fn explain(&self, predicate: &Predicate) -> Explanation {
        let (expr, schema) = (&predicate.expr, &predicate.schema);
        match plan(expr, &self.filed, &self.hasher) {
            None => Explanation::EachRow { because: because(expr, schema, &self.filed, &self.hasher) },
            Some(plan) if plan.keys.is_empty() => Explanation::Never,
            Some(plan) => Explanation::Keys(keys(&plan, schema)),
        }
    }
}

fn keys(plan: &Plan<'_>, schema: &Schema) -> Vec<String> {
    let mut parts: Vec<(String, usize)> = Vec::new();
    for key in &plan.keys {
        let text = describe(key, schema);
        match parts.iter_mut().find(|(known, _)| *known == text) {
            Some((_, count)) => *count += 1,
            None => parts.push((text, 1)),
        }
    }
    parts.into_iter().map(|(text, count)| if count == 1 { text } else { format!("{count} x {text}") }).collect()
}

fn describe(key: &Key<'_>, schema: &Schema) -> String {
    let how = match &key.what {
        What::Value(Kind::Equal, _) => "equality".to_owned(),
        What::Value(Kind::Null, _) => "null".to_owned(),
        What::Value(Kind::NotNull, _) => "not null".to_owned(),
        What::Value(..) => "element".to_owned(),
        What::Bytes(Kind::Prefix(..), bytes) => format!("prefix of {} bytes", bytes.len()),
        What::Bytes(Kind::Suffix(..), bytes) => format!("suffix of {} bytes", bytes.len()),
        What::Bytes(_, bytes) => format!("piece of {} bytes", bytes.len()),
        What::Range(..) => "range".to_owned(),
    };
    format!("{how} on {}", print::canonical(key.scalar, schema))
}

/// Why a predicate has no keys. In an OR one side without keys is enough.
fn because(expr: &Expr, schema: &Schema, filed: &Filed, hasher: &DefaultHashBuilder) -> String {
    match expr {
        Expr::Or(sides) => match sides.iter().find(|side| plan(side, filed, hasher).is_none()) {
            Some(side) => because(side, schema, filed, hasher),
            None => format!("it has more than {KEYS_MAX} keys"),
        },
        _ => format!(
            "{} asks for no value, range, beginning, end, piece or element of a column or of an expression",
            print::canonical(expr, schema)
        ),
    }
}
