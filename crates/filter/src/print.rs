//! Expressions as SQL that means the same on any server and in any session: every operator in parentheses, every constant with its type,
//! every order of texts by bytes, every use of a time zone in UTC.

use crate::expr::{Choice, Expr};
use crate::function::{Function, Spelling};
use crate::schema::Schema;
use crate::syntax::Test;
use crate::types::value::Value;
use crate::types::{Base, Type, output};

pub(crate) fn sql(expr: &Expr, schema: &Schema) -> String {
    let mut printer = Printer { out: String::new(), schema };
    printer.expr(expr);
    printer.out
}

struct Printer<'a> {
    out: String,
    schema: &'a Schema,
}

/// What sorts differently in different collations. Columns of type `name` always sort by bytes.
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
            Expr::Hole(at, ty) => self.push(&format!("${}::{}", u32::from(*at) + 1, ty.name())),
            Expr::And(list) => self.joined(list, " AND "),
            Expr::Or(list) => self.joined(list, " OR "),
            Expr::Not(operand) => self.around("(NOT ", operand, ")"),
            Expr::Compare(comparison, ty, sides) => {
                self.infix(&sides[0], comparison.symbol(), &sides[1], comparison.orders() && is_collated(*ty));
            }
            Expr::Distinct(differ, _, sides) => {
                let symbol = if *differ { "IS DISTINCT FROM" } else { "IS NOT DISTINCT FROM" };
                self.infix(&sides[0], symbol, &sides[1], false);
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
                self.infix_in(&sides[0], like.symbol(), &sides[1], collation);
            }
            Expr::Quantified { operator, all, base, sides } => {
                self.around("(", &sides[0], "");
                if is_collated((*base).into()) && matches!(operator, crate::expr::Operator::Compare(c) if c.orders()) {
                    self.push(" COLLATE \"C\"");
                }
                self.push(" ");
                self.push(operator.symbol());
                self.around(if *all { " ALL (" } else { " ANY (" }, &sides[1], "))");
            }
            Expr::Cast { from, to, operand } => self.cast(*from, *to, operand),
            Expr::Fit { base, modifiers, operand } => {
                let [first, second] = modifiers;
                self.around("(", operand, &format!(")::{}({first}", base.name()));
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
                if !matches!(base, Base::Enum(_) | Base::Other(_)) {
                    self.push("::");
                    self.push(&Type::array(*base).name());
                }
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
                self.push(" COLLATE \"C\"");
            }
        }
    }

    fn infix(&mut self, left: &Expr, symbol: &str, right: &Expr, collated: bool) {
        self.infix_in(left, symbol, right, if collated { "C" } else { "" });
    }

    fn infix_in(&mut self, left: &Expr, symbol: &str, right: &Expr, collation: &str) {
        let collation = if collation.is_empty() { String::new() } else { format!(" COLLATE \"{collation}\"") };
        self.around("(", left, &format!("{collation} {symbol} "));
        self.around("", right, &format!("{collation})"));
    }

    fn identifier(&mut self, column: u16) {
        let quoted = self.schema.name(column).replace('"', "\"\"");
        self.push(&format!("\"{quoted}\""));
    }

    fn quoted(&mut self, text: &str) {
        // Right whatever `standard_conforming_strings` says.
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
        // Nobody told us what an enum is called: its literals take their type from what they stand beside.
        if !matches!(ty.base, Base::Unknown | Base::Enum(_) | Base::Other(_)) {
            // The length of `character` would be 1.
            let name = if ty.base == Base::Bpchar {
                if ty.array { "bpchar[]" } else { "bpchar" }.to_owned()
            } else {
                ty.name()
            };
            self.push("::");
            self.push(&name);
        }
    }

    fn cast(&mut self, from: Type, to: Type, operand: &Expr) {
        let utc = "timezone('UTC', ";
        match (from.base, to.base) {
            (Base::Timestamp, Base::Timestamptz) | (Base::Timestamptz, Base::Timestamp) => {
                self.around(utc, operand, ")")
            }
            (Base::Date, Base::Timestamptz) => self.around("timezone('UTC', (", operand, ")::timestamp)"),
            (Base::Timestamptz, _) => self.around("(timezone('UTC', ", operand, &format!("))::{}", to.name())),
            (_, Base::Bpchar) => self.around("(", operand, if to.array { ")::bpchar[]" } else { ")::bpchar" }),
            _ => self.around("(", operand, &format!(")::{}", to.name())),
        }
    }

    fn call(&mut self, function: Function, args: &[Expr]) {
        match function.spelling() {
            Spelling::Infix(symbol) => self.infix(&args[0], symbol, &args[1], false),
            // The blank keeps `- -1` from being a comment.
            Spelling::Prefix(symbol) => self.around(&format!("({symbol} "), &args[0], ")"),
            Spelling::Named(name)
                if matches!(function, Function::Lower { ascii: false } | Function::Upper { ascii: false })
                    && sorts(&args[0]) =>
            {
                self.around(&format!("(SELECT {name}("), &args[0], " COLLATE \"default\"))");
            }
            Spelling::Named(name) => {
                self.push(name);
                self.push("(");
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
                self.around("timezone('UTC', (timezone('UTC', ", &args[0], &format!(") {symbol} "));
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
            // A subquery keeps the collation from reaching what is around it.
            Choice::Greatest if is_collated(ty) => ("(SELECT GREATEST(", true),
            Choice::Least if is_collated(ty) => ("(SELECT LEAST(", true),
            Choice::Greatest => ("GREATEST(", false),
            Choice::Least => ("LEAST(", false),
            Choice::NullIf => ("NULLIF(", false),
            Choice::Concat => ("concat(", false),
        };
        self.push(name);
        self.list(args, collated);
        self.push(if collated { "))" } else { ")" });
    }
}
