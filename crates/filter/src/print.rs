//! Expressions as SQL that means the same on any server and in any session: every operator in parentheses, every
//! constant with its type, every order of texts by bytes, every use of a time zone in UTC.
//!
//! There are two spellings. [`canonical`] is for people, and for comparing clauses. [`sql`] is for Postgres: each
//! function, operator, type and collation is that of `pg_catalog`, whatever the search path, and no cast is left that a
//! type's owner may have defined.

use crate::expr::{Choice, Expr};
use crate::function::{Function, Spelling};
use crate::schema::Schema;
use crate::syntax::Test;
use crate::types::value::Value;
use crate::types::{Base, Type, output};

/// SQL for Postgres.
pub(crate) fn sql(expr: &Expr, schema: &Schema) -> String {
    print(expr, schema, true)
}

/// Text for people, and for comparison.
pub(crate) fn canonical(expr: &Expr, schema: &Schema) -> String {
    print(expr, schema, false)
}

fn print(expr: &Expr, schema: &Schema, qualified: bool) -> String {
    let mut printer = Printer { out: String::new(), schema, qualified };
    printer.expr(expr);
    printer.out
}

/// An operator of `pg_catalog`, with blanks around it.
pub(crate) fn operator(symbol: &str) -> String {
    format!(" OPERATOR(pg_catalog.{symbol}) ")
}

/// A condition that `side` equals one of `values`, which have this type.
pub(crate) fn is_one_of(side: &str, ty: Type, values: &[String], schema: &Schema) -> String {
    if catalog_name(ty.base).is_none() && sql_name(ty.base, schema).is_none() {
        let each = |value: &String| format!("({side}{}{value})", operator("="));
        return format!("({})", values.iter().map(each).collect::<Vec<_>>().join(" OR "));
    }
    format!("({side}{}ANY (ARRAY[{}]))", operator("="), values.join(", "))
}

/// The name of a user-defined type. With it a literal has exactly this type, whatever casts exist: a literal that takes
/// its type from its context may change the operator, through a user-defined cast.
fn sql_name(base: Base, schema: &Schema) -> Option<&str> {
    match base {
        Base::Enum(of) => schema.type_sql(of),
        _ => None,
    }
}

struct Printer<'a> {
    out: String,
    schema: &'a Schema,
    /// Spelled for Postgres.
    qualified: bool,
}

/// Types whose order depends on a collation. Columns of type `name` always sort by bytes.
fn is_collated(ty: Type) -> bool {
    matches!(ty.base, Base::Text | Base::Varchar | Base::Bpchar)
}

/// Whether something in it is written with a collation, which cases must not depend on.
fn sorts(expr: &Expr) -> bool {
    matches!(expr, Expr::Choose(Choice::Greatest | Choice::Least, ty, _) if is_collated(*ty))
        || expr.children().iter().any(sorts)
}

