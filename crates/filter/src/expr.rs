//! An analysed where clause: every operator, type and cast is resolved. Equal expressions select the same rows.

use crate::function::Function;
use crate::schema::Schema;
use crate::syntax::Test;
use crate::types::value::Value;
use crate::types::{Base, Type};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Expr {
    Column(u16),
    Const(Value<'static>, Type),
    /// A constant that was taken out of the expression, by its place among those: only where many expressions differ in
    /// constants.
    Hole(u16, Type),
    And(Box<[Expr]>),
    Or(Box<[Expr]>),
    Not(Box<Expr>),
    /// Comparison of two values of this type.
    Compare(Comparison, Type, Box<[Expr; 2]>),
    /// `IS [NOT] DISTINCT FROM`; true is that they differ.
    Distinct(bool, Type, Box<[Expr; 2]>),
    /// `IS [NOT] …`
    Is {
        not: bool,
        test: Test,
        operand: Box<Expr>,
    },
    Like(Like, Box<[Expr; 2]>),
    /// `x op ANY (array)` or `ALL`; the type is that of `x` and of the elements.
    Quantified {
        operator: Operator,
        all: bool,
        base: Base,
        sides: Box<[Expr; 2]>,
    },
    Cast {
        from: Type,
        to: Type,
        operand: Box<Expr>,
    },
    /// A cast to the type that it has, with a length or a scale.
    Fit {
        base: Base,
        modifiers: [i32; 2],
        operand: Box<Expr>,
    },
    /// Null if an argument is.
    Call(Function, Box<[Expr]>),
    /// Functions that handle nulls themselves; the type is that of the arguments.
    Choose(Choice, Type, Box<[Expr]>),
    /// `ARRAY[…]`
    Array(Base, Box<[Expr]>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Like {
    pub(crate) not: bool,
    pub(crate) folded: bool,
    /// Folded by the collation "C", in which only the letters of ASCII have cases.
    pub(crate) ascii: bool,
}

/// The operator before `ANY` and `ALL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Operator {
    Compare(Comparison),
    Like(Like),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Choice {
    Coalesce,
    Greatest,
    Least,
    NullIf,
    /// `concat`: of texts.
    Concat,
}

/// Whether it asks for one value among others. Then a constant array is in order, without repetitions, its null last.
pub(crate) fn is_membership(operator: Operator, all: bool) -> bool {
    operator == Operator::Compare(if all { Comparison::NotEqual } else { Comparison::Equal })
}

impl Comparison {
    pub(crate) fn of_symbol(symbol: &str) -> Option<Self> {
        Some(match symbol {
            "=" => Self::Equal,
            "<>" => Self::NotEqual,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    pub(crate) fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }

    pub(crate) fn negated(self) -> Self {
        match self {
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::Less => Self::GreaterOrEqual,
            Self::LessOrEqual => Self::Greater,
            Self::Greater => Self::LessOrEqual,
            Self::GreaterOrEqual => Self::Less,
        }
    }

    /// The comparison with its sides exchanged.
    pub(crate) fn mirrored(self) -> Self {
        match self {
            Self::Equal | Self::NotEqual => self,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }

    /// Whether the comparison is by order, so that a collation matters.
    pub(crate) fn orders(self) -> bool {
        !matches!(self, Self::Equal | Self::NotEqual)
    }
}

impl Like {
    pub(crate) fn of_symbol(symbol: &str) -> Option<Self> {
        Some(match symbol {
            "~~" => Self { not: false, folded: false, ascii: false },
            "~~*" => Self { not: false, folded: true, ascii: false },
            "!~~" => Self { not: true, folded: false, ascii: false },
            "!~~*" => Self { not: true, folded: true, ascii: false },
            _ => return None,
        })
    }

    pub(crate) fn symbol(self) -> &'static str {
        match (self.not, self.folded) {
            (false, false) => "~~",
            (false, true) => "~~*",
            (true, false) => "!~~",
            (true, true) => "!~~*",
        }
    }
}

impl Operator {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Compare(comparison) => comparison.symbol(),
            Self::Like(like) => like.symbol(),
        }
    }
}

impl Expr {
    pub(crate) fn bool(value: bool) -> Self {
        Self::Const(Value::Bool(value), Type::BOOL)
    }

    pub(crate) fn children(&self) -> &[Expr] {
        match self {
            Self::Column(_) | Self::Const(..) | Self::Hole(..) => &[],
            Self::And(list)
            | Self::Or(list)
            | Self::Call(_, list)
            | Self::Choose(_, _, list)
            | Self::Array(_, list) => list,
            Self::Compare(_, _, sides)
            | Self::Distinct(_, _, sides)
            | Self::Like(_, sides)
            | Self::Quantified { sides, .. } => &sides[..],
            Self::Not(operand) | Self::Is { operand, .. } | Self::Cast { operand, .. } | Self::Fit { operand, .. } => {
                std::slice::from_ref(&**operand)
            }
        }
    }

    /// Bytes of memory.
    pub(crate) fn size(&self) -> usize {
        let own = if let Self::Const(value, _) = self { value.size() } else { 0 };
        size_of::<Self>() + own + self.children().iter().map(Self::size).sum::<usize>()
    }

    pub(crate) fn for_each_column(&self, each: &mut dyn FnMut(u16)) {
        if let Self::Column(column) = self {
            each(*column);
        }
        for child in self.children() {
            child.for_each_column(each);
        }
    }

    pub(crate) fn has_column(&self) -> bool {
        matches!(self, Self::Column(_)) || self.children().iter().any(Self::has_column)
    }

    /// Whether something in it brings the collation "C" of the type `name` with it, in which cases are those of ASCII.
    /// A cast brings none.
    pub(crate) fn has_name(&self, schema: &Schema) -> bool {
        let own = match self {
            Self::Column(column) => schema.type_of(*column).base == Base::Name,
            Self::Const(_, ty) => ty.base == Base::Name,
            _ => false,
        };
        own || self.children().iter().any(|child| child.has_name(schema))
    }

    /// The opposite; null where this is null.
    pub(crate) fn negated(self) -> Self {
        let negate_all = |list: Box<[Self]>| list.into_iter().map(Self::negated).collect();
        match self {
            Self::Const(Value::Bool(value), ty) => Self::Const(Value::Bool(!value), ty),
            null @ Self::Const(..) => null,
            Self::And(list) => Self::Or(negate_all(list)),
            Self::Or(list) => Self::And(negate_all(list)),
            Self::Not(operand) => *operand,
            Self::Compare(comparison, ty, sides) => Self::Compare(comparison.negated(), ty, sides),
            Self::Distinct(differ, ty, sides) => Self::Distinct(!differ, ty, sides),
            Self::Is { not, test, operand } => Self::Is { not: !not, test, operand },
            Self::Like(like, sides) => Self::Like(Like { not: !like.not, ..like }, sides),
            Self::Quantified { operator, all, base, sides } => {
                let operator = match operator {
                    Operator::Compare(comparison) => Operator::Compare(comparison.negated()),
                    Operator::Like(like) => Operator::Like(Like { not: !like.not, ..like }),
                };
                Self::Quantified { operator, all: !all, base, sides }
            }
            other => Self::Not(Box::new(other)),
        }
    }
}
