//! From a tree to an expression: names become columns, literals get types, operators are chosen, constants are
//! computed.

mod arrays;
mod calls;
mod coerce;
mod operators;
mod resolve;
mod signatures;

use crate::budget::{Budget, Failed};
use crate::error::{Parsed, refuse, refuse_oversized};
use crate::expr::{Comparison, Expr};
use crate::function::Function;
use crate::row::Row;
use crate::schema::Schema;
use crate::syntax::{Kind, Node, Test};
use crate::types::decimal::{Decimal, Fault};
use crate::types::value::Value;
use crate::types::{Base, Type};

/// An expression and its type. A literal that nothing has given a type yet is a text of the unknown type.
#[derive(Debug, Clone)]
pub(crate) struct Typed {
    expr: Expr,
    ty: Type,
    at: usize,
}

/// Cost of each node of a tree, beside the computation of its constants.
const NODE: u64 = 512;
/// Most memory that a condition keeps.
const CONDITION_BYTES_MAX: usize = 8 << 20;

const TOO_LARGE: &str =
    "where clause takes too much time or memory: its expressions, its constants or its parameters are too large";

/// The condition that a tree means for a table; spends its cost from a budget.
pub(crate) fn condition(node: &Node, schema: &Schema, budget: &Budget) -> Parsed<Expr> {
    let analyser = Analyser { schema, budget };
    let it = analyser.expr(node)?;
    let expr = analyser.boolean(it, "WHERE")?;
    if budget.is_spent() || expr.size() > CONDITION_BYTES_MAX { refuse_oversized(node.at, TOO_LARGE) } else { Ok(expr) }
}

/// Two columns of one schema as the sides of `=`, cast to their common type; and that type.
pub(crate) fn equality(at: usize, left: u16, right: u16, schema: &Schema) -> Parsed<([Expr; 2], Type)> {
    let analyser = Analyser { schema, budget: &Budget::of_clause() };
    let column = |column: u16| Typed { expr: Expr::Column(column), ty: schema.type_of(column), at };
    match analyser.infix(at, "=", column(left), column(right))?.expr {
        Expr::Compare(Comparison::Equal, ty, sides) if !ty.array && ty.base != Base::Jsonb => Ok((*sides, ty)),
        _ => refuse(at, "columns of this type cannot be compared with a subquery"),
    }
}

pub(crate) struct Analyser<'a> {
    schema: &'a Schema,
    /// Once it is spent, no further node is analysed.
    budget: &'a Budget,
}

