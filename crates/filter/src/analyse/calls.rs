//! Functions.

use super::{Analyser, Typed, coerce, resolve, signatures};
use crate::error::{Parsed, refuse};
use crate::expr::{Choice, Expr};
use crate::function::Function;
use crate::syntax::{Kind, Node, TypeName};
use crate::types::value::Value;
use crate::types::{Base, Type};

impl Analyser<'_> {
    pub(super) fn call(&self, at: usize, name: &str, nodes: &[Node]) -> Parsed<Typed> {
        if name == "timezone" {
            return self.at_time_zone(at, nodes);
        }
        let args = nodes.iter().map(|node| self.expr(node)).collect::<Parsed<Vec<_>>>()?;
        match (name, args.len()) {
            ("coalesce", 1..) => self.choice(at, Choice::Coalesce, "COALESCE", args),
            ("greatest", 1..) => self.choice(at, Choice::Greatest, "GREATEST", args),
            ("least", 1..) => self.choice(at, Choice::Least, "LEAST", args),
            ("nullif", 2) => self.null_if(at, args),
            ("concat", 1..) => self.concat(at, args),
            ("array_cat" | "array_append" | "array_prepend", 2) => self.array_function(at, name, args),
            ("array_ndims" | "cardinality", 1) | ("array_length", 2) => self.array_measure(at, name, args),
            _ => self.plain(at, name, args),
        }
    }

    fn plain(&self, at: usize, name: &str, mut args: Vec<Typed>) -> Parsed<Typed> {
        let types: Vec<Type> = args.iter().map(|arg| arg.ty).collect();
        let candidates = signatures::functions(name, args.len());
        if candidates.is_empty() {
            // The name of a type is its cast.
            if let (Some(base), 1) = (cast_function(name), args.len()) {
                let name = TypeName { name: base.name().to_owned(), modifiers: Vec::new(), array: false };
                return coerce::explicitly(args.remove(0), &name, self);
            }
            return refuse(at, format!("unsupported function: {name}"));
        }
        match resolve::select(&candidates, &types) {
            Ok(chosen) => self.apply(at, &{ *chosen }, args),
            Err(problem) => {
                let shown = types.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(", ");
                refuse(
                    at,
                    match problem {
                        resolve::Unresolved::None => format!("function {name}({shown}) does not exist"),
                        resolve::Unresolved::Several => format!("function {name}({shown}) is not unique"),
                    },
                )
            }
        }
    }

    fn choice(&self, at: usize, choice: Choice, name: &str, args: Vec<Typed>) -> Parsed<Typed> {
        let Some(common) = coerce::common_type(args.iter().map(|arg| arg.ty)) else {
            return refuse(at, format!("{name} types cannot be matched"));
        };
        let ordered = choice != Choice::Coalesce;
        if ordered && matches!(common.base, Base::Json | Base::Other(_)) {
            return refuse(at, format!("could not identify a comparison function for {name}"));
        }
        let mut exprs = Vec::with_capacity(args.len());
        for arg in args {
            exprs.push(coerce::implicitly(arg, common, self)?);
        }
        if choice == Choice::Coalesce {
            // Arguments behind a constant are not evaluated, even if they would fail.
            exprs.retain(|expr| !matches!(expr, Expr::Const(Value::Null, _)));
            match exprs.first() {
                None => return Ok(self.typed(at, common, Expr::Const(Value::Null, common))),
                Some(constant @ Expr::Const(..)) => return Ok(self.typed(at, common, constant.clone())),
                Some(_) => {}
            }
        }
        Ok(self.typed(at, common, Expr::Choose(choice, common, exprs.into())))
    }

    fn null_if(&self, at: usize, args: Vec<Typed>) -> Parsed<Typed> {
        // With two types the operator of equality would decide.
        let (left, right) = (args[0].ty, args[1].ty);
        let same = left == right || left.is_unknown() || right.is_unknown();
        if !same || matches!(left.base, Base::Json | Base::Other(_)) {
            return refuse(at, "NULLIF is supported for two values of one type");
        }
        self.choice(at, Choice::NullIf, "NULLIF", args)
    }

    /// `concat` of the texts of its arguments, without nulls.
    fn concat(&self, at: usize, args: Vec<Typed>) -> Parsed<Typed> {
        let mut exprs = Vec::with_capacity(args.len());
        for arg in args {
            let from = arg.ty;
            if from.base == Base::Timestamptz {
                return refuse(
                    arg.at,
                    "the text of a timestamp with time zone depends on the time zone of the session",
                );
            }
            // The output function applies here, not the cast: it writes booleans differently, and keeps blanks at the
            // end.
            if !from.array && matches!(from.base, Base::Bool | Base::Bpchar) {
                return refuse(arg.at, format!("concat of type {} is not supported: cast it to text", from.name()));
            }
            let text = Type::from(Base::Text);
            exprs.push(if from.is_unknown() || from == text {
                coerce::implicitly(arg, text, self)?
            } else {
                coerce::fold(Expr::Cast { from, to: text, operand: Box::new(arg.expr) }, text, self)
            });
        }
        Ok(self.typed(at, Base::Text, Expr::Choose(Choice::Concat, Base::Text.into(), exprs.into())))
    }

    fn array_function(&self, at: usize, name: &str, mut args: Vec<Typed>) -> Parsed<Typed> {
        let (right, left) = (args.pop(), args.pop());
        let (Some(mut left), Some(mut right)) = (left, right) else { return refuse(at, "two arguments are needed") };
        // A literal that must be an element gets the type of the elements.
        let literal = |it: Typed, array: &Typed| {
            let ty = Type { array: false, ..array.ty };
            let at = it.at;
            Ok(Typed { expr: coerce::implicitly(it, ty, self)?, ty, at })
        };
        match name {
            "array_append" if right.ty.is_unknown() && left.ty.array => right = literal(right, &left)?,
            "array_prepend" if left.ty.is_unknown() && right.ty.array => left = literal(left, &right)?,
            _ => {}
        }
        let shape = (left.ty.array, right.ty.array);
        let fits = match name {
            "array_append" => shape == (true, false),
            "array_prepend" => shape == (false, true),
            _ => shape.0 || shape.1,
        };
        if fits {
            self.array_concat(at, left, right)
        } else {
            refuse(at, format!("function {name}({}, {}) does not exist", left.ty.name(), right.ty.name()))
        }
    }

    fn array_measure(&self, at: usize, name: &str, args: Vec<Typed>) -> Parsed<Typed> {
        let function = match name {
            "array_ndims" => Function::ArrayDimensions,
            "cardinality" => Function::Cardinality,
            _ => Function::ArrayLength,
        };
        let mut exprs = Vec::with_capacity(args.len());
        for (i, arg) in args.into_iter().enumerate() {
            if i == 0 && !arg.ty.array {
                return refuse(arg.at, format!("function {name}({}) does not exist", arg.ty.name()));
            }
            exprs.push(if i == 0 { arg.expr } else { coerce::implicitly(arg, Base::Int4.into(), self)? });
        }
        Ok(self.typed(at, Base::Int4, Expr::Call(function, exprs.into())))
    }

    /// `timezone(zone, moment)`, also written `moment AT TIME ZONE zone`: for UTC, which has no rules that change.
    fn at_time_zone(&self, at: usize, nodes: &[Node]) -> Parsed<Typed> {
        let [zone, moment] = nodes else { return refuse(at, "unsupported function: timezone") };
        match &zone.kind {
            Kind::String(name)
                if ["utc", "gmt", "z", "zulu", "etc/utc"].iter().any(|known| name.eq_ignore_ascii_case(known)) => {}
            _ => return refuse(zone.at, "time zones other than 'UTC' are not supported"),
        }
        let moment = self.expr(moment)?;
        let (from, to) = match moment.ty {
            Type { base: Base::Timestamp, array: false } => (Base::Timestamp, Base::Timestamptz),
            Type { base: Base::Timestamptz, array: false } => (Base::Timestamptz, Base::Timestamp),
            // The preferred type of its category.
            Type { base: Base::Date | Base::Unknown, array: false } => (Base::Timestamptz, Base::Timestamp),
            ty => return refuse(at, format!("function timezone(unknown, {}) does not exist", ty.name())),
        };
        let operand = Box::new(coerce::implicitly(moment, from.into(), self)?);
        Ok(self.typed(at, to, Expr::Cast { from: from.into(), to: to.into(), operand }))
    }
}

/// Functions that are named after the type that they cast to.
fn cast_function(name: &str) -> Option<Base> {
    Some(match name {
        "int2" => Base::Int2,
        "int4" => Base::Int4,
        "int8" => Base::Int8,
        "float4" => Base::Float4,
        "float8" => Base::Float8,
        "numeric" => Base::Numeric,
        "bool" => Base::Bool,
        "text" => Base::Text,
        "varchar" => Base::Varchar,
        "uuid" => Base::Uuid,
        "date" => Base::Date,
        "timestamp" => Base::Timestamp,
        "timestamptz" => Base::Timestamptz,
        "interval" => Base::Interval,
        "jsonb" => Base::Jsonb,
        _ => return None,
    })
}
