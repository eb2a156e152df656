//! Operators whose operands have known types, or are literals.

use super::signatures::{self, Meaning, Signature};
use super::{Analyser, Typed, and, coerce, or, resolve};
use crate::error::{Parsed, refuse, refuse_oversized};
use crate::expr::{Comparison, Expr, Like, Operator, is_membership};
use crate::function::Function;
use crate::like::with_backslash;
use crate::syntax::{Kind, Node};
use crate::types::array::Array;
use crate::types::value::{Value, compare};
use crate::types::{Base, Type};
use std::sync::Arc;

/// Longest pattern of LIKE.
const PATTERN_BYTES_MAX: usize = 8 << 10;

impl Analyser<'_> {
    pub(super) fn infix(&self, at: usize, symbol: &str, left: Typed, right: Typed) -> Parsed<Typed> {
        if left.ty.array || right.ty.array && !matches!(symbol, "?|" | "?&" | "#>" | "#>>") {
            return self.array_operator(at, symbol, left, right);
        }
        if matches!(left.ty.base, Base::Enum(_)) || matches!(right.ty.base, Base::Enum(_)) {
            return self.enum_operator(at, symbol, left, right);
        }
        if let Some(at) = [&left, &right].iter().find(|it| matches!(it.ty.base, Base::Other(_))).map(|it| it.at) {
            return refuse(at, "columns of this type can only be tested for null or cast to text");
        }
        // An operand that is no string becomes one beside a string.
        let (left, right) = if symbol == "||" { self.as_texts(left, right)? } else { (left, right) };
        let candidates = signatures::infix(symbol);
        let chosen = match resolve::infix(&candidates, [left.ty, right.ty]) {
            Ok(chosen) => *chosen,
            Err(problem) => {
                return no_operator(at, problem, &format!("{} {symbol} {}", left.ty.name(), right.ty.name()));
            }
        };
        self.apply(at, &chosen, vec![left, right])
    }

    pub(super) fn prefix(&self, at: usize, symbol: &str, operand: Typed) -> Parsed<Typed> {
        if symbol == "+" {
            let chosen = resolve::select(&signatures::prefix("@"), &[operand.ty]).map(|c| c.args()[0]);
            return match chosen {
                Ok(ty) => Ok(Typed { expr: coerce::implicitly(operand, ty, self)?, ty, at }),
                Err(problem) => no_operator(at, problem, &format!("+ {}", operand.ty.name())),
            };
        }
        let candidates = signatures::prefix(symbol);
        match resolve::select(&candidates, &[operand.ty]) {
            Ok(chosen) => self.apply(at, &{ *chosen }, vec![operand]),
            Err(problem) => no_operator(at, problem, &format!("{symbol} {}", operand.ty.name())),
        }
    }

    /// An operator or function that was chosen.
    pub(super) fn apply(&self, at: usize, chosen: &Signature, args: Vec<Typed>) -> Parsed<Typed> {
        let mut exprs = Vec::with_capacity(args.len());
        for ((arg, to), found) in args.into_iter().zip(chosen.uses()).zip(chosen.args()) {
            // A literal first gets the type by which the operator was found, and only then the operator's own type.
            let ty = *found;
            let expr = coerce::implicitly(arg, ty, self)?;
            exprs.push(coerce::implicitly(Typed { expr, ty, at }, *to, self)?);
        }
        let expr = match (chosen.meaning, <[Expr; 2]>::try_from(exprs)) {
            (Meaning::Compare(comparison, base), Ok(sides)) => self.comparison(comparison, base, sides),
            (Meaning::Like(like), Ok([text, pattern])) => self.like_of(at, like, text, pattern)?,
            (Meaning::Function(Function::ZonedAdd), Ok([left, right])) if chosen.args()[0].base == Base::Interval => {
                Expr::Call(Function::ZonedAdd, Box::new([right, left]))
            }
            (Meaning::Function(Function::Lower { .. }), Err(list)) => {
                Expr::Call(Function::Lower { ascii: list.iter().any(|arg| arg.has_name(self.schema)) }, list.into())
            }
            (Meaning::Function(Function::Upper { .. }), Err(list)) => {
                Expr::Call(Function::Upper { ascii: list.iter().any(|arg| arg.has_name(self.schema)) }, list.into())
            }
            (Meaning::Function(function), Ok(pair)) => Expr::Call(function, Box::new(pair)),
            (Meaning::Function(function), Err(list)) => Expr::Call(function, list.into()),
            _ => return refuse(at, "an operator needs two operands"),
        };
        Ok(self.typed(at, chosen.result, expr))
    }

    pub(super) fn comparison(&self, comparison: Comparison, base: Base, sides: [Expr; 2]) -> Expr {
        let sides = sides.map(|side| coerce::unpad(side, base, self));
        // The constant is on the right.
        match sides {
            [left @ Expr::Const(..), right] if !matches!(right, Expr::Const(..)) => {
                Expr::Compare(comparison.mirrored(), base.into(), Box::new([right, left]))
            }
            sides => Expr::Compare(comparison, base.into(), Box::new(sides)),
        }
    }

    fn like_of(&self, at: usize, like: Like, text: Expr, pattern: Expr) -> Parsed<Expr> {
        if matches!(&pattern, Expr::Const(Value::Text(pattern), _) if pattern.len() > PATTERN_BYTES_MAX) {
            return refuse_oversized(at, format!("LIKE pattern is longer than {PATTERN_BYTES_MAX} bytes"));
        }
        let ascii = like.folded && (text.has_name(self.schema) || pattern.has_name(self.schema));
        Ok(Expr::Like(Like { ascii, ..like }, Box::new([text, pattern])))
    }

    fn enum_operator(&self, at: usize, symbol: &str, left: Typed, right: Typed) -> Parsed<Typed> {
        let ty = if left.ty.is_unknown() { right.ty } else { left.ty };
        let fits = |t: Type| t == ty || t.is_unknown();
        match Comparison::of_symbol(symbol) {
            Some(comparison) if fits(left.ty) && fits(right.ty) => {
                let sides = [coerce::implicitly(left, ty, self)?, coerce::implicitly(right, ty, self)?];
                let expr = self.comparison(comparison, ty.base, sides);
                Ok(self.typed(at, Base::Bool, expr))
            }
            _ if symbol == "||" => {
                let (left, right) = self.as_texts(left, right)?;
                self.infix(at, symbol, left, right)
            }
            _ => {
                no_operator(at, resolve::Unresolved::None, &format!("{} {symbol} {}", left.ty.name(), right.ty.name()))
            }
        }
    }

    /// The operands of `||`: if one is a string, the other may have any type.
    fn as_texts(&self, left: Typed, right: Typed) -> Parsed<(Typed, Typed)> {
        let other = |ty: Type| {
            !ty.is_unknown() && !ty.base.is_text() && !ty.array && !matches!(ty.base, Base::Bytea | Base::Jsonb)
        };
        let text = crate::syntax::TypeName { name: "text".into(), modifiers: Vec::new(), array: false };
        let as_text = |it: Typed| coerce::explicitly(it, &text, self);
        let stringy = |ty: Type| ty.is_unknown() || ty.base.is_text();
        if other(left.ty) && stringy(right.ty) {
            Ok((as_text(left)?, right))
        } else if stringy(left.ty) && other(right.ty) {
            Ok((left, as_text(right)?))
        } else {
            Ok((left, right))
        }
    }

    pub(super) fn distinct(&self, at: usize, differ: bool, left: Typed, right: Typed) -> Parsed<Typed> {
        // Beside a null it is a test for one.
        let null = |it: &Typed| matches!(it.expr, Expr::Const(Value::Null, _));
        if null(&right) || null(&left) {
            let operand = Box::new(if null(&right) { left.expr } else { right.expr });
            return Ok(self.typed(at, Base::Bool, Expr::Is { not: differ, test: crate::syntax::Test::Null, operand }));
        }
        // The operator is that of equality; a comparison of constants was folded to something else.
        let names = [left.ty.name(), right.ty.name()];
        match self.infix(at, "=", left, right)?.expr {
            Expr::Compare(_, ty, sides) => Ok(self.typed(at, Base::Bool, Expr::Distinct(differ, ty, sides))),
            Expr::Const(Value::Bool(same), _) => Ok(self.typed(at, Base::Bool, Expr::bool(same != differ))),
            _ => no_operator(at, resolve::Unresolved::None, &names.join(" = ")),
        }
    }

    pub(super) fn like(
        &self,
        at: usize,
        not: bool,
        folded: bool,
        operand: &Node,
        pattern: &Node,
        escape: Option<&Node>,
    ) -> Parsed<Typed> {
        let (operand, mut pattern) = (self.expr(operand)?, self.expr(pattern)?);
        if let Some(escape) = escape {
            let escape = self.expr(escape)?;
            let at = escape.at;
            let escape = coerce::implicitly(escape, Base::Text.into(), self)?;
            let text = coerce::implicitly(self.copy(&pattern)?, Base::Text.into(), self)?;
            if let Expr::Const(Value::Text(escape), _) = &escape
                && escape.chars().count() > 1
            {
                return refuse(at, "invalid escape string");
            }
            let expr = match (&text, &escape) {
                (Expr::Const(Value::Text(text), ty), Expr::Const(Value::Text(escape), _)) => {
                    Expr::Const(with_backslash(text, escape.chars().next()).into(), *ty)
                }
                _ => Expr::Call(Function::LikeEscape, Box::new([text, escape])),
            };
            pattern = self.typed(pattern.at, Base::Text, expr);
        }
        self.infix(at, Like { not, folded, ascii: false }.symbol(), operand, pattern)
    }

    /// `x IN (…)` as Postgres transforms it: items without columns become one array if they have a common type with
    /// `x`.
    pub(super) fn membership(&self, at: usize, not: bool, operand: &Node, list: &[Node]) -> Parsed<Typed> {
        let symbol = if not { "<>" } else { "=" };
        let mut parts = Vec::new();
        if let Kind::Row(left) = &operand.kind {
            for item in list {
                let Kind::Row(right) = &item.kind else {
                    return refuse(item.at, "a row is compared with a single value");
                };
                parts.push(self.rows(at, symbol, left, right)?.expr);
            }
        } else {
            let left = self.expr(operand)?;
            let items = list.iter().map(|item| self.expr(item)).collect::<Parsed<Vec<_>>>()?;
            let (mut rest, constants): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| item.expr.has_column());
            let common = coerce::common_type(std::iter::once(left.ty).chain(constants.iter().map(|c| c.ty)));
            match common {
                Some(common) if constants.len() > 1 && !common.array => {
                    let array = self.array_typed(at, constants, common)?;
                    parts.push(self.any(at, symbol, not, self.copy(&left)?, array)?.expr);
                }
                _ => rest.splice(0..0, constants).for_each(drop),
            }
            for item in rest {
                let part = self.infix(at, symbol, self.copy(&left)?, item)?;
                parts.push(self.boolean(part, "IN")?);
            }
        }
        Ok(self.typed(at, Base::Bool, if not { and(parts) } else { or(parts) }))
    }

    pub(super) fn quantified(&self, at: usize, symbol: &str, all: bool, left: &Node, right: &Node) -> Parsed<Typed> {
        let (left, right) = (self.expr(left)?, self.expr(right)?);
        self.any(at, symbol, all, left, right)
    }

    /// `left op ANY (right)`, or `ALL`.
    fn any(&self, at: usize, symbol: &str, all: bool, left: Typed, right: Typed) -> Parsed<Typed> {
        if !right.ty.array && !right.ty.is_unknown() {
            return refuse(at, "op ANY/ALL (array) requires array on right side");
        }
        if left.ty.array {
            return refuse(at, "arrays of arrays are not supported");
        }
        let element = Type { array: false, ..right.ty };
        let enums = [left.ty, element].into_iter().find(|ty| matches!(ty.base, Base::Enum(_)));
        let (operator, base, left_type, element_type) = if let Some(ty) = enums {
            let fits = |t: Type| t == ty || t.is_unknown();
            match Comparison::of_symbol(symbol) {
                Some(comparison) if fits(left.ty) && fits(element) => (Operator::Compare(comparison), ty.base, ty, ty),
                _ => {
                    return no_operator(
                        at,
                        resolve::Unresolved::None,
                        &format!("{} {symbol} {}", left.ty.name(), element.name()),
                    );
                }
            }
        } else {
            let candidates = signatures::infix(symbol);
            let chosen = match resolve::infix(&candidates, [left.ty, element]) {
                Ok(chosen) => *chosen,
                Err(problem) => {
                    return no_operator(at, problem, &format!("{} {symbol} {}", left.ty.name(), element.name()));
                }
            };
            let (operator, base) = match chosen.meaning {
                Meaning::Compare(comparison, base) => (Operator::Compare(comparison), base),
                Meaning::Like(like) => (Operator::Like(like), chosen.args()[0].base),
                Meaning::Function(_) => return refuse(at, "op ANY/ALL (array) requires operator to yield boolean"),
            };
            let ascii = left.expr.has_name(self.schema) || right.expr.has_name(self.schema);
            let operator = match operator {
                Operator::Like(like) => Operator::Like(Like { ascii: like.folded && ascii, ..like }),
                compare => compare,
            };
            (operator, base, chosen.uses()[0], chosen.uses()[1])
        };
        let left = coerce::implicitly(left, left_type, self)?;
        let right = coerce::implicitly(right, Type::array(element_type.base), self)?;
        let sides = match operator {
            Operator::Compare(_) => [left, right].map(|side| self.unpad_any(side, base)),
            Operator::Like(_) => [left, right],
        };
        let [left, right] = sides;
        let right = if is_membership(operator, all) { sorted(right) } else { right };
        Ok(self.typed(at, Base::Bool, Expr::Quantified { operator, all, base, sides: Box::new([left, right]) }))
    }

    fn unpad_any(&self, side: Expr, base: Base) -> Expr {
        // The elements of a column are read without their blanks.
        let array_column = matches!(&side, Expr::Column(column) if self.schema.type_of(*column).array);
        if array_column { side } else { coerce::unpad(side, base, self) }
    }
}

/// A constant array in order and without repetitions, as its evaluation expects it. Nulls are last.
fn sorted(array: Expr) -> Expr {
    let Expr::Const(Value::Array(array), ty) = array else { return array };
    let mut elements = array.elements.to_vec();
    elements.sort_by(compare);
    elements.dedup_by(|a, b| compare(a, b).is_eq());
    Expr::Const(Value::Array(Arc::new(Array::of(elements))), ty)
}

pub(super) fn no_operator<T>(at: usize, problem: resolve::Unresolved, shown: &str) -> Parsed<T> {
    refuse(
        at,
        match problem {
            resolve::Unresolved::None => format!("operator does not exist: {shown}"),
            resolve::Unresolved::Several => format!("operator is not unique: {shown}"),
        },
    )
}