impl Analyser<'_> {
    /// The value of an expression of constants.
    fn computed(&self, expr: &Expr) -> Result<Value<'static>, Failed> {
        let row = Row::of_constants(self.schema);
        let allowance = row.allowance().min(self.budget.left());
        row.budget.refill(allowance);
        let value = expr.eval(&row).map(Value::owned);
        let spent = if value == Err(Failed::Costly) { u64::MAX } else { allowance - row.budget.left() };
        self.budget.spend(spent)?;
        value
    }

    /// A copy of an expression.
    fn copy(&self, it: &Typed) -> Parsed<Typed> {
        match self.budget.make(2 * it.expr.size()) {
            Ok(()) => Ok(it.clone()),
            Err(_) => refuse_oversized(it.at, TOO_LARGE),
        }
    }

    fn typed(&self, at: usize, ty: impl Into<Type>, expr: Expr) -> Typed {
        let ty = ty.into();
        Typed { expr: coerce::fold(expr, ty, self), ty, at }
    }

    fn expr(&self, node: &Node) -> Parsed<Typed> {
        let at = node.at;
        if self.budget.spend(NODE).is_err() {
            return refuse_oversized(at, TOO_LARGE);
        }
        match &node.kind {
            Kind::Column { table, name } => self.column(at, table.as_deref(), name),
            Kind::Number(text) => self.number(at, text),
            Kind::String(text) => Ok(self.typed(at, Type::UNKNOWN, Expr::Const(text.clone().into(), Type::UNKNOWN))),
            Kind::Bool(value) => Ok(self.typed(at, Base::Bool, Expr::bool(*value))),
            Kind::Null => Ok(self.typed(at, Type::UNKNOWN, Expr::Const(Value::Null, Type::UNKNOWN))),
            Kind::And(list) => Ok(self.typed(at, Base::Bool, and(self.booleans(list, "AND")?))),
            Kind::Or(list) => Ok(self.typed(at, Base::Bool, or(self.booleans(list, "OR")?))),
            Kind::Not(operand) => {
                let operand = self.expr(operand)?;
                Ok(self.typed(at, Base::Bool, self.boolean(operand, "NOT")?.negated()))
            }
            Kind::Prefix(symbol, operand) => {
                let operand = self.expr(operand)?;
                self.prefix(at, symbol, operand)
            }
            Kind::Binary(symbol, left, right) => self.binary(at, symbol, left, right),
            Kind::Is { not, test, operand } => self.is(at, *not, *test, operand),
            Kind::Distinct { not, left, right } => {
                let (left, right) = (self.expr(left)?, self.expr(right)?);
                self.distinct(at, !not, left, right)
            }
            Kind::In { not, operand, list } => self.membership(at, *not, operand, list),
            Kind::Between { not, symmetric, operand, low, high } => {
                let within = |low: &Node, high: &Node| {
                    let above = self.binary(at, ">=", operand, low)?;
                    let below = self.binary(at, "<=", operand, high)?;
                    Ok(and(vec![self.boolean(above, "AND")?, self.boolean(below, "AND")?]))
                };
                let mut expr = within(low, high)?;
                if *symmetric {
                    expr = or(vec![expr, within(high, low)?]);
                }
                Ok(self.typed(at, Base::Bool, if *not { expr.negated() } else { expr }))
            }
            Kind::Like { not, folded, operand, pattern, escape } => {
                self.like(at, *not, *folded, operand, pattern, escape.as_deref())
            }
            Kind::Quantified { operator, all, left, right } => self.quantified(at, operator, *all, left, right),
            Kind::Cast(operand, name) => {
                // ARRAY[…]::type[] gives the type to the elements.
                if let (Kind::Array(list), true) = (&operand.kind, name.array) {
                    return self.array_of(at, list, name);
                }
                let operand = self.expr(operand)?;
                coerce::explicitly(operand, name, self)
            }
            Kind::Call(name, args) => self.call(at, name, args),
            Kind::Array(list) => self.array(at, list),
            Kind::Element(operand, index) => {
                let array = self.array_operand(operand)?;
                let index = self.index(index)?;
                let element = array.ty.base;
                Ok(self.typed(at, element, Expr::Call(Function::Element, Box::new([array.expr, index]))))
            }
            Kind::Slice(operand, from, to) => {
                let array = self.array_operand(operand)?;
                let ty = array.ty;
                let mut args = vec![array.expr];
                for bound in [from, to].into_iter().flatten() {
                    args.push(self.index(bound)?);
                }
                let function = Function::Slice { from: from.is_some(), to: to.is_some() };
                Ok(self.typed(at, ty, Expr::Call(function, args.into())))
            }
            Kind::InQuery { .. } => refuse(at, "subqueries are supported only as conditions, under AND, OR and NOT"),
            Kind::Row(_) => refuse(at, "rows are supported only with =, <> and IN"),
        }
    }

    fn column(&self, at: usize, table: Option<&str>, name: &str) -> Parsed<Typed> {
        if let Some(table) = table
            && table != self.schema.table()
            && !self.schema.table().is_empty()
        {
            return refuse(at, format!("missing FROM-clause entry for table \"{table}\""));
        }
        match self.schema.find(name) {
            Some(column) => Ok(Typed { expr: Expr::Column(column), ty: self.schema.type_of(column), at }),
            None => refuse(at, format!("unknown reference {name}")),
        }
    }

    /// The smallest of integer, bigint and numeric that holds it.
    fn number(&self, at: usize, text: &str) -> Parsed<Typed> {
        if let Ok(number) = text.parse::<i64>() {
            let base = if i32::try_from(number).is_ok() { Base::Int4 } else { Base::Int8 };
            return Ok(self.typed(at, base, Expr::Const(Value::Int(number), base.into())));
        }
        match Decimal::parse(text, self.budget) {
            Ok(number) if number.is_short() => {
                Ok(self.typed(at, Base::Numeric, Expr::Const(number.into(), Base::Numeric.into())))
            }
            Ok(_) | Err(Fault::Costly) => refuse_oversized(at, coerce::LONG_NUMBER),
            Err(_) => refuse(at, "value overflows numeric format"),
        }
    }

    /// The expression as a condition; `of` names the operator for errors.
    fn boolean(&self, it: Typed, of: &str) -> Parsed<Expr> {
        if it.ty.is_unknown() || it.ty == Type::BOOL {
            return coerce::implicitly(it, Type::BOOL, self);
        }
        refuse(it.at, format!("argument of {of} must be type boolean, not type {}", it.ty.name()))
    }

    fn booleans(&self, list: &[Node], of: &str) -> Parsed<Vec<Expr>> {
        list.iter().map(|node| self.boolean(self.expr(node)?, of)).collect()
    }

    fn is(&self, at: usize, not: bool, test: Test, operand: &Node) -> Parsed<Typed> {
        if let Kind::Row(_) = operand.kind {
            return refuse(at, "IS is not supported for rows");
        }
        let operand = self.expr(operand)?;
        let operand = match test {
            Test::Null => operand.expr,
            Test::True => self.boolean(operand, "IS TRUE")?,
            Test::False => self.boolean(operand, "IS FALSE")?,
            Test::Unknown => self.boolean(operand, "IS UNKNOWN")?,
        };
        Ok(self.typed(at, Base::Bool, Expr::Is { not, test, operand: Box::new(operand) }))
    }

    /// The node as a subscript.
    fn index(&self, node: &Node) -> Parsed<Expr> {
        let it = self.expr(node)?;
        match it.ty.base {
            Base::Int2 | Base::Int4 | Base::Unknown if !it.ty.array => coerce::implicitly(it, Base::Int4.into(), self),
            _ => refuse(it.at, "array subscript must have type integer"),
        }
    }

    fn binary(&self, at: usize, symbol: &str, left: &Node, right: &Node) -> Parsed<Typed> {
        if let (Kind::Row(left), Kind::Row(right)) = (&left.kind, &right.kind) {
            return self.rows(at, symbol, left, right);
        }
        let (left, right) = (self.expr(left)?, self.expr(right)?);
        self.infix(at, symbol, left, right)
    }

    /// `(a, b) = (c, d)`
    fn rows(&self, at: usize, symbol: &str, left: &[Node], right: &[Node]) -> Parsed<Typed> {
        if left.len() != right.len() {
            return refuse(at, "unequal number of entries in row expressions");
        }
        let comparison = Comparison::of_symbol(symbol).filter(|c| !c.orders());
        let Some(comparison) = comparison else { return refuse(at, "rows are supported only with =, <> and IN") };
        let mut parts = Vec::new();
        for (left, right) in left.iter().zip(right) {
            let part = self.binary(at, symbol, left, right)?;
            parts.push(self.boolean(part, "AND")?);
        }
        let expr = if comparison == Comparison::Equal { and(parts) } else { or(parts) };
        Ok(self.typed(at, Base::Bool, expr))
    }
}

