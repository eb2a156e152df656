//! Evaluation of an expression for a row.

use crate::budget::{Budget, Failed};
use crate::expr::{Choice, Comparison, Expr, Like, Operator, is_membership};
use crate::function::Function;
use crate::like;
use crate::row::Row;
use crate::syntax::Test;
use crate::types::array::Array;
use crate::types::cast;
use crate::types::value::{Value, compare_within, unpadded};
use crate::types::{Base, Type};
use std::cmp::Ordering;
use std::sync::Arc;

/// Cost of a node of an expression, beside its work on values.
const STEP: u64 = 4;

/// A truth value of three-valued logic; `None` is unknown.
type Truth = Result<Option<bool>, Failed>;

impl Expr {
    /// Whether a condition is true; false and null are alike. Evaluates from the left, and no further than needed: in
    /// an AND, the sides behind a null side cannot change the answer, so they are not evaluated and their cost reveals
    /// nothing about the row.
    pub(crate) fn holds(&self, row: &Row<'_>) -> Result<bool, Failed> {
        let mut sides = match self {
            Self::And(list) | Self::Or(list) => list.iter().map(|side| side.holds(row)),
            other => return Ok(other.truth(row)? == Some(true)),
        };
        row.budget.spend(STEP)?;
        let decisive = matches!(self, Self::Or(_));
        let found = sides.find(|side| *side != Ok(!decisive));
        found.unwrap_or(Ok(!decisive))
    }

    /// The truth value of a condition.
    pub(crate) fn truth<'r>(&'r self, row: &'r Row<'_>) -> Truth {
        let budget = &row.budget;
        budget.spend(STEP)?;
        match self {
            // From the left, and no further than needed, as Postgres does: an operand that is not reached cannot fail.
            Self::And(list) => all(list.iter().map(|e| e.truth(row))),
            Self::Or(list) => any(list.iter().map(|e| e.truth(row))),
            Self::Not(operand) => Ok(operand.truth(row)?.map(|truth| !truth)),
            Self::Compare(comparison, _, sides) => {
                let (left, right) = (sides[0].eval(row)?, sides[1].eval(row)?);
                compared(*comparison, &left, &right, budget)
            }
            Self::Distinct(differ, _, sides) => {
                let (left, right) = (sides[0].eval(row)?, sides[1].eval(row)?);
                let same = left.is_null() == right.is_null() && compare_within(&left, &right, budget)?.is_eq();
                Ok(Some(same != *differ))
            }
            Self::Is { not, test, operand } => Ok(Some(is(*test, operand, row)? != *not)),
            Self::Like(like, sides) => {
                let (text, pattern) = (sides[0].eval(row)?, sides[1].eval(row)?);
                matched(*like, &text, &pattern, budget)
            }
            Self::Quantified { operator, all, sides, .. } => {
                let (left, right) = (sides[0].eval(row)?, sides[1].eval(row)?);
                if matches!(sides[1], Expr::Const(..)) && is_membership(*operator, *all) {
                    return Ok(is_among(&left, &right, budget)?.map(|found| found != *all));
                }
                quantified(*operator, *all, &left, &right, budget)
            }
            other => match other.eval(row)? {
                Value::Bool(truth) => Ok(Some(truth)),
                _ => Ok(None),
            },
        }
    }

    pub(crate) fn eval<'r>(&'r self, row: &'r Row<'_>) -> Result<Value<'r>, Failed> {
        let budget = &row.budget;
        budget.spend(STEP)?;
        match self {
            Self::Column(column) => row.column(*column).map(Value::borrow),
            Self::Const(value, _) => Ok(value.borrow()),
            Self::Hole(at, _) => Ok(row.holes.get(usize::from(*at)).map_or(Value::Null, Value::borrow)),
            Self::Cast { from, to, operand } => match operand.eval(row)? {
                Value::Null => Ok(Value::Null),
                value => cast::cast(value, *from, *to, row.schema, budget),
            },
            Self::Fit { base, modifiers, operand } => match operand.eval(row)? {
                Value::Null => Ok(Value::Null),
                value => cast::fit(value, *base, *modifiers, budget),
            },
            Self::Call(function, args) => match &args[..] {
                [one] => called(*function, &[one.eval(row)?], budget),
                [left, right] => called(*function, &[left.eval(row)?, right.eval(row)?], budget),
                args => {
                    called(*function, &args.iter().map(|arg| arg.eval(row)).collect::<Result<Vec<_>, _>>()?, budget)
                }
            },
            Self::Choose(choice, ty, args) => choose(*choice, *ty, args, row),
            Self::Array(_, list) => {
                let mut elements = Vec::with_capacity(list.len());
                for element in list {
                    let element = element.eval(row)?;
                    budget.make(size_of::<Value<'_>>() + element.own_bytes())?;
                    elements.push(element.owned());
                }
                Ok(Value::Array(Arc::new(Array::of(elements))))
            }
            condition => Ok(condition.truth(row)?.map_or(Value::Null, Value::Bool)),
        }
    }
}

