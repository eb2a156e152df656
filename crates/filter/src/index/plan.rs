//! The keys that a predicate is filed under: for an AND those of the condition that fewest others share, for an OR those
//! of all.

use super::Filed;
use super::keys::{AFFIX_BYTES_MAX, Case, Key, Kind, PIECE_BYTES, What, hash_bytes, hash_value};
use super::postings::Half;
use crate::expr::{Comparison, Expr, Like, Operator};
use crate::function::Function;
use crate::like::{Part, next_part};
use crate::syntax::Test;
use crate::types::value::{Value, compare};
use hashbrown::DefaultHashBuilder;
use std::ops::Bound;

/// Most keys of one predicate; a predicate that needs more is evaluated for each row.
pub(super) const KEYS_MAX: usize = 200_000;

/// Cost of a condition that nearly every row satisfies.
const UNSELECTIVE: u64 = 1 << 40;

pub(super) struct Plan<'a> {
    /// A row that satisfies the predicate has one of these.
    pub(super) keys: Vec<Key<'a>>,
    /// About how many others would be candidates with it.
    pub(super) cost: u64,
}

/// `None` if no set of keys covers every row that satisfies the predicate.
pub(super) fn plan<'a>(expr: &'a Expr, filed: &Filed, hasher: &DefaultHashBuilder) -> Option<Plan<'a>> {
    Planner { filed, hasher }.plan(expr)
}

struct Planner<'p> {
    filed: &'p Filed,
    hasher: &'p DefaultHashBuilder,
}

