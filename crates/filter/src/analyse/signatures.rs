//! Known operators and functions, by name: a part of `pg_operator` and `pg_proc`.

use crate::expr::{Comparison, Like};
use crate::function::Function;
use crate::types::{Base, Type};

/// The expression that an operator or function becomes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Meaning {
    /// Comparison of values of this type.
    Compare(Comparison, Base),
    Like(Like),
    Function(Function),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Signature {
    count: usize,
    /// Argument types for resolution.
    args: [Type; 3],
    /// Types that arguments are converted to, if other ones: a day becomes a midnight before its comparison with a
    /// timestamp.
    uses: [Type; 3],
    pub(super) result: Type,
    pub(super) meaning: Meaning,
}

impl Signature {
    pub(super) fn new(args: &[Base], result: Base, meaning: Meaning) -> Self {
        let mut types = [Type::UNKNOWN; 3];
        for (to, from) in types.iter_mut().zip(args) {
            *to = (*from).into();
        }
        Self { count: args.len().min(3), args: types, uses: types, result: result.into(), meaning }
    }

    fn using(mut self, args: &[Base]) -> Self {
        for (to, from) in self.uses.iter_mut().zip(args) {
            *to = (*from).into();
        }
        self
    }

    fn with_array(mut self, at: usize) -> Self {
        self.args[at].array = true;
        self.uses[at].array = true;
        self
    }

    pub(super) fn args(&self) -> &[Type] {
        &self.args[..self.count]
    }

    pub(super) fn uses(&self) -> &[Type] {
        &self.uses[..self.count]
    }
}

const INTEGERS: [Base; 3] = [Base::Int2, Base::Int4, Base::Int8];
const FLOATS: [Base; 2] = [Base::Float4, Base::Float8];
const MOMENTS: [Base; 3] = [Base::Date, Base::Timestamp, Base::Timestamptz];

