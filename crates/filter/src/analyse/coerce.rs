//! Conversion of literals and expressions to a required type.

use super::{Analyser, Typed};
use crate::budget::Failed;
use crate::error::{Parsed, refuse, refuse_oversized};
use crate::expr::Expr;
use crate::syntax::TypeName;
use crate::types::array::Array;
use crate::types::cast;
use crate::types::input::{self, Unread};
use crate::types::value::{Value, unpadded};
use crate::types::{Base, Type};
use std::sync::Arc;

/// Longest result of folding that is kept in place of the expression.
const FOLDED_BYTES_MAX: usize = 64 << 10;

pub(super) const LONG_NUMBER: &str = "numeric constants of more than 1000 digits are not supported";

/// `pg_type.oid` of inet.
const INET: u32 = 869;

/// Replaces an expression of constants by its value. A failing one stays, and fails for each row; one that costs too
/// much makes the clause refused.
pub(super) fn fold(expr: Expr, ty: Type, analyser: &Analyser<'_>) -> Expr {
    let constants = |e: &Expr| matches!(e, Expr::Const(..));
    if matches!(expr, Expr::Column(_) | Expr::Const(..)) || !expr.children().iter().all(constants) {
        return expr;
    }
    match analyser.computed(&expr) {
        Ok(Value::Text(text)) if text.len() > FOLDED_BYTES_MAX => expr,
        Ok(Value::Bytes(bytes)) if bytes.len() > FOLDED_BYTES_MAX => expr,
        Ok(value) => Expr::Const(value, ty),
        Err(Failed::Invalid | Failed::Costly) => expr,
    }
}

/// Converts by the casts that Postgres applies implicitly.
pub(super) fn implicitly(it: Typed, to: Type, analyser: &Analyser<'_>) -> Parsed<Expr> {
    if it.ty == to {
        return Ok(it.expr);
    }
    if it.ty.is_unknown() {
        return literal(it, to, analyser);
    }
    if !it.ty.becomes(to) {
        return refuse(it.at, format!("cannot cast type {} to {}", it.ty.name(), to.name()));
    }
    let cast = Expr::Cast { from: it.ty, to, operand: Box::new(it.expr) };
    Ok(fold(cast, to, analyser))
}

/// A literal whose type was unknown so far.
fn literal(it: Typed, to: Type, analyser: &Analyser<'_>) -> Parsed<Expr> {
    match it.expr {
        Expr::Const(Value::Null, _) => Ok(Expr::Const(Value::Null, to)),
        Expr::Const(Value::Text(text), _) => match input::parse(&text, to, analyser.schema, analyser.budget) {
            Ok(value) if !is_short(&value) => refuse_oversized(it.at, LONG_NUMBER),
            Ok(value) => Ok(Expr::Const(value.owned(), to)),
            Err(Unread::Invalid(message)) => refuse(it.at, message),
            Err(Unread::Costly) => refuse_oversized(it.at, super::TOO_LARGE),
        },
        other => Ok(other),
    }
}

fn is_short(value: &Value<'_>) -> bool {
    match value {
        Value::Numeric(number) => number.is_short(),
        Value::Array(array) => array.elements.iter().all(is_short),
        _ => true,
    }
}

/// `x::name`
pub(super) fn explicitly(it: Typed, name: &TypeName, analyser: &Analyser<'_>) -> Parsed<Typed> {
    let Some(base) = Base::of_name(&name.name) else {
        return refuse(it.at, format!("type \"{}\" does not exist or is not supported", name.name));
    };
    let to = Type { base, array: name.array };
    let at = it.at;
    let expr = if it.ty.is_unknown() {
        literal(it, to, analyser)?
    } else if it.ty == to {
        it.expr
    } else {
        if !cast::exists(it.ty, to) {
            return refuse(at, format!("cannot cast type {} to {}", it.ty.name(), to.name()));
        }
        if let Base::Other(column) = it.ty.base
            && let Some(column) = analyser.schema.columns().get(usize::from(column))
            && INET == if column.element_oid == 0 { column.type_oid } else { column.element_oid }
        {
            // The cast writes a part that the output function omits.
            return refuse(at, "a cast of type inet to text is not supported");
        }
        let zoned = it.ty.base == Base::Timestamptz && to.base.is_text()
            || it.ty.base.is_text() && to.base == Base::Timestamptz;
        if zoned || it.ty.array && cast::is_zoned(it.ty.base, to.base) {
            let message =
                format!("a cast of {} to {} depends on the time zone of the session", it.ty.name(), to.name());
            return refuse(at, message);
        }
        fold(Expr::Cast { from: it.ty, to, operand: Box::new(it.expr) }, to, analyser)
    };
    let expr = fit(expr, to, &name.modifiers, at, analyser)?;
    Ok(Typed { expr, ty: to, at })
}

/// The length or scale of a type.
fn fit(expr: Expr, to: Type, modifiers: &[i32], at: usize, analyser: &Analyser<'_>) -> Parsed<Expr> {
    let pair = match (to.base, modifiers) {
        (_, []) => return Ok(expr),
        (Base::Varchar | Base::Bpchar, [length]) if (1..=10_485_760).contains(length) => [*length, 0],
        (Base::Numeric, [precision]) if (1..=1000).contains(precision) => [*precision, 0],
        (Base::Numeric, [precision, scale]) if (1..=1000).contains(precision) && (0..=*precision).contains(scale) => {
            [*precision, *scale]
        }
        _ => return refuse(at, format!("the modifier of type {} is invalid or not supported", to.name())),
    };
    if to.array {
        return refuse(at, "modifiers of the elements of arrays are not supported");
    }
    Ok(fold(Expr::Fit { base: to.base, modifiers: pair, operand: Box::new(expr) }, to, analyser))
}

/// The common type of several expressions (`select_common_type`); `None` if there is none.
pub(super) fn common_type(types: impl IntoIterator<Item = Type>) -> Option<Type> {
    let mut common = Type::UNKNOWN;
    for ty in types {
        if ty.is_unknown() || ty == common {
            continue;
        }
        if common.is_unknown() {
            common = ty;
        } else if common.category() != ty.category() {
            return None;
        } else if !common.is_preferred() && common.becomes(ty) && !ty.becomes(common) {
            common = ty;
        }
    }
    Some(if common.is_unknown() { Base::Text.into() } else { common })
}

/// For `character(n)`, drops the blanks that do not count in comparisons.
pub(super) fn unpad(expr: Expr, base: Base, analyser: &Analyser<'_>) -> Expr {
    if base != Base::Bpchar {
        return expr;
    }
    match expr {
        Expr::Const(Value::Array(array), ty) => {
            let elements = array.elements.iter().map(|element| match element {
                Value::Text(text) => Value::Text(unpadded(text.clone())),
                other => other.clone(),
            });
            Expr::Const(Value::Array(Arc::new(Array { elements: elements.collect(), shape: array.shape.clone() })), ty)
        }
        expr => fold(Expr::Call(crate::function::Function::Unpad, Box::new([expr])), base.into(), analyser),
    }
}
