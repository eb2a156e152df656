//! Arrays: literals, and the operators that take any type of them.

use super::{Analyser, Typed, coerce, operators::no_operator, resolve::Unresolved};
use crate::error::{Parsed, refuse};
use crate::expr::{Comparison, Expr};
use crate::function::Function;
use crate::syntax::{Node, TypeName};
use crate::types::{Base, Type};

impl Analyser<'_> {
    /// `ARRAY[…]`
    pub(super) fn array(&self, at: usize, list: &[Node]) -> Parsed<Typed> {
        if list.is_empty() {
            return refuse(at, "cannot determine type of empty array");
        }
        let items = list.iter().map(|item| self.expr(item)).collect::<Parsed<Vec<_>>>()?;
        let Some(common) = coerce::common_type(items.iter().map(|item| item.ty)) else {
            return refuse(at, "ARRAY types cannot be matched");
        };
        self.array_typed(at, items, common)
    }

    /// `ARRAY[…]::name`, where the name is that of an array.
    pub(super) fn array_of(&self, at: usize, list: &[Node], name: &TypeName) -> Parsed<Typed> {
        let element = TypeName { array: false, ..name.clone() };
        let Some(base) = Base::of_name(&name.name) else {
            return refuse(at, format!("type \"{}\" does not exist or is not supported", name.name));
        };
        let mut items = Vec::with_capacity(list.len());
        for item in list {
            items.push(coerce::explicitly(self.expr(item)?, &element, self)?);
        }
        self.array_typed(at, items, base.into())
    }

    pub(super) fn array_typed(&self, at: usize, items: Vec<Typed>, element: Type) -> Parsed<Typed> {
        if element.array {
            return refuse(at, "arrays of more than one dimension are not supported");
        }
        let mut exprs = Vec::with_capacity(items.len());
        for item in items {
            exprs.push(coerce::implicitly(item, element, self)?);
        }
        Ok(self.typed(at, Type::array(element.base), Expr::Array(element.base, exprs.into())))
    }

    /// The operand of a subscript.
    pub(super) fn array_operand(&self, node: &Node) -> Parsed<Typed> {
        let it = self.expr(node)?;
        if it.ty.array {
            Ok(it)
        } else {
            refuse(it.at, format!("cannot subscript type {} because it does not support subscripting", it.ty.name()))
        }
    }

    /// An operator with at least one array operand.
    pub(super) fn array_operator(&self, at: usize, symbol: &str, left: Typed, right: Typed) -> Parsed<Typed> {
        let shown = format!("{} {symbol} {}", left.ty.name(), right.ty.name());
        if symbol == "||" {
            return self.array_concat(at, left, right);
        }
        let ty = if left.ty.is_unknown() { right.ty } else { left.ty };
        let fits = |t: Type| t == ty || t.is_unknown();
        if !fits(left.ty) || !fits(right.ty) {
            return no_operator(at, Unresolved::None, &shown);
        }
        let comparison = Comparison::of_symbol(symbol);
        let function = match symbol {
            "@>" => Some(Function::ArrayContains),
            "<@" => Some(Function::ArrayContained),
            "&&" => Some(Function::ArrayOverlaps),
            _ => None,
        };
        if comparison.is_none() && function.is_none() {
            return no_operator(at, Unresolved::None, &shown);
        }
        if matches!(ty.base, Base::Json | Base::Other(_)) {
            return refuse(at, "could not identify an equality operator for the elements of the arrays");
        }
        let left = coerce::implicitly(left, ty, self)?;
        let right = coerce::implicitly(right, ty, self)?;
        let expr = match (comparison, function) {
            (Some(comparison), _) => match (left, right) {
                (left @ Expr::Const(..), right) if !matches!(right, Expr::Const(..)) => {
                    Expr::Compare(comparison.mirrored(), ty, Box::new([right, left]))
                }
                (left, right) => Expr::Compare(comparison, ty, Box::new([left, right])),
            },
            (None, Some(function)) => Expr::Call(function, Box::new([left, right])),
            (None, None) => return no_operator(at, Unresolved::None, &shown),
        };
        Ok(self.typed(at, Base::Bool, expr))
    }

    /// `||`, `array_cat`, `array_append`, `array_prepend`: all elements get the type that they have in common.
    pub(super) fn array_concat(&self, at: usize, left: Typed, right: Typed) -> Parsed<Typed> {
        let element = |ty: Type| Type { array: false, ..ty };
        let Some(common) = coerce::common_type([element(left.ty), element(right.ty)]) else {
            return no_operator(at, Unresolved::None, &format!("{} || {}", left.ty.name(), right.ty.name()));
        };
        let array = Type::array(common.base);
        // A literal beside an array is one.
        let is_array = |ty: Type| ty.array || ty.is_unknown();
        let (function, left_type, right_type) = match (is_array(left.ty), is_array(right.ty)) {
            (true, true) => (Function::ArrayConcat, array, array),
            (true, false) => (Function::ArrayAppend, array, common),
            _ => (Function::ArrayPrepend, common, array),
        };
        let left = coerce::implicitly(left, left_type, self)?;
        let right = coerce::implicitly(right, right_type, self)?;
        Ok(self.typed(at, array, Expr::Call(function, Box::new([left, right]))))
    }
}