/// Operators between two operands that are neither arrays nor enums.
pub(super) fn infix(symbol: &str) -> Vec<Signature> {
    if let Some(comparison) = Comparison::of_symbol(symbol) {
        return comparisons(comparison);
    }
    if let Some(like) = Like::of_symbol(symbol) {
        let meaning = Meaning::Like(like);
        return [Base::Text, Base::Bpchar, Base::Name]
            .map(|left| Signature::new(&[left, Base::Text], Base::Bool, meaning))
            .into();
    }
    let mut out = Vec::new();
    let mut add = |left: Base, right: Base, result: Base, function: Function| {
        out.push(Signature::new(&[left, right], result, Meaning::Function(function)));
    };
    let arithmetic: Option<fn(Base) -> Function> = match symbol {
        "+" => Some(Function::Add),
        "-" => Some(Function::Subtract),
        "*" => Some(Function::Multiply),
        "/" => Some(Function::Divide),
        "%" => Some(Function::Remainder),
        _ => None,
    };
    if let Some(function) = arithmetic {
        for group in [&INTEGERS[..], &FLOATS[..]] {
            // Floats have no remainder, and integers only with both operands of one width.
            if symbol == "%" && group.len() == 2 {
                continue;
            }
            for (i, left) in group.iter().enumerate() {
                for (j, right) in group.iter().enumerate() {
                    if symbol != "%" || i == j {
                        let wider = group[i.max(j)];
                        add(*left, *right, wider, function(wider));
                    }
                }
            }
        }
        add(Base::Numeric, Base::Numeric, Base::Numeric, function(Base::Numeric));
    }
    use Base::{Bytea, Date, Float8, Int4, Interval, Jsonb, Text, Time, Timestamp, Timestamptz};
    match symbol {
        "+" => {
            add(Date, Int4, Date, Function::DateAddDays);
            add(Int4, Date, Date, Function::DaysAddDate);
            add(Date, Time, Timestamp, Function::DateAddTime);
            add(Time, Date, Timestamp, Function::TimeAddDate);
            add(Timestamp, Interval, Timestamp, Function::TimestampAdd);
            add(Interval, Timestamp, Timestamp, Function::IntervalAddTimestamp);
            add(Timestamptz, Interval, Timestamptz, Function::ZonedAdd);
            add(Interval, Timestamptz, Timestamptz, Function::ZonedAdd);
            add(Time, Interval, Time, Function::TimeAdd);
            add(Interval, Time, Time, Function::IntervalAddTime);
            add(Interval, Interval, Interval, Function::IntervalAdd);
            let meaning = |function| Meaning::Function(function);
            out.push(
                Signature::new(&[Date, Interval], Timestamp, meaning(Function::TimestampAdd))
                    .using(&[Timestamp, Interval]),
            );
            out.push(
                Signature::new(&[Interval, Date], Timestamp, meaning(Function::IntervalAddTimestamp))
                    .using(&[Interval, Timestamp]),
            );
        }
        "-" => {
            add(Date, Int4, Date, Function::DateSubtractDays);
            add(Date, Date, Int4, Function::DateSubtractDate);
            add(Timestamp, Interval, Timestamp, Function::TimestampSubtract);
            add(Timestamptz, Interval, Timestamptz, Function::ZonedSubtract);
            add(Timestamp, Timestamp, Interval, Function::TimestampDifference);
            add(Timestamptz, Timestamptz, Interval, Function::TimestampDifference);
            add(Time, Interval, Time, Function::TimeSubtract);
            add(Time, Time, Interval, Function::TimeDifference);
            add(Interval, Interval, Interval, Function::IntervalSubtract);
            let subtract = Meaning::Function(Function::TimestampSubtract);
            out.push(Signature::new(&[Date, Interval], Timestamp, subtract).using(&[Timestamp, Interval]));
        }
        "^" => add(Float8, Float8, Float8, Function::Power),
        "&" => INTEGERS.into_iter().for_each(|base| add(base, base, base, Function::BitAnd)),
        "|" => INTEGERS.into_iter().for_each(|base| add(base, base, base, Function::BitOr)),
        "#" => INTEGERS.into_iter().for_each(|base| add(base, base, base, Function::BitXor)),
        "<<" => INTEGERS.into_iter().for_each(|base| add(base, Int4, base, Function::ShiftLeft(base))),
        ">>" => INTEGERS.into_iter().for_each(|base| add(base, Int4, base, Function::ShiftRight(base))),
        "||" => {
            add(Text, Text, Text, Function::Concat);
            add(Bytea, Bytea, Bytea, Function::BytesConcat);
        }
        "->" => {
            add(Jsonb, Text, Jsonb, Function::JsonMember);
            add(Jsonb, Int4, Jsonb, Function::JsonElement);
        }
        "->>" => {
            add(Jsonb, Text, Text, Function::JsonMemberText);
            add(Jsonb, Int4, Text, Function::JsonElementText);
        }
        "@>" => add(Jsonb, Jsonb, Base::Bool, Function::JsonContains),
        "<@" => add(Jsonb, Jsonb, Base::Bool, Function::JsonContained),
        "?" => add(Jsonb, Text, Base::Bool, Function::JsonHas),
        "#>" | "#>>" | "?|" | "?&" => {
            let (function, result) = match symbol {
                "#>" => (Function::JsonPath, Jsonb),
                "#>>" => (Function::JsonPathText, Text),
                "?|" => (Function::JsonHasAny, Base::Bool),
                _ => (Function::JsonHasAll, Base::Bool),
            };
            out.push(Signature::new(&[Jsonb, Text], result, Meaning::Function(function)).with_array(1));
        }
        "^@" => add(Text, Text, Base::Bool, Function::StartsWith),
        _ => {}
    }
    out
}

fn comparisons(comparison: Comparison) -> Vec<Signature> {
    use Base::{Bool, Bpchar, Bytea, Interval, Jsonb, Name, Numeric, Text, Time, Uuid};
    let compare = |base| Meaning::Compare(comparison, base);
    let mut out: Vec<Signature> = [Bool, Numeric, Text, Bpchar, Name, Uuid, Bytea, Time, Interval, Jsonb]
        .into_iter()
        .map(|base| Signature::new(&[base, base], Bool, compare(base)))
        .collect();
    for group in [&INTEGERS[..], &FLOATS[..], &MOMENTS[..]] {
        for (i, left) in group.iter().enumerate() {
            for (j, right) in group.iter().enumerate() {
                let wider = group[i.max(j)];
                let signature = Signature::new(&[*left, *right], Bool, compare(wider));
                out.push(if *group == MOMENTS[..] { signature.using(&[wider, wider]) } else { signature });
            }
        }
    }
    out.push(Signature::new(&[Name, Text], Bool, compare(Text)));
    out.push(Signature::new(&[Text, Name], Bool, compare(Text)));
    out
}