impl Printer<'_> {
    fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn expr(&mut self, expr: &Expr) {
        match expr {
            Expr::Column(column) => self.identifier(*column),
            Expr::Const(value, ty) => self.constant(value, *ty),
            Expr::Hole(at, ty) => self.push(&format!("${}::{}", u32::from(*at) + 1, self.type_name(*ty))),
            Expr::And(list) => self.joined(list, " AND "),
            Expr::Or(list) => self.joined(list, " OR "),
            Expr::Not(operand) => self.around("(NOT ", operand, ")"),
            Expr::Compare(comparison, ty, sides) => {
                self.infix(&sides[0], comparison.symbol(), &sides[1], comparison.orders() && is_collated(*ty));
            }
            Expr::Distinct(differ, _, sides) => {
                let words = if *differ { " IS DISTINCT FROM " } else { " IS NOT DISTINCT FROM " };
                self.infix_in(&sides[0], words, &sides[1], "");
            }
            Expr::Is { not, test, operand } => {
                let word = match test {
                    Test::Null => "NULL",
                    Test::True => "TRUE",
                    Test::False => "FALSE",
                    Test::Unknown => "UNKNOWN",
                };
                self.around("(", operand, if *not { " IS NOT " } else { " IS " });
                self.push(word);
                self.push(")");
            }
            Expr::Like(like, sides) => {
                let collation = if like.folded && !like.ascii && sides.iter().any(sorts) { "default" } else { "" };
                self.infix_in(&sides[0], &self.operator(like.symbol()), &sides[1], collation);
            }
            Expr::Quantified { operator, all, base, sides } => {
                self.around("(", &sides[0], "");
                if is_collated((*base).into()) && matches!(operator, crate::expr::Operator::Compare(c) if c.orders()) {
                    self.collation("C");
                }
                self.push(&self.operator(operator.symbol()));
                self.around(if *all { "ALL (" } else { "ANY (" }, &sides[1], "))");
            }
            Expr::Cast { from, to, operand } => self.cast(*from, *to, operand),
            Expr::Fit { base, modifiers, operand } => {
                let [first, second] = modifiers;
                self.around("(", operand, &format!(")::{}({first}", self.type_name((*base).into())));
                if *base == Base::Numeric {
                    self.push(&format!(",{second}"));
                }
                self.push(")");
            }
            Expr::Call(function, args) => self.call(*function, args),
            Expr::Choose(choice, ty, args) => self.choice(*choice, *ty, args),
            Expr::Array(base, list) => {
                self.push("ARRAY[");
                self.list(list, false);
                self.push("]");
                self.typed(Type::array(*base));
            }
        }
    }

    fn around(&mut self, before: &str, expr: &Expr, after: &str) {
        self.push(before);
        self.expr(expr);
        self.push(after);
    }

    fn joined(&mut self, list: &[Expr], between: &str) {
        for (i, expr) in list.iter().enumerate() {
            self.push(if i == 0 { "(" } else { between });
            self.expr(expr);
        }
        self.push(")");
    }

    fn list(&mut self, list: &[Expr], collated: bool) {
        for (i, expr) in list.iter().enumerate() {
            self.push(if i == 0 { "" } else { ", " });
            self.expr(expr);
            if collated {
                self.collation("C");
            }
        }
    }

    fn collation(&mut self, name: &str) {
        self.push(if self.qualified { " COLLATE pg_catalog.\"" } else { " COLLATE \"" });
        self.push(name);
        self.push("\"");
    }

    /// An operator with blanks around it.
    fn operator(&self, symbol: &str) -> String {
        if self.qualified { operator(symbol) } else { format!(" {symbol} ") }
    }

    /// A function's name and the parenthesis that opens its arguments.
    fn function(&self, name: &str) -> String {
        if self.qualified { format!("pg_catalog.{name}(") } else { format!("{name}(") }
    }

    fn type_name(&self, ty: Type) -> String {
        let brackets = if ty.array { "[]" } else { "" };
        match (catalog_name(ty.base), sql_name(ty.base, self.schema)) {
            (Some(name), _) if self.qualified => format!("pg_catalog.{name}{brackets}"),
            (None, Some(name)) if self.qualified => format!("{name}{brackets}"),
            _ => ty.name(),
        }
    }

    fn infix(&mut self, left: &Expr, symbol: &str, right: &Expr, collated: bool) {
        self.infix_in(left, &self.operator(symbol), right, if collated { "C" } else { "" });
    }

    /// `between` has blanks around it.
    fn infix_in(&mut self, left: &Expr, between: &str, right: &Expr, collation: &str) {
        for (before, side, after) in [("(", left, between), ("", right, ")")] {
            self.around(before, side, "");
            if !collation.is_empty() {
                self.collation(collation);
            }
            self.push(after);
        }
    }

    fn identifier(&mut self, column: u16) {
        let quoted = self.schema.name(column).replace('"', "\"\"");
        self.push(&format!("\"{quoted}\""));
    }

    fn quoted(&mut self, text: &str) {
        // Correct for both settings of `standard_conforming_strings`.
        let escaped = text.contains('\\');
        if escaped {
            self.push(" E");
        }
        let text = text.replace('\'', "''");
        self.push("'");
        self.push(&if escaped { text.replace('\\', "\\\\") } else { text });
        self.push("'");
    }

    fn constant(&mut self, value: &Value<'_>, ty: Type) {
        match value {
            Value::Null => self.push("NULL"),
            Value::Bool(value) => return self.push(if *value { "TRUE" } else { "FALSE" }),
            value => {
                let text = output::print_constant(value, ty, self.schema).into_owned();
                self.quoted(&text);
            }
        }
        self.typed(ty);
    }

    /// Writes the type of a value; a value whose type has no known name takes its type from the context.
    fn typed(&mut self, ty: Type) {
        let is_named = catalog_name(ty.base).is_some() || self.qualified && sql_name(ty.base, self.schema).is_some();
        if is_named {
            self.push("::");
            self.push(&self.unbounded(ty));
        }
    }

    /// The name of a type; the length of `character` would be 1.
    fn unbounded(&self, ty: Type) -> String {
        match (ty.base, ty.array) {
            (Base::Bpchar, true) if !self.qualified => "bpchar[]".to_owned(),
            (Base::Bpchar, false) if !self.qualified => "bpchar".to_owned(),
            _ => self.type_name(ty),
        }
    }

    fn cast(&mut self, from: Type, to: Type, operand: &Expr) {
        let utc = self.utc();
        match (from.base, to.base) {
            (Base::Timestamp, Base::Timestamptz) | (Base::Timestamptz, Base::Timestamp) => {
                self.around(&utc, operand, ")")
            }
            (Base::Date, Base::Timestamptz) => {
                let timestamp = if self.qualified { "pg_catalog.timestamp" } else { "timestamp" };
                self.around(&format!("{utc}("), operand, &format!(")::{timestamp})"));
            }
            (Base::Timestamptz, _) => {
                self.around(&format!("({utc}"), operand, &format!("))::{}", self.type_name(to)));
            }
            (Base::Enum(_) | Base::Other(_), _) if self.qualified => self.output(to, operand),
            _ => self.around("(", operand, &format!(")::{}", self.unbounded(to))),
        }
    }

    /// The text of the type's output function, as a value of `to`. The owner of the type may have defined a cast, which
    /// would run with the rights of the session's user.
    fn output(&mut self, to: Type, operand: &Expr) {
        self.around("(CASE WHEN pg_catalog.num_nulls(", operand, ")");
        self.push(&operator("="));
        self.around("1 THEN NULL ELSE pg_catalog.format('%s', ", operand, &format!(") END)::{}", self.unbounded(to)));
    }

    /// The start of a conversion of a moment to UTC.
    fn utc(&self) -> String {
        format!("{}'UTC', ", self.function("timezone"))
    }

    fn call(&mut self, function: Function, args: &[Expr]) {
        match function.spelling() {
            Spelling::Infix(symbol) => self.infix(&args[0], symbol, &args[1], false),
            // The blank keeps `- -1` from being a comment.
            Spelling::Prefix(symbol) => {
                let symbol = self.operator(symbol);
                self.around(&format!("({} ", symbol.trim()), &args[0], ")");
            }
            Spelling::Named(name)
                if matches!(function, Function::Lower { ascii: false } | Function::Upper { ascii: false })
                    && sorts(&args[0]) =>
            {
                self.around(&format!("(SELECT {}", self.function(name)), &args[0], "");
                self.collation("default");
                self.push("))");
            }
            Spelling::Named(name) => {
                self.push(&self.function(name));
                self.list(args, false);
                self.push(")");
            }
            Spelling::Special => self.special(function, args),
        }
    }

    fn special(&mut self, function: Function, args: &[Expr]) {
        match function {
            Function::Unpad => self.expr(&args[0]),
            Function::ZonedAdd | Function::ZonedSubtract => {
                let symbol = if function == Function::ZonedAdd { "+" } else { "-" };
                let (utc, symbol) = (self.utc(), self.operator(symbol));
                self.around(&format!("{utc}({utc}"), &args[0], &format!("){symbol}"));
                self.around("", &args[1], "))");
            }
            Function::Element => {
                self.around("(", &args[0], ")");
                self.around("[", &args[1], "]");
            }
            Function::Slice { from, to } => {
                let mut bounds = args[1..].iter();
                self.around("(", &args[0], ")[");
                for (given, after) in [(from, ":"), (to, "]")] {
                    if let (true, Some(bound)) = (given, bounds.as_slice().first()) {
                        self.expr(bound);
                        bounds.next();
                    }
                    self.push(after);
                }
            }
            _ => {}
        }
    }

    fn choice(&mut self, choice: Choice, ty: Type, args: &[Expr]) {
        let (name, collated) = match choice {
            Choice::Coalesce => ("COALESCE(", false),
            // A subquery keeps the collation from affecting its context.
            Choice::Greatest if is_collated(ty) => ("(SELECT GREATEST(", true),
            Choice::Least if is_collated(ty) => ("(SELECT LEAST(", true),
            Choice::Greatest => ("GREATEST(", false),
            Choice::Least => ("LEAST(", false),
            Choice::NullIf => ("NULLIF(", false),
            Choice::Concat if self.qualified => ("pg_catalog.concat(", false),
            Choice::Concat => ("concat(", false),
        };
        self.push(name);
        self.list(args, collated);
        self.push(if collated { "))" } else { ")" });
    }
}

/// The name in `pg_type.typname`.
fn catalog_name(base: Base) -> Option<&'static str> {
    Some(match base {
        Base::Bool => "bool",
        Base::Int2 => "int2",
        Base::Int4 => "int4",
        Base::Int8 => "int8",
        Base::Float4 => "float4",
        Base::Float8 => "float8",
        Base::Numeric => "numeric",
        Base::Text => "text",
        Base::Varchar => "varchar",
        Base::Bpchar => "bpchar",
        Base::Name => "name",
        Base::Uuid => "uuid",
        Base::Bytea => "bytea",
        Base::Date => "date",
        Base::Time => "time",
        Base::Timestamp => "timestamp",
        Base::Timestamptz => "timestamptz",
        Base::Interval => "interval",
        Base::Json => "json",
        Base::Jsonb => "jsonb",
        Base::Unknown | Base::Enum(_) | Base::Other(_) => return None,
    })
}
