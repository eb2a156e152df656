//! Where clauses with subqueries: the other tables' values that they need, and the conditions left for each row.
//!
//! Such a clause becomes an OR of *alternatives*, each an AND of *positions*. A position is either a condition on the
//! row alone or a [`Membership`]: whether values of the row are (or are not) among the values that a [`Query`] selects
//! from another table. Negations are pushed down to the positions, so that a row satisfies the clause if and only if
//! all positions of an alternative are true: false and unknown are alike.

use crate::analyse;
use crate::budget::Budget;
use crate::error::{ParseError, Parsed, refuse, refuse_oversized};
use crate::expr::Expr;
use crate::key::Key;
use crate::predicate::{PARAMS_BYTES_MAX, Predicate};
use crate::print;
use crate::row::Row;
use crate::schema::Schema;
use crate::syntax::{self, Kind, Node, Select};
use crate::types::value::Value;
use crate::types::{Base, Type};
use std::sync::Arc;

/// Most alternatives of a clause, and most positions.
const ALTERNATIVES_MAX: usize = 64;
const POSITIONS_MAX: usize = 64;
/// Deepest nesting of subqueries.
const NESTED_MAX: usize = 8;

/// A table that a subquery selects from.
#[derive(Debug, Clone)]
pub struct InnerTable {
    /// The table's object id in Postgres.
    pub oid: u32,
    /// The table's name as SQL: `"schema"."table"`.
    pub sql: String,
    /// The table's columns.
    pub columns: Schema,
}

/// A table as a clause names it. `schema`: `None` if the clause names none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Named {
    /// The schema, without quotes; `None` if the clause names none.
    pub schema: Option<String>,
    /// The table's name, without quotes.
    pub name: String,
}

/// A condition on rows of a table that depends on other rows.
#[derive(Debug, Clone)]
pub struct Condition {
    positions: Vec<Position>,
    /// Places in `positions`, ascending.
    alternatives: Vec<Box<[u16]>>,
}

/// One part of a condition whose truth is known by itself.
#[derive(Debug, Clone)]
pub enum Position {
    /// On the row alone.
    Row(Predicate),
    /// On the row and the values that a subquery selects.
    In(Membership),
}

/// `columns [NOT] IN (query)`.
#[derive(Debug, Clone)]
pub struct Membership {
    /// Whether it is `NOT IN`.
    pub negated: bool,
    /// The subquery.
    pub query: Arc<Query>,
    keys: Box<[(Expr, Type)]>,
}

/// `SELECT columns FROM table WHERE …`.
#[derive(Debug)]
pub struct Query {
    /// The table behind FROM.
    pub table: InnerTable,
    /// The condition behind WHERE.
    pub filter: Filter,
    values: Box<[Expr]>,
    /// The columns of the outer table and behind them those of the inner one: `values` and a membership's keys are read
    /// in it.
    joint: Schema,
    /// Number of the outer table's columns.
    outer: usize,
    sql: String,
    canonical: String,
    /// Length of the part of `canonical` before WHERE.
    source: usize,
}

/// The rows that a subquery selects.
#[derive(Debug, Clone)]
pub enum Filter {
    /// Every row: the subquery has no WHERE.
    All,
    /// By a condition on the row alone.
    Row(Arc<Predicate>),
    /// By a condition with subqueries of its own.
    Nested(Arc<Condition>),
}

/// The tables that a clause's subqueries name, each once; none if it has no subqueries.
pub fn inner_tables(sql: &str, params: &[(u32, String)]) -> Result<Vec<Named>, ParseError> {
    fn collect(node: &Node, found: &mut Vec<Named>) {
        if let Kind::InQuery { query, .. } = &node.kind {
            let named = named(query);
            if !found.contains(&named) {
                found.push(named);
            }
        }
        node.children().into_iter().for_each(|child| collect(child, found));
    }
    let tree = syntax::parse(sql, params).map_err(|refusal| refusal.locate(sql))?;
    let mut found = Vec::new();
    collect(&tree, &mut found);
    Ok(found)
}

pub(crate) fn named(query: &Select) -> Named {
    Named { schema: query.schema.clone(), name: query.table.clone() }
}