fn called<'r>(function: Function, args: &[Value<'r>], budget: &Budget) -> Result<Value<'r>, Failed> {
    if !takes_nulls(function) && args.iter().any(Value::is_null) {
        Ok(Value::Null)
    } else {
        function.call(args, budget)
    }
}

/// A null can be put into an array.
fn takes_nulls(function: Function) -> bool {
    matches!(function, Function::ArrayAppend | Function::ArrayConcat | Function::ArrayPrepend)
}

fn all(truths: impl Iterator<Item = Truth>) -> Truth {
    let mut whole = Some(true);
    for truth in truths {
        match truth? {
            Some(false) => return Ok(Some(false)),
            None => whole = None,
            Some(true) => {}
        }
    }
    Ok(whole)
}

fn any(truths: impl Iterator<Item = Truth>) -> Truth {
    Ok(all(truths.map(|truth| Ok(truth?.map(|t| !t))))?.map(|t| !t))
}

fn compared(comparison: Comparison, left: &Value<'_>, right: &Value<'_>, budget: &Budget) -> Truth {
    if left.is_null() || right.is_null() {
        return Ok(None);
    }
    Ok(Some(comparison.holds(compare_within(left, right, budget)?)))
}

fn matched(like: Like, text: &Value<'_>, pattern: &Value<'_>, budget: &Budget) -> Truth {
    let (Value::Text(text), Value::Text(pattern)) = (text, pattern) else { return Ok(None) };
    if like.folded {
        budget.make(4 * (text.len() + pattern.len()))?;
    }
    let found = match (like.folded, like.ascii) {
        (false, _) => like::matches(text, pattern, budget),
        (true, false) => like::matches(&like::fold(text), &like::fold(pattern), budget),
        (true, true) => like::matches(&text.to_ascii_lowercase(), &pattern.to_ascii_lowercase(), budget),
    };
    Ok(Some(found? != like.not))
}

fn is(test: Test, operand: &Expr, row: &Row<'_>) -> Result<bool, Failed> {
    Ok(match test {
        Test::Null => operand.eval(row)?.is_null(),
        Test::Unknown => operand.truth(row)?.is_none(),
        Test::True => operand.truth(row)? == Some(true),
        Test::False => operand.truth(row)? == Some(false),
    })
}

/// Whether a value is in a constant array, which is in order.
fn is_among(value: &Value<'_>, array: &Value<'_>, budget: &Budget) -> Truth {
    let Value::Array(array) = array else { return Ok(None) };
    let Some(last) = array.elements.last() else { return Ok(Some(false)) };
    if value.is_null() {
        return Ok(None);
    }
    let mut spent = Ok(());
    let found = array.elements.binary_search_by(|element| match compare_within(element, value, budget) {
        Ok(order) => order,
        Err(failed) => {
            spent = Err(failed);
            Ordering::Equal
        }
    });
    spent?;
    Ok((found.is_ok() || !last.is_null()).then_some(found.is_ok()))
}

fn quantified(operator: Operator, is_all: bool, left: &Value<'_>, right: &Value<'_>, budget: &Budget) -> Truth {
    let Value::Array(array) = right else { return Ok(None) };
    let truths = array.elements.iter().map(|element| match operator {
        Operator::Compare(comparison) => compared(comparison, left, element, budget),
        Operator::Like(like) => matched(like, left, element, budget),
    });
    if is_all { all(truths) } else { any(truths) }
}

fn choose<'r>(choice: Choice, ty: Type, args: &'r [Expr], row: &'r Row<'_>) -> Result<Value<'r>, Failed> {
    let budget = &row.budget;
    let key = |value: &Value<'r>| -> Result<Value<'r>, Failed> {
        budget.make(value.own_bytes())?;
        Ok(match value {
            Value::Text(text) if ty.base == Base::Bpchar => Value::Text(unpadded(text.clone())),
            other => other.clone(),
        })
    };
    match choice {
        Choice::Coalesce => {
            for arg in args {
                let value = arg.eval(row)?;
                if !value.is_null() {
                    return Ok(value);
                }
            }
            Ok(Value::Null)
        }
        Choice::Greatest | Choice::Least => {
            let mut best = Value::Null;
            for arg in args {
                let value = arg.eval(row)?;
                let order = compare_within(&key(&value)?, &key(&best)?, budget)?;
                let better = if choice == Choice::Greatest { order.is_gt() } else { order.is_lt() };
                if !value.is_null() && (best.is_null() || better) {
                    best = value;
                }
            }
            Ok(best)
        }
        Choice::NullIf => {
            let (left, right) = (args[0].eval(row)?, args[1].eval(row)?);
            let same = compared(Comparison::Equal, &key(&left)?, &key(&right)?, budget)? == Some(true);
            Ok(if same { Value::Null } else { left })
        }
        Choice::Concat => {
            let mut text = String::new();
            for arg in args {
                if let Value::Text(part) = arg.eval(row)? {
                    // The text grows while it is made.
                    budget.make(2 * part.len())?;
                    text.push_str(&part);
                }
            }
            Ok(text.into())
        }
    }
}