/// Flattens nested lists of the same operator.
fn flat(list: Vec<Expr>, inner: impl Fn(Expr) -> Result<Box<[Expr]>, Expr>) -> Vec<Expr> {
    let mut out = Vec::with_capacity(list.len());
    for expr in list {
        match inner(expr) {
            Ok(nested) => out.extend(nested),
            Err(other) => out.push(other),
        }
    }
    out
}

/// An AND without conditions that are always true; one that never is decides, whether or not others would fail.
pub(crate) fn and(list: Vec<Expr>) -> Expr {
    let mut list = flat(list, |expr| if let Expr::And(inner) = expr { Ok(inner) } else { Err(expr) });
    if list.contains(&Expr::bool(false)) {
        return Expr::bool(false);
    }
    list.retain(|expr| *expr != Expr::bool(true));
    match list.len() {
        0 => Expr::bool(true),
        1 => list.remove(0),
        _ => Expr::And(list.into()),
    }
}

/// The dual for OR.
pub(crate) fn or(list: Vec<Expr>) -> Expr {
    let mut list = flat(list, |expr| if let Expr::Or(inner) = expr { Ok(inner) } else { Err(expr) });
    if list.contains(&Expr::bool(true)) {
        return Expr::bool(true);
    }
    list.retain(|expr| *expr != Expr::bool(false));
    match list.len() {
        0 => Expr::bool(false),
        1 => list.remove(0),
        _ => Expr::Or(list.into()),
    }
}