impl Condition {
    /// Reads a where clause with subqueries, see [`Predicate::parse`]. `find` knows the tables of [`inner_tables`].
    pub fn parse(
        sql: &str,
        params: &[(u32, String)],
        schema: &Schema,
        find: &dyn Fn(&Named) -> Option<InnerTable>,
    ) -> Result<Self, ParseError> {
        let read = || {
            if params.iter().map(|(_, value)| value.len()).sum::<usize>() > PARAMS_BYTES_MAX {
                return refuse_oversized(0, format!("parameters are longer than {PARAMS_BYTES_MAX} bytes"));
            }
            let builder = Builder { schema, find, positions: Vec::new(), nested: 0, budget: &Budget::of_clause() };
            builder.condition(&syntax::parse(sql, params)?)
        };
        read().map_err(|refusal| refusal.locate(sql))
    }

    /// All positions; alternatives name them by their place here.
    pub fn positions(&self) -> &[Position] {
        &self.positions
    }

    /// For each alternative the indexes of its positions, ascending.
    pub fn alternatives(&self) -> impl Iterator<Item = &[u16]> {
        self.alternatives.iter().map(AsRef::as_ref)
    }

    /// The condition's memberships, each with its position.
    pub fn memberships(&self) -> impl Iterator<Item = (usize, &Membership)> {
        self.positions.iter().enumerate().filter_map(|(at, position)| match position {
            Position::In(membership) => Some((at, membership)),
            Position::Row(_) => None,
        })
    }

    /// Whether a row satisfies it for which the positions are `truths`.
    pub fn holds(&self, truths: &[bool]) -> bool {
        self.alternatives.iter().any(|all| all.iter().all(|at| truths[usize::from(*at)]))
    }

    /// The columns that it uses, ascending.
    pub fn columns(&self) -> Vec<usize> {
        let mut columns = Vec::new();
        for position in &self.positions {
            match position {
                Position::Row(predicate) => columns.extend(predicate.columns()),
                Position::In(membership) => membership.for_each_column(&mut |column| columns.push(column)),
            }
        }
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// The condition as SQL for Postgres, see [`Predicate::sql`].
    pub fn sql(&self) -> String {
        self.sql_of(&|position| position.sql())
    }

    /// The condition for people. Conditions of one table with the same text are equal.
    pub fn canonical(&self) -> String {
        self.sql_of(&|position| match position {
            Position::Row(predicate) => predicate.canonical(),
            Position::In(membership) => membership.canonical(),
        })
    }

    /// Rows for which, of all memberships, only the one at `position` holds, and only for the keys: a superset of the
    /// rows that satisfy the clause because of these keys.
    pub fn sql_moving(&self, position: usize, keys: &[Key]) -> String {
        let Some(Position::In(moving)) = self.positions.get(position) else { return "FALSE".to_owned() };
        let mut rest: Vec<String> = Vec::new();
        for all in self.alternatives.iter().filter(|all| all.iter().any(|at| usize::from(*at) == position)) {
            let conditions: Vec<String> = all
                .iter()
                .filter_map(|at| match &self.positions[usize::from(*at)] {
                    Position::Row(predicate) => Some(predicate.sql()),
                    Position::In(_) => None,
                })
                .collect();
            rest.push(if conditions.is_empty() { "TRUE".to_owned() } else { conditions.join(" AND ") });
        }
        format!("({}) AND (({}))", moving.sql_among(keys), rest.join(") OR ("))
    }

    fn sql_of(&self, of: &dyn Fn(&Position) -> String) -> String {
        let all =
            |all: &[u16]| all.iter().map(|at| of(&self.positions[usize::from(*at)])).collect::<Vec<_>>().join(" AND ");
        format!("({})", self.alternatives().map(all).collect::<Vec<_>>().join(") OR ("))
    }

    /// Length of [`Condition::sql`], the longest of its texts.
    fn sql_bytes(&self) -> usize {
        let positions: Vec<usize> = self.positions.iter().map(|position| position.sql().len() + 8).collect();
        self.alternatives().flatten().map(|at| positions[usize::from(*at)]).sum()
    }
}

impl Position {
    /// The position as SQL for Postgres.
    pub fn sql(&self) -> String {
        match self {
            Self::Row(predicate) => predicate.sql(),
            Self::In(membership) => membership.sql(),
        }
    }
}

impl Membership {
    /// The row's key; null where a value cannot be parsed.
    pub fn key(&self, row: &[Option<&[u8]>]) -> Key {
        // Columns, and casts between numbers or texts: the row's size bounds their cost.
        let row = Row::new(&self.query.joint, &row[..row.len().min(self.query.outer)]).without_limit();
        Key::new(self.keys.iter().map(|(expr, _)| expr.eval(&row).map_or(Value::Null, Value::owned)))
    }