pub(super) fn prefix(symbol: &str) -> Vec<Signature> {
    use Base::{Float8, Interval, Numeric};
    let numbers = INTEGERS.into_iter().chain(FLOATS).chain([Numeric]);
    let each = |function: fn(Base) -> Function| -> Vec<Signature> {
        numbers.map(|base| Signature::new(&[base], base, Meaning::Function(function(base)))).collect()
    };
    match symbol {
        "-" => {
            let mut out = each(Function::Negate);
            out.push(Signature::new(&[Interval], Interval, Meaning::Function(Function::IntervalNegate)));
            out
        }
        "@" => each(Function::Abs),
        "~" => INTEGERS.map(|base| Signature::new(&[base], base, Meaning::Function(Function::BitNot))).into(),
        "|/" => vec![Signature::new(&[Float8], Float8, Meaning::Function(Function::SquareRoot))],
        "||/" => vec![Signature::new(&[Float8], Float8, Meaning::Function(Function::CubeRoot))],
        _ => Vec::new(),
    }
}

/// Functions without array arguments; those with syntax or rules of their own are elsewhere.
pub(super) fn functions(name: &str, count: usize) -> Vec<Signature> {
    use Base::{Bool, Bpchar, Bytea, Int4, Interval, Jsonb, Name, Text};
    let one = |args: &[Base], result: Base, function: Function| {
        vec![Signature::new(args, result, Meaning::Function(function))]
    };
    match (name, count) {
        ("abs", 1) => prefix("@"),
        ("lower", 1) => one(&[Text], Text, Function::Lower { ascii: false }),
        ("upper", 1) => one(&[Text], Text, Function::Upper { ascii: false }),
        ("length", 1) => {
            let mut out = one(&[Text], Int4, Function::Length);
            // The blanks at the end do not count.
            out.push(Signature::new(&[Bpchar], Int4, Meaning::Function(Function::Length)).using(&[Text]));
            out.push(Signature::new(&[Bytea], Int4, Meaning::Function(Function::OctetLength)));
            out
        }
        ("char_length" | "character_length", 1) => {
            let mut out = one(&[Text], Int4, Function::Length);
            out.push(Signature::new(&[Bpchar], Int4, Meaning::Function(Function::Length)).using(&[Text]));
            out
        }
        ("octet_length", 1) => [Text, Bpchar, Bytea]
            .map(|base| Signature::new(&[base], Int4, Meaning::Function(Function::OctetLength)))
            .into(),
        ("btrim", 1) => one(&[Text], Text, Function::Trim { start: true, end: true }),
        ("ltrim", 1) => one(&[Text], Text, Function::Trim { start: true, end: false }),
        ("rtrim", 1) => one(&[Text], Text, Function::Trim { start: false, end: true }),
        ("btrim", 2) => one(&[Text, Text], Text, Function::Trim { start: true, end: true }),
        ("ltrim", 2) => one(&[Text, Text], Text, Function::Trim { start: true, end: false }),
        ("rtrim", 2) => one(&[Text, Text], Text, Function::Trim { start: false, end: true }),
        ("left", 2) => one(&[Text, Int4], Text, Function::Left),
        ("right", 2) => one(&[Text, Int4], Text, Function::Right),
        ("starts_with", 2) => one(&[Text, Text], Bool, Function::StartsWith),
        ("strpos", 2) => one(&[Text, Text], Int4, Function::Position),
        ("replace", 3) => one(&[Text, Text, Text], Text, Function::Replace),
        ("like" | "notlike", 2) => {
            let like = Like { not: name == "notlike", folded: false, ascii: false };
            [Text, Bpchar, Name].map(|left| Signature::new(&[left, Text], Bool, Meaning::Like(like))).into()
        }
        ("ilike" | "texticlike", 2) => {
            vec![Signature::new(&[Text, Text], Bool, Meaning::Like(Like { not: false, folded: true, ascii: false }))]
        }
        ("like_escape", 2) => one(&[Text, Text], Text, Function::LikeEscape),
        ("justify_days", 1) => one(&[Interval], Interval, Function::JustifyDays),
        ("justify_hours", 1) => one(&[Interval], Interval, Function::JustifyHours),
        ("justify_interval", 1) => one(&[Interval], Interval, Function::JustifyInterval),
        ("jsonb_exists", 2) => one(&[Jsonb, Text], Bool, Function::JsonHas),
        _ => Vec::new(),
    }
}
