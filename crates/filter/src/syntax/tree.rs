//! The tree of a where clause as written.

#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Bytes from the start of the text.
    pub(crate) at: usize,
    pub(crate) depth: u16,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Column {
        table: Option<String>,
        name: String,
    },
    Number(String),
    /// A quoted literal, or a parameter's value: its type is what stands around it.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Test {
    Null,
    True,
    False,
    Unknown,
}

/// `varchar(10)[]`: the canonical name, what stands in parentheses, and whether it is an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypeName {
    pub(crate) name: String,
    pub(crate) modifiers: Vec<i32>,
    pub(crate) array: bool,
}