impl Planner<'_> {
    fn plan<'a>(&self, expr: &'a Expr) -> Option<Plan<'a>> {
        match expr {
            // True, or of a value that is no boolean.
            Expr::Const(Value::Bool(true), _) => None,
            Expr::Const(..) => Some(never()),
            Expr::And(list) => self.and(list),
            Expr::Or(list) => self.or(list.iter().map(|e| self.plan(e))),
            Expr::Column(_) => Some(self.equal(expr, Value::Bool(true))),
            Expr::Not(operand) if matches!(**operand, Expr::Column(_)) => Some(self.equal(operand, Value::Bool(false))),
            Expr::Compare(comparison, _, sides) => self.comparison(*comparison, sides),
            Expr::Distinct(false, _, sides) => match &**sides {
                [scalar, Expr::Const(value, _)] | [Expr::Const(value, _), scalar] if !value.is_null() => {
                    Some(self.equal(scalar, value.clone()))
                }
                _ => None,
            },
            Expr::Is { not, test, operand } => self.is(*not, *test, operand),
            Expr::Like(like, sides) if !like.not => match &**sides {
                [scalar, Expr::Const(Value::Text(pattern), _)] => Some(self.like(scalar, *like, pattern)),
                [_, Expr::Const(Value::Null, _)] => Some(never()),
                _ => None,
            },
            Expr::Quantified { operator, all: false, sides, .. } => self.any(*operator, sides),
            Expr::Call(function, args) => self.call(*function, args),
            _ => None,
        }
    }

    fn one<'a>(&self, scalar: &'a Expr, what: What, weight: u64) -> Plan<'a> {
        let shared = match (self.filed.scalars.find(scalar), &what) {
            (None, _) => 0,
            (Some(id), What::Value(kind, value)) => {
                self.filed.postings.count(Half::of(hash_value(self.hasher, id, *kind, value)))
            }
            (Some(id), What::Bytes(kind, bytes)) => {
                self.filed.postings.count(Half::of(hash_bytes(self.hasher, id, *kind, bytes)))
            }
            // Their overlap is unknown.
            (Some(id), What::Range(..)) => self.filed.scalars.all[id as usize].ranges.len() / 8,
        };
        Plan { keys: vec![Key { scalar, what }], cost: (shared as u64 + 1).saturating_mul(weight) }
    }

    fn equal<'a>(&self, scalar: &'a Expr, value: Value<'static>) -> Plan<'a> {
        // Half of the rows have any boolean.
        let weight = if matches!(value, Value::Bool(_)) { 1 << 20 } else { 1 };
        self.one(scalar, What::Value(Kind::Equal, value), weight)
    }

    fn is_null<'a>(&self, scalar: &'a Expr, not: bool) -> Plan<'a> {
        let (kind, weight) = if not { (Kind::NotNull, UNSELECTIVE) } else { (Kind::Null, 16) };
        self.one(scalar, What::Value(kind, Value::Null), weight)
    }

    fn range<'a>(&self, scalar: &'a Expr, low: Bound<Value<'static>>, high: Bound<Value<'static>>) -> Plan<'a> {
        let open = matches!(low, Bound::Unbounded) || matches!(high, Bound::Unbounded);
        self.one(scalar, What::Range(low, high), if open { 1 << 10 } else { 8 })
    }

    fn comparison<'a>(&self, comparison: Comparison, sides: &'a [Expr; 2]) -> Option<Plan<'a>> {
        let [scalar, Expr::Const(value, _)] = sides else { return None };
        if value.is_null() {
            return Some(never());
        }
        match (comparison, value) {
            (Comparison::Equal, value) => Some(self.equal(scalar, value.clone())),
            (Comparison::NotEqual, Value::Bool(value)) => Some(self.equal(scalar, Value::Bool(!value))),
            (Comparison::NotEqual, _) => None,
            _ => {
                let (low, high) = limits(comparison, value);
                Some(self.range(scalar, low, high))
            }
        }
    }

    fn and<'a>(&self, list: &'a [Expr]) -> Option<Plan<'a>> {
        let mut best: Option<Plan<'a>> = None;
        let mut consider = |plan: Plan<'a>| {
            if best.as_ref().is_none_or(|best| plan.cost < best.cost) {
                best = Some(plan);
            }
        };
        // Ranges of one scalar make one.
        let mut ranges: Vec<(&'a Expr, Bound<Value<'static>>, Bound<Value<'static>>)> = Vec::new();
        for expr in list {
            if let Expr::Compare(comparison, _, sides) = expr
                && comparison.orders()
                && let [scalar, Expr::Const(value, _)] = &**sides
                && !value.is_null()
            {
                let (low, high) = limits(*comparison, value);
                match ranges.iter_mut().find(|(known, ..)| *known == scalar) {
                    Some((_, known_low, known_high)) => {
                        narrow(known_low, low, true);
                        narrow(known_high, high, false);
                    }
                    None => ranges.push((scalar, low, high)),
                }
            } else if let Some(plan) = self.plan(expr) {
                consider(plan);
            }
        }
        for (scalar, low, high) in ranges {
            consider(self.range(scalar, low, high));
        }
        best
    }

    fn or<'a>(&self, plans: impl Iterator<Item = Option<Plan<'a>>>) -> Option<Plan<'a>> {
        let mut whole = never();
        for plan in plans {
            let plan = plan?;
            whole.keys.extend(plan.keys);
            whole.cost = whole.cost.saturating_add(plan.cost);
            if whole.keys.len() > KEYS_MAX {
                return None;
            }
        }
        Some(whole)
    }

    fn is<'a>(&self, not: bool, test: Test, operand: &'a Expr) -> Option<Plan<'a>> {
        let column = matches!(operand, Expr::Column(_));
        match (test, not) {
            (Test::Null, not) => Some(self.is_null(operand, not)),
            (Test::Unknown, not) if column => Some(self.is_null(operand, not)),
            (Test::True, false) => self.plan(operand),
            (Test::False, false) if column => Some(self.equal(operand, Value::Bool(false))),
            _ => None,
        }
    }

    fn any<'a>(&self, operator: Operator, sides: &'a [Expr; 2]) -> Option<Plan<'a>> {
        match (operator, sides) {
            (_, [_, Expr::Const(Value::Null, _)] | [Expr::Const(Value::Null, _), _]) => Some(never()),
            (Operator::Compare(Comparison::Equal), [Expr::Const(value, _), array]) => {
                Some(self.one(array, What::Value(Kind::Element, value.clone()), 1))
            }
            (operator, [scalar, Expr::Const(Value::Array(array), _)]) => {
                let elements = array.elements.iter().filter(|e| !e.is_null());
                self.or(elements.map(|element| match (operator, element) {
                    (Operator::Compare(Comparison::Equal), value) => Some(self.equal(scalar, value.clone())),
                    (Operator::Like(like), Value::Text(pattern)) if !like.not => Some(self.like(scalar, like, pattern)),
                    _ => None,
                }))
            }
            _ => None,
        }
    }

    fn call<'a>(&self, function: Function, args: &'a [Expr]) -> Option<Plan<'a>> {
        let element =
            |scalar: &'a Expr, value: &Value<'static>| self.one(scalar, What::Value(Kind::Element, value.clone()), 1);
        match (function, args) {
            (Function::ArrayContains, [scalar, Expr::Const(Value::Array(wanted), _)])
            | (Function::ArrayContained, [Expr::Const(Value::Array(wanted), _), scalar]) => {
                if wanted.elements.iter().any(Value::is_null) {
                    return Some(never());
                }
                let plans = wanted.elements.iter().map(|value| element(scalar, value));
                Some(plans.min_by_key(|plan| plan.cost).unwrap_or_else(|| self.is_null(scalar, true)))
            }
            (
                Function::ArrayOverlaps,
                [scalar, Expr::Const(Value::Array(wanted), _)] | [Expr::Const(Value::Array(wanted), _), scalar],
            ) => self.or(wanted.elements.iter().filter(|e| !e.is_null()).map(|value| Some(element(scalar, value)))),
            (Function::StartsWith, [scalar, Expr::Const(Value::Text(prefix), _)]) => {
                Some(self.affix(scalar, Case::Kept, prefix, true).unwrap_or_else(|| self.is_null(scalar, true)))
            }
            _ => None,
        }
    }

    /// A beginning or an end of a text; `None` of nothing.
    fn affix<'a>(&self, scalar: &'a Expr, case: Case, text: &str, first: bool) -> Option<Plan<'a>> {
        let length = text.len().min(AFFIX_BYTES_MAX);
        let short = u8::try_from(length).ok().filter(|length| *length > 0)?;
        let (kind, bytes) = if first {
            (Kind::Prefix(case, short), &text.as_bytes()[..length])
        } else {
            (Kind::Suffix(case, short), &text.as_bytes()[text.len() - length..])
        };
        Some(self.one(scalar, What::Bytes(kind, bytes.to_vec()), weight_of(length)))
    }

    /// Of a text that is somewhere in the value, the piece that fewest share.
    fn piece<'a>(&self, scalar: &'a Expr, case: Case, text: &str) -> Option<Plan<'a>> {
        let length = PIECE_BYTES.into_iter().find(|length| *length <= text.len())?;
        let kind = Kind::Piece(case, u8::try_from(length).ok()?);
        let plans = text
            .as_bytes()
            .windows(length)
            .map(|bytes| self.one(scalar, What::Bytes(kind, bytes.to_vec()), 2 * weight_of(length)));
        plans.min_by_key(|plan| plan.cost)
    }

    fn like<'a>(&self, scalar: &'a Expr, like: Like, pattern: &str) -> Plan<'a> {
        let case = match (like.folded, like.ascii) {
            (false, _) => Case::Kept,
            (true, false) => Case::Folded,
            (true, true) => Case::FoldedAscii,
        };
        let folded = case.apply(pattern);
        let Some(literals) = Literals::of(&folded) else {
            // The pattern ends in a lone escape: a match fails or is false.
            return self.is_null(scalar, true);
        };
        if let (Case::Kept, Some(whole)) = (case, &literals.whole) {
            return self.equal(scalar, Value::from(whole.clone()));
        }
        let affixes =
            [self.affix(scalar, case, &literals.first, true), self.affix(scalar, case, &literals.last, false)];
        let pieces = literals.inner.iter().map(|text| self.piece(scalar, case, text));
        let best = affixes.into_iter().chain(pieces).flatten().min_by_key(|plan| plan.cost);
        best.unwrap_or_else(|| self.is_null(scalar, true))
    }
}