    /// The key of a row whose values are all null.
    pub fn null(&self) -> Key {
        Key::new(self.keys.iter().map(|_| Value::Null))
    }

    /// The compared expressions, of both sides.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        self.keys.iter().map(|(expr, _)| expr).chain(&self.query.values)
    }

    /// Number of compared columns.
    pub fn width(&self) -> usize {
        self.keys.len()
    }

    /// The columns of the outer table that are compared.
    pub fn for_each_column(&self, each: &mut dyn FnMut(usize)) {
        for (expr, _) in &self.keys {
            expr.for_each_column(&mut |column| each(usize::from(column)));
        }
    }

    /// Identifies the comparison with the values of one [source](Query::source): for equal texts each row has equal
    /// [keys](Self::key).
    pub fn question(&self) -> String {
        format!("{} IN ({})", self.side(print::canonical), self.query.source())
    }

    fn side(&self, print: fn(&Expr, &Schema) -> String) -> String {
        row_sql(self.keys.iter().map(|(expr, _)| print(expr, &self.query.joint)))
    }

    fn canonical(&self) -> String {
        let not = if self.negated { "NOT " } else { "" };
        format!("({} {not}IN ({}))", self.side(print::canonical), self.query.canonical)
    }

    fn sql(&self) -> String {
        let not = if self.negated { "NOT " } else { "" };
        format!("({not}({}{}ANY ({})))", self.side(print::sql), print::operator("="), self.query.sql)
    }

    /// Rows whose key is one of these; nulls count as keys here.
    fn sql_among(&self, keys: &[Key]) -> String {
        let literal = |(value, (_, ty)): (&Value<'static>, &(Expr, Type))| {
            print::sql(&Expr::Const(value.clone(), *ty), &self.query.joint)
        };
        let mut parts = Vec::new();
        let known: Vec<String> = keys
            .iter()
            .filter(|key| !key.has_null())
            .map(|key| row_sql(key.values().iter().zip(&self.keys).map(literal)))
            .collect();
        let side = self.side(print::sql);
        match &self.keys[..] {
            _ if known.is_empty() => {}
            [(_, ty)] => parts.push(print::is_one_of(&side, *ty, &known, &self.query.joint)),
            _ => parts.extend(known.iter().map(|values| format!("{side}{}{values}", print::operator("=")))),
        }
        for key in keys.iter().filter(|key| key.has_null()) {
            let each = self.keys.iter().zip(key.values()).map(|(expr, value)| {
                let side = print::sql(&expr.0, &self.query.joint);
                match value {
                    Value::Null => format!("{side} IS NULL"),
                    value => format!("{side}{}{}", print::operator("="), literal((value, expr))),
                }
            });
            parts.push(each.collect::<Vec<_>>().join(" AND "));
        }
        if parts.is_empty() { "FALSE".to_owned() } else { format!("({})", parts.join(") OR (")) }
    }
}

fn row_sql(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<String> = parts.collect();
    if let [one] = &parts[..] { one.clone() } else { format!("({})", parts.join(", ")) }
}

impl Query {
    /// The query for people. Queries with the same text, on the same table, select the same values.
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// The query without its condition. Queries of one source, on the same table, have values of the same types.
    pub fn source(&self) -> &str {
        &self.canonical[..self.source]
    }

    /// The value that a row of its table contributes, if it satisfies the filter.
    pub fn value(&self, row: &[Option<&[u8]>]) -> Key {
        let mut padded = vec![None; self.outer];
        padded.extend_from_slice(row);
        let row = Row::new(&self.joint, &padded).without_limit();
        Key::new(self.values.iter().map(|expr| expr.eval(&row).map_or(Value::Null, Value::owned)))
    }

    /// The columns that it selects.
    pub fn selected(&self) -> Vec<usize> {
        let mut columns = Vec::new();
        for expr in &self.values {
            expr.for_each_column(&mut |column| columns.push(usize::from(column) - self.outer));
        }
        columns
    }

    /// The columns of its table that it uses, ascending.
    pub fn columns(&self) -> Vec<usize> {
        let mut columns = match &self.filter {
            Filter::All => Vec::new(),
            Filter::Row(predicate) => predicate.columns(),
            Filter::Nested(condition) => condition.columns(),
        };
        columns.extend(self.selected());
        columns.sort_unstable();
        columns.dedup();
        columns
    }
}

impl Filter {
    /// The filter as SQL for Postgres; `None`: all rows.
    pub fn sql(&self) -> Option<String> {
        match self {
            Self::All => None,
            Self::Row(predicate) => Some(predicate.sql()),
            Self::Nested(condition) => Some(condition.sql()),
        }
    }

