//! The tree of a where clause as written.

#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Bytes from the start of the text.
    pub(crate) at: usize,
    pub(crate) depth: u16,
    /// Number of nodes of the resulting expression.
    pub(crate) size: u32,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Column {
        table: Option<String>,
        name: String,
    },
    Number(String),
    /// A quoted literal, or a parameter's value: its context determines the type.
    String(String),
    Bool(bool),
    Null,
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Prefix(String, Box<Node>),
    Binary(String, Box<Node>, Box<Node>),
    /// `IS [NOT] …`
    Is {
        not: bool,
        test: Test,
        operand: Box<Node>,
    },
    Distinct {
        not: bool,
        left: Box<Node>,
        right: Box<Node>,
    },
    In {
        not: bool,
        operand: Box<Node>,
        list: Vec<Node>,
    },
    /// `operand [NOT] IN (SELECT …)`
    InQuery {
        not: bool,
        operand: Box<Node>,
        query: Box<Select>,
    },
    Between {
        not: bool,
        symmetric: bool,
        operand: Box<Node>,
        low: Box<Node>,
        high: Box<Node>,
    },
    Like {
        not: bool,
        folded: bool,
        operand: Box<Node>,
        pattern: Box<Node>,
        escape: Option<Box<Node>>,
    },
    /// `left op ANY (right)`, or `ALL`.
    Quantified {
        operator: String,
        all: bool,
        left: Box<Node>,
        right: Box<Node>,
    },
    Cast(Box<Node>, TypeName),
    Call(String, Vec<Node>),
    Array(Vec<Node>),
    /// `a[i]`
    Element(Box<Node>, Box<Node>),
    /// `a[i:j]`
    Slice(Box<Node>, Option<Box<Node>>, Option<Box<Node>>),
    Row(Vec<Node>),
}

/// `SELECT columns FROM schema.table AS alias WHERE condition`
#[derive(Debug, Clone)]
pub(crate) struct Select {
    pub(crate) at: usize,
    /// The selected expressions: columns only.
    pub(crate) columns: Vec<Node>,
    pub(crate) schema: Option<String>,
    pub(crate) table: String,
    pub(crate) alias: Option<String>,
    pub(crate) condition: Option<Node>,
}

impl Node {
    pub(crate) fn children(&self) -> Vec<&Node> {
        match &self.kind {
            Kind::Column { .. } | Kind::Number(_) | Kind::String(_) | Kind::Bool(_) | Kind::Null => Vec::new(),
            Kind::And(list) | Kind::Or(list) | Kind::Call(_, list) | Kind::Array(list) | Kind::Row(list) => {
                list.iter().collect()
            }
            Kind::Not(x) | Kind::Prefix(_, x) | Kind::Cast(x, _) | Kind::Is { operand: x, .. } => vec![x],
            Kind::Binary(_, x, y) | Kind::Element(x, y) => vec![x, y],
            Kind::Distinct { left, right, .. } | Kind::Quantified { left, right, .. } => vec![left, right],
            Kind::In { operand, list, .. } => std::iter::once(&**operand).chain(list).collect(),
            Kind::InQuery { operand, query, .. } => {
                std::iter::once(&**operand).chain(&query.columns).chain(&query.condition).collect()
            }
            Kind::Between { operand, low, high, .. } => vec![operand, low, high],
            Kind::Like { operand, pattern, escape, .. } => {
                [operand, pattern].into_iter().chain(escape).map(|node| &**node).collect()
            }
            Kind::Slice(x, from, to) => std::iter::once(x).chain(from).chain(to).map(|node| &**node).collect(),
        }
    }

    /// Number of nodes of the result when operands that are evaluated several times are written as often.
    pub(crate) fn written_out(&self) -> u32 {
        let times = |node: &Self, n: u32| node.size.saturating_mul(n);
        let all = |list: &mut dyn Iterator<Item = u32>| list.fold(1, u32::saturating_add);
        match &self.kind {
            Kind::Between { symmetric, operand, low, high, .. } => {
                let n = if *symmetric { 2 } else { 1 };
                all(&mut [times(operand, 2 * n), times(low, n), times(high, n)].into_iter())
            }
            Kind::In { operand, list, .. } => {
                // Constants are one array.
                let others = list.iter().filter(|item| !item.is_literal()).count();
                let n = u32::try_from(others + 1).unwrap_or(u32::MAX);
                all(&mut list.iter().map(|item| item.size).chain([times(operand, n)]))
            }
            _ => all(&mut self.children().into_iter().map(|child| child.size)),
        }
    }

    fn is_literal(&self) -> bool {
        matches!(self.kind, Kind::Number(_) | Kind::String(_) | Kind::Bool(_) | Kind::Null)
    }

    /// Whether a subquery is in it.
    pub(crate) fn has_query(&self) -> bool {
        matches!(self.kind, Kind::InQuery { .. }) || self.children().into_iter().any(Node::has_query)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Test {
    Null,
    True,
    False,
    Unknown,
}

/// `varchar(10)[]`: the canonical name, the modifiers in parentheses, and whether it is an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypeName {
    pub(crate) name: String,
    pub(crate) modifiers: Vec<i32>,
    pub(crate) array: bool,
}
