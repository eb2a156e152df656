//! What an expression is for a row.

use crate::expr::{Choice, Comparison, Expr, Like, Operator, is_membership};
use crate::function::Function;
use crate::like;
use crate::row::Row;
use crate::syntax::Test;
use crate::types::array::Array;
use crate::types::cast::{self, Failed};
use crate::types::value::{Value, compare, unpadded};
use crate::types::{Base, Type};
use std::sync::Arc;

/// Of three-valued logic; `None` is unknown.
type Truth = Result<Option<bool>, Failed>;

impl Expr {
    /// Of an expression that is a condition.
    pub(crate) fn truth<'r>(&'r self, row: &'r Row<'_>) -> Truth {
        match self {
            // From the left, and no further than needed, as Postgres does: what is not reached cannot fail.
            Self::And(list) => all(list.iter().map(|e| e.truth(row))),
            Self::Or(list) => any(list.iter().map(|e| e.truth(row))),
            Self::Not(operand) => Ok(operand.truth(row)?.map(|truth| !truth)),
            Self::Compare(comparison, _, sides) => {
                let (left, right) = (sides[0].eval(row)?, sides[1].eval(row)?);
                Ok(compared(*comparison, &left, &right))
            }
            Self::Distinct(differ, _, sides) => {
                let (left, right) = (sides[0].eval(row)?, sides[1].eval(row)?);
                let same = left.is_null() == right.is_null() && compare(&left, &right).is_eq();
                Ok(Some(same != *differ))
            }
            Self::Is { not, test, operand } => Ok(Some(is(*test, operand, row)? != *not)),
            Self::Like(like, sides) => {
                let (text, pattern) = (sides[0].eval(row)?, sides[1].eval(row)?);
                matched(*like, &text, &pattern)
            }
            Self::Quantified { operator, all, sides, .. } => {
                let (left, right) = (sides[0].eval(row)?, sides[1].eval(row)?);
                if matches!(sides[1], Expr::Const(..)) && is_membership(*operator, *all) {
                    return Ok(is_among(&left, &right).map(|found| found != *all));
                }
                quantified(*operator, *all, &left, &right)
            }
            other => match other.eval(row)? {
                Value::Bool(truth) => Ok(Some(truth)),
                _ => Ok(None),
            },
        }
    }

    pub(crate) fn eval<'r>(&'r self, row: &'r Row<'_>) -> Result<Value<'r>, Failed> {
        match self {
            Self::Column(column) => row.column(*column).map(Value::borrow),
            Self::Const(value, _) => Ok(value.borrow()),
            Self::Hole(at, _) => Ok(row.holes.get(usize::from(*at)).map_or(Value::Null, Value::borrow)),
            Self::Cast { from, to, operand } => match operand.eval(row)? {
                Value::Null => Ok(Value::Null),
                value => cast::cast(value, *from, *to, row.schema),
            },
            Self::Fit { base, modifiers, operand } => match operand.eval(row)? {
                Value::Null => Ok(Value::Null),
                value => cast::fit(value, *base, *modifiers),
            },
            Self::Call(function, args) => match &args[..] {
                [one] => called(*function, &[one.eval(row)?]),
                [left, right] => called(*function, &[left.eval(row)?, right.eval(row)?]),
                args => called(*function, &args.iter().map(|arg| arg.eval(row)).collect::<Result<Vec<_>, _>>()?),
            },
            Self::Choose(choice, ty, args) => choose(*choice, *ty, args, row),
            Self::Array(_, list) => {
                let mut elements = Vec::with_capacity(list.len());
                for element in list {
                    elements.push(element.eval(row)?.owned());
                }
                Ok(Value::Array(Arc::new(Array::of(elements))))
            }
            condition => Ok(condition.truth(row)?.map_or(Value::Null, Value::Bool)),
        }
    }
}

fn called<'r>(function: Function, args: &[Value<'r>]) -> Result<Value<'r>, Failed> {
    if !takes_nulls(function) && args.iter().any(Value::is_null) { Ok(Value::Null) } else { function.call(args) }
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

fn compared(comparison: Comparison, left: &Value<'_>, right: &Value<'_>) -> Option<bool> {
    if left.is_null() || right.is_null() { None } else { Some(comparison.holds(compare(left, right))) }
}

fn matched(like: Like, text: &Value<'_>, pattern: &Value<'_>) -> Truth {
    let (Value::Text(text), Value::Text(pattern)) = (text, pattern) else { return Ok(None) };
    let found = match (like.folded, like.ascii) {
        (false, _) => like::matches(text, pattern),
        (true, false) => like::matches(&like::fold(text), &like::fold(pattern)),
        (true, true) => like::matches(&text.to_ascii_lowercase(), &pattern.to_ascii_lowercase()),
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
fn is_among(value: &Value<'_>, array: &Value<'_>) -> Option<bool> {
    let Value::Array(array) = array else { return None };
    let Some(last) = array.elements.last() else { return Some(false) };
    if value.is_null() {
        return None;
    }
    let found = array.elements.binary_search_by(|element| compare(element, value)).is_ok();
    if found || !last.is_null() { Some(found) } else { None }
}

fn quantified(operator: Operator, is_all: bool, left: &Value<'_>, right: &Value<'_>) -> Truth {
    let Value::Array(array) = right else { return Ok(None) };
    let truths = array.elements.iter().map(|element| match operator {
        Operator::Compare(comparison) => Ok(compared(comparison, left, element)),
        Operator::Like(like) => matched(like, left, element),
    });
    if is_all { all(truths) } else { any(truths) }
}

fn choose<'r>(choice: Choice, ty: Type, args: &'r [Expr], row: &'r Row<'_>) -> Result<Value<'r>, Failed> {
    let key = |value: &Value<'r>| match value {
        Value::Text(text) if ty.base == Base::Bpchar => Value::Text(unpadded(text.clone())),
        other => other.clone(),
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
                let order = compare(&key(&value), &key(&best));
                let better = if choice == Choice::Greatest { order.is_gt() } else { order.is_lt() };
                if !value.is_null() && (best.is_null() || better) {
                    best = value;
                }
            }
            Ok(best)
        }
        Choice::NullIf => {
            let (left, right) = (args[0].eval(row)?, args[1].eval(row)?);
            Ok(if compared(Comparison::Equal, &key(&left), &key(&right)) == Some(true) { Value::Null } else { left })
        }
        Choice::Concat => {
            let mut text = String::new();
            for arg in args {
                if let Value::Text(part) = arg.eval(row)? {
                    text.push_str(&part);
                }
            }
            Ok(text.into())
        }
    }
}