    fn canonical(&self) -> Option<String> {
        match self {
            Self::All => None,
            Self::Row(predicate) => Some(predicate.canonical()),
            Self::Nested(condition) => Some(condition.canonical()),
        }
    }
}

/// Positions combined.
enum Formula {
    One(u16),
    And(Vec<Formula>),
    Or(Vec<Formula>),
}

struct Builder<'a> {
    schema: &'a Schema,
    find: &'a dyn Fn(&Named) -> Option<InnerTable>,
    positions: Vec<Position>,
    nested: usize,
    /// The budget of the whole clause.
    budget: &'a Budget,
}

impl Builder<'_> {
    fn condition(mut self, tree: &Node) -> Parsed<Condition> {
        let formula = self.formula(tree, false)?;
        let mut alternatives: Vec<Vec<u16>> = Vec::new();
        for all in alternatives_of(&formula, tree.at)? {
            if !alternatives.contains(&all) {
                alternatives.push(all);
            }
        }
        let condition =
            Condition { positions: self.positions, alternatives: alternatives.into_iter().map(Into::into).collect() };
        // A position is written once for each alternative that has it, and its values once more in each of those.
        if self.budget.make(condition.sql_bytes()).is_err() {
            return refuse_oversized(tree.at, "where clause is too large: its subqueries have too many alternatives");
        }
        let polarity = |negated: bool| {
            condition
                .memberships()
                .filter(move |(_, m)| m.negated == negated)
                .map(|(_, m)| (m.query.canonical.as_str(), m.side(print::canonical)))
        };
        if polarity(true).any(|not| polarity(false).any(|is| is == not)) {
            return refuse(
                tree.at,
                "a subquery dependency cannot be used with both positive and negative polarity in the same filter",
            );
        }
        Ok(condition)
    }

    fn formula(&mut self, node: &Node, negated: bool) -> Parsed<Formula> {
        if !node.has_query() {
            return self.plain(&[node], false, negated);
        }
        match &node.kind {
            Kind::Not(operand) => self.formula(operand, !negated),
            Kind::And(list) | Kind::Or(list) => {
                let is_and = matches!(node.kind, Kind::And(_));
                // All conditions without subqueries form one position.
                let plain: Vec<&Node> = list.iter().filter(|node| !node.has_query()).collect();
                let mut parts = Vec::new();
                let mut done = false;
                for child in list {
                    if child.has_query() {
                        parts.push(self.formula(child, negated)?);
                    } else if !std::mem::replace(&mut done, true) {
                        parts.push(self.plain(&plain, !is_and, negated)?);
                    }
                }
                Ok(if is_and != negated { Formula::And(parts) } else { Formula::Or(parts) })
            }
            Kind::InQuery { not, operand, query } => {
                let membership = self.membership(operand, query, *not != negated)?;
                let same = |position: &Position| match position {
                    Position::In(known) => {
                        known.negated == membership.negated
                            && known.query.sql == membership.query.sql
                            && known.keys == membership.keys
                    }
                    Position::Row(_) => false,
                };
                match self.positions.iter().position(same) {
                    Some(at) => Ok(Formula::One(at as u16)),
                    None => self.position(node.at, Position::In(membership)),
                }
            }
            _ => refuse(node.at, "subqueries are supported only as conditions, under AND, OR and NOT"),
        }
    }

    /// Conditions without subqueries, joined by AND, or by OR if `any`.
    fn plain(&mut self, nodes: &[&Node], any: bool, negated: bool) -> Parsed<Formula> {
        let exprs =
            nodes.iter().map(|node| analyse::condition(node, self.schema, self.budget)).collect::<Parsed<Vec<_>>>()?;
        let expr = if any { analyse::or(exprs) } else { analyse::and(exprs) };
        let expr = if negated { expr.negated() } else { expr };
        let predicate = Predicate { expr, schema: self.schema.clone() };
        let same = |position: &Position| matches!(position, Position::Row(known) if *known == predicate);
        match self.positions.iter().position(same) {
            Some(at) => Ok(Formula::One(at as u16)),
            None => self.position(nodes.first().map_or(0, |node| node.at), Position::Row(predicate)),
        }
    }

    fn position(&mut self, at: usize, position: Position) -> Parsed<Formula> {
        if self.positions.len() == POSITIONS_MAX {
            return refuse_oversized(at, format!("a where clause with subqueries may have {POSITIONS_MAX} conditions"));
        }
        self.positions.push(position);
        Ok(Formula::One(self.positions.len() as u16 - 1))
    }

    fn membership(&self, operand: &Node, select: &Select, negated: bool) -> Parsed<Membership> {
        if self.nested == NESTED_MAX {
            return refuse_oversized(select.at, format!("subqueries are nested deeper than {NESTED_MAX} levels"));
        }
        let operands: Vec<&Node> = match &operand.kind {
            Kind::Row(list) => list.iter().collect(),
            _ => vec![operand],
        };
        if operands.len() < select.columns.len() {
            return refuse(select.at, "subquery has too many columns");
        }
        if operands.len() > select.columns.len() {
            return refuse(select.at, "subquery has too few columns");
        }
        let Some(table) = (self.find)(&named(select)) else {
            return refuse(select.at, format!("relation \"{}\" does not exist", select.table));
        };
        let inner = table.columns.named(select.alias.as_ref().unwrap_or(&select.table));
        let joint = self.schema.joined(&inner);
        let outer = self.schema.columns().len();
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (left, right) in operands.iter().zip(&select.columns) {
            let left_column = column(left, self.schema)?;
            let right_column = outer as u16 + column(right, &inner)?;
            let ([key, value], ty) = analyse::equality(left.at, left_column, right_column, &joint)?;
            keys.push((key, ty));
            values.push(value);
        }
        let filter = match &select.condition {
            None => Filter::All,
            Some(node) if node.has_query() => {
                let (nested, budget) = (self.nested + 1, self.budget);
                let builder = Builder { schema: &inner, find: self.find, positions: Vec::new(), nested, budget };
                Filter::Nested(Arc::new(builder.condition(node)?))
            }
            Some(node) => {
                let expr = analyse::condition(node, &inner, self.budget)?;
                Filter::Row(Arc::new(Predicate { expr, schema: inner.clone() }))
            }
        };
        let select = |print: fn(&Expr, &Schema) -> String| {
            let list = values.iter().map(|value| print(value, &joint)).collect::<Vec<_>>().join(", ");
            format!("SELECT {list} FROM {}", table.sql)
        };
        let condition = |filter: Option<String>| filter.map(|filter| format!(" WHERE {filter}")).unwrap_or_default();
        let source = select(print::canonical);
        let canonical = source.clone() + &condition(filter.canonical());
        let sql = select(print::sql) + &condition(filter.sql());
        let source = source.len();
        let query = Query { table, filter, values: values.into(), joint, outer, sql, canonical, source };
        Ok(Membership { negated, query: Arc::new(query), keys: keys.into() })
    }
}