/// Shorter pieces are in more rows.
fn weight_of(length: usize) -> u64 {
    match length {
        1 => 1 << 12,
        2 => 1 << 8,
        3 => 1 << 5,
        _ => 2,
    }
}

fn never<'a>() -> Plan<'a> {
    Plan { keys: Vec::new(), cost: 0 }
}

fn limits(comparison: Comparison, value: &Value<'static>) -> (Bound<Value<'static>>, Bound<Value<'static>>) {
    let value = value.clone();
    match comparison {
        Comparison::Less => (Bound::Unbounded, Bound::Excluded(value)),
        Comparison::LessOrEqual => (Bound::Unbounded, Bound::Included(value)),
        Comparison::Greater => (Bound::Excluded(value), Bound::Unbounded),
        Comparison::GreaterOrEqual => (Bound::Included(value), Bound::Unbounded),
        Comparison::Equal | Comparison::NotEqual => (Bound::Unbounded, Bound::Unbounded),
    }
}

/// Keeps the tighter of two bounds of one side.
fn narrow(known: &mut Bound<Value<'static>>, new: Bound<Value<'static>>, low: bool) {
    let tighter = match (&*known, &new) {
        (_, Bound::Unbounded) => false,
        (Bound::Unbounded, _) => true,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
            if low {
                compare(b, a).is_gt()
            } else {
                compare(b, a).is_lt()
            }
        }
    };
    if tighter {
        *known = new;
    }
}

/// The literal texts of a pattern.
struct Literals {
    /// The whole pattern, if it has no wildcards.
    whole: Option<String>,
    /// The part in front of the first wildcard.
    first: String,
    /// Behind the last.
    last: String,
    inner: Vec<String>,
}

impl Literals {
    /// `None` if it ends in a lone escape.
    fn of(pattern: &str) -> Option<Self> {
        let mut runs = vec![String::new()];
        let mut rest = pattern;
        while !rest.is_empty() {
            let (part, behind) = next_part(rest)?;
            match part {
                Part::Char(char) => runs.last_mut()?.push(char),
                Part::Any | Part::One => runs.push(String::new()),
            }
            rest = behind;
        }
        if runs.len() == 1 {
            let whole = runs.remove(0);
            return Some(Self { first: whole.clone(), last: String::new(), inner: Vec::new(), whole: Some(whole) });
        }
        let last = runs.pop()?;
        let first = runs.remove(0);
        runs.retain(|run| !run.is_empty());
        Some(Self { whole: None, first, last, inner: runs })
    }
}