fn column(node: &Node, schema: &Schema) -> Parsed<u16> {
    let Kind::Column { table, name } = &node.kind else {
        return refuse(node.at, "only columns can be compared with a subquery");
    };
    if let Some(table) = table
        && table != schema.table()
    {
        return refuse(node.at, format!("missing FROM-clause entry for table \"{table}\""));
    }
    match schema.find(name) {
        Some(column) if matches!(schema.type_of(column).base, Base::Other(_)) => {
            refuse(node.at, "columns of this type cannot be compared with a subquery")
        }
        Some(column) => Ok(column),
        None => refuse(node.at, format!("unknown reference {name}")),
    }
}

fn alternatives_of(formula: &Formula, at: usize) -> Parsed<Vec<Vec<u16>>> {
    let bounded = |list: Vec<Vec<u16>>| {
        if list.len() > ALTERNATIVES_MAX {
            return refuse_oversized(
                at,
                format!("a where clause with subqueries may have {ALTERNATIVES_MAX} alternatives"),
            );
        }
        Ok(list)
    };
    match formula {
        Formula::One(position) => Ok(vec![vec![*position]]),
        Formula::Or(list) => {
            let mut all = Vec::new();
            for part in list {
                all.extend(alternatives_of(part, at)?);
                all = bounded(all)?;
            }
            Ok(all)
        }
        Formula::And(list) => {
            let mut all = vec![Vec::new()];
            for part in list {
                let others = alternatives_of(part, at)?;
                let mut product = Vec::new();
                for one in &all {
                    for other in &others {
                        let mut both: Vec<u16> = one.iter().chain(other).copied().collect();
                        both.sort_unstable();
                        both.dedup();
                        product.push(both);
                    }
                    product = bounded(product)?;
                }
                all = product;
            }
            Ok(all)
        }
    }
}
