//! Operators by precedence.

use super::lex::{Lexed, Token, lex};
use super::tree::{Kind, Node, Test};
use super::{DEPTH_MAX, REPEATS_MAX, SIZE_MAX, TEXT_BYTES_MAX, USES_BYTES_MAX};
use crate::error::{Parsed, Refusal, refuse, refuse_oversized};

/// Precedences of `gram.y`, the loosest first.
pub(super) mod precedence {
    pub(in super::super) const OR: u8 = 1;
    pub(in super::super) const AND: u8 = 2;
    pub(in super::super) const NOT: u8 = 3;
    pub(in super::super) const IS: u8 = 4;
    pub(in super::super) const COMPARISON: u8 = 5;
    pub(in super::super) const LIKE: u8 = 6;
    pub(in super::super) const OTHER: u8 = 7;
    pub(in super::super) const ADD: u8 = 8;
    pub(in super::super) const MULTIPLY: u8 = 9;
    pub(in super::super) const POWER: u8 = 10;
    pub(in super::super) const AT: u8 = 11;
    pub(in super::super) const SIGN: u8 = 13;
    pub(in super::super) const CAST: u8 = 16;
}
use precedence::{ADD, AND, AT, CAST, COMPARISON, IS, LIKE, MULTIPLY, NOT, OR, OTHER, POWER, SIGN};

/// Words that begin the clauses which may follow a where clause in a statement.
const CLAUSES: [&str; 14] = [
    "group",
    "having",
    "window",
    "union",
    "intersect",
    "except",
    "order",
    "limit",
    "offset",
    "fetch",
    "for",
    "returning",
    "where",
    "from",
];

/// Operators with the precedence of LIKE, also after a NOT.
const LIKE_WORDS: [&str; 5] = ["in", "like", "ilike", "between", "similar"];

pub(super) struct Parser<'a> {
    tokens: Vec<Lexed>,
    next: usize,
    params: &'a [(u32, String)],
    /// Bytes that uses of parameters may still have.
    params_left: usize,
    /// Present depth of [`Parser::expression`].
    depth: u16,
}

/// The tree of a where clause; `$n` is replaced by its value.
pub(crate) fn parse(text: &str, params: &[(u32, String)]) -> Parsed<Node> {
    read(text, params).map_err(|refusal| Refusal { oversized: refusal.oversized || may_multiply(text), ..refusal })
}

/// Whether a text of which we have no tree may become much larger while it is read: each of these operators repeats its
/// operand.
fn may_multiply(text: &str) -> bool {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| ["between", "in"].iter().any(|repeats| word.eq_ignore_ascii_case(repeats))).count()
        > REPEATS_MAX
}

fn read(text: &str, params: &[(u32, String)]) -> Parsed<Node> {
    if text.len() > TEXT_BYTES_MAX {
        return refuse_oversized(0, format!("where clause is bigger than maximum size of {TEXT_BYTES_MAX} bytes"));
    }
    let mut parser = Parser { tokens: lex(text)?, next: 0, params, params_left: USES_BYTES_MAX, depth: 0 };
    let node = parser.expression(0)?;
    match parser.peek() {
        Token::End => Ok(node),
        Token::Punctuation(';') => refuse(parser.at(), "unescaped \";\" causing statement split"),
        Token::Word(word) if CLAUSES.contains(&word.as_str()) => {
            refuse(parser.at(), "malformed query ending with SQL clauses")
        }
        _ => parser.unexpected(),
    }
}

pub(super) fn node(at: usize, kind: Kind) -> Parsed<Node> {
    let mut node = Node { at, depth: 1, size: 1, kind };
    node.depth = 1 + node.children().iter().map(|child| child.depth).max().unwrap_or(0);
    node.size = node.written_out();
    if node.size > SIZE_MAX {
        return refuse_oversized(
            at,
            format!("where clause has more than {SIZE_MAX} parts, each counted as often as it is repeated"),
        );
    }
    if node.depth > DEPTH_MAX { too_deep(at) } else { Ok(node) }
}

fn too_deep<T>(at: usize) -> Parsed<T> {
    refuse_oversized(at, format!("where clause is nested deeper than {DEPTH_MAX} levels"))
}

impl Parser<'_> {
    pub(super) fn peek(&self) -> &Token {
        &self.tokens[self.next].token
    }

    pub(super) fn peek_after(&self, ahead: usize) -> &Token {
        &self.tokens[(self.next + ahead).min(self.tokens.len() - 1)].token
    }

    pub(super) fn at(&self) -> usize {
        self.tokens[self.next].at
    }

    pub(super) fn advance(&mut self) -> Token {
        let token = self.tokens[self.next].token.clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(w) if w == word)
    }

    pub(super) fn takes_word(&mut self, word: &str) -> bool {
        let is = self.is_word(word);
        if is {
            self.advance();
        }
        is
    }

    pub(super) fn expect_word(&mut self, word: &str) -> Parsed<()> {
        if self.takes_word(word) { Ok(()) } else { self.unexpected() }
    }

    pub(super) fn takes(&mut self, punctuation: char) -> bool {
        let is = *self.peek() == Token::Punctuation(punctuation);
        if is {
            self.advance();
        }
        is
    }

    pub(super) fn expect(&mut self, punctuation: char) -> Parsed<()> {
        if self.takes(punctuation) { Ok(()) } else { self.unexpected() }
    }

    pub(super) fn unexpected<T>(&self) -> Parsed<T> {
        let shown = match self.peek() {
            Token::End => return refuse(self.at(), "syntax error at end of input"),
            Token::Word(text)
            | Token::Quoted(text)
            | Token::String(text)
            | Token::Number(text)
            | Token::Operator(text) => text.clone(),
            Token::Parameter(number) => format!("${number}"),
            Token::Punctuation(char) => char.to_string(),
            Token::Cast => "::".into(),
        };
        refuse(self.at(), format!("syntax error at or near \"{shown}\""))
    }

    pub(super) fn parameter(&mut self, at: usize, number: u32) -> Parsed<Kind> {
        match self.params.iter().find(|(n, _)| *n == number) {
            Some((_, value)) if value.contains('\0') => refuse(at, "invalid byte sequence for encoding \"UTF8\": 0x00"),
            Some((_, value)) => match self.params_left.checked_sub(value.len()) {
                Some(left) => {
                    self.params_left = left;
                    Ok(Kind::String(value.clone()))
                }
                None => refuse_oversized(
                    at,
                    format!("parameters are used too often: together that is more than {USES_BYTES_MAX} bytes"),
                ),
            },
            None => refuse(at, format!("there is no parameter ${number}")),
        }
    }

    /// An expression whose operators bind at least as tightly as `loosest`.
    pub(super) fn expression(&mut self, loosest: u8) -> Parsed<Node> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return too_deep(self.at());
        }
        let mut left = self.prefix()?;
        while let Some((binds, negated)) = self.binding()? {
            if binds < loosest {
                break;
            }
            left = self.infix(left, binds, negated)?;
        }
        self.depth -= 1;
        Ok(left)
    }

    fn prefix(&mut self) -> Parsed<Node> {
        let at = self.at();
        match self.peek().clone() {
            Token::Word(word) if word == "not" => {
                self.advance();
                let operand = self.expression(NOT)?;
                node(at, Kind::Not(Box::new(operand)))
            }
            Token::Operator(sign) if sign == "-" || sign == "+" => {
                self.advance();
                let operand = self.expression(SIGN)?;
                // A number and its sign are one literal, or the smallest integer would not be one.
                if let (Kind::Number(number), "-") = (&operand.kind, sign.as_str()) {
                    let negated = number.strip_prefix('-').map_or_else(|| format!("-{number}"), str::to_owned);
                    return node(at, Kind::Number(negated));
                }
                node(at, Kind::Prefix(sign, Box::new(operand)))
            }
            Token::Operator(operator)
                if !matches!(operator.as_str(), "<" | ">" | "=" | "<=" | ">=" | "<>" | "*" | "/" | "%" | "^") =>
            {
                self.advance();
                let operand = self.expression(OTHER + 1)?;
                node(at, Kind::Prefix(operator, Box::new(operand)))
            }
            _ => self.primary(),
        }
    }

    /// How tightly the next token binds if it is an operator, and whether the operator is one after a NOT.
    fn binding(&self) -> Parsed<Option<(u8, bool)>> {
        let binds = match self.peek() {
            Token::Cast => CAST,
            Token::Operator(operator) => match operator.as_str() {
                "<" | ">" | "=" | "<=" | ">=" | "<>" => COMPARISON,
                "+" | "-" => ADD,
                "*" | "/" | "%" => MULTIPLY,
                "^" => POWER,
                _ => OTHER,
            },
            Token::Word(word) => match word.as_str() {
                "or" => OR,
                "and" => AND,
                "is" | "isnull" | "notnull" => IS,
                word if LIKE_WORDS.contains(&word) => LIKE,
                "not" if matches!(self.peek_after(1), Token::Word(w) if LIKE_WORDS.contains(&w.as_str())) => {
                    return Ok(Some((LIKE, true)));
                }
                "at" => AT,
                "collate" => return refuse(self.at(), "COLLATE is not supported"),
                "operator" => return refuse(self.at(), "OPERATOR() is not supported"),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        Ok(Some((binds, false)))
    }

    /// The next operator with its right operand.
    fn infix(&mut self, left: Node, binds: u8, negated: bool) -> Parsed<Node> {
        let at = self.at();
        if negated {
            self.advance();
        }
        let word = match self.advance() {
            Token::Operator(operator) => return self.binary(left, operator, binds),
            Token::Word(word) => word,
            _ => return self.cast(left, at),
        };
        match word.as_str() {
            "or" | "and" => self.chain(left, &word, binds),
            "is" => self.is(left, at),
            "isnull" => node(at, Kind::Is { not: false, test: Test::Null, operand: Box::new(left) }),
            "notnull" => node(at, Kind::Is { not: true, test: Test::Null, operand: Box::new(left) }),
            "in" => self.membership(left, at, negated),
            "like" | "ilike" => self.like(left, at, negated, word == "ilike"),
            "between" => self.between(left, at, negated),
            "at" => {
                self.expect_word("time")?;
                self.expect_word("zone")?;
                let zone = self.expression(AT + 1)?;
                node(at, Kind::Call("timezone".into(), vec![zone, left]))
            }
            _ => refuse(at, "SIMILAR TO is not supported"),
        }
    }

    /// The rest of a row of ANDs or ORs: one node for any number of operands.
    fn chain(&mut self, left: Node, word: &str, binds: u8) -> Parsed<Node> {
        let at = left.at;
        let mut list = vec![left, self.expression(binds + 1)?];
        while self.takes_word(word) {
            list.push(self.expression(binds + 1)?);
        }
        node(at, if word == "and" { Kind::And(list) } else { Kind::Or(list) })
    }

    fn binary(&mut self, left: Node, operator: String, binds: u8) -> Parsed<Node> {
        let at = self.tokens[self.next - 1].at;
        for (word, all) in [("any", false), ("some", false), ("all", true)] {
            if self.is_word(word) && *self.peek_after(1) == Token::Punctuation('(') {
                self.advance();
                self.advance();
                self.refuse_subquery()?;
                let right = self.expression(0)?;
                self.expect(')')?;
                return node(at, Kind::Quantified { operator, all, left: Box::new(left), right: Box::new(right) });
            }
        }
        let right = self.expression(binds + 1)?;
        if binds == COMPARISON {
            self.refuse_chained(COMPARISON)?;
        }
        node(at, Kind::Binary(operator, Box::new(left), Box::new(right)))
    }

    /// Comparisons and their like do not associate: `a < b < c` is an error.
    fn refuse_chained(&self, binds: u8) -> Parsed<()> {
        let chained = match self.peek() {
            Token::Operator(o) => binds == COMPARISON && matches!(o.as_str(), "<" | ">" | "=" | "<=" | ">=" | "<>"),
            Token::Word(w) => match w.as_str() {
                "is" | "isnull" | "notnull" => binds == IS,
                "not" => {
                    binds == LIKE && matches!(self.peek_after(1), Token::Word(w) if LIKE_WORDS.contains(&w.as_str()))
                }
                word => binds == LIKE && LIKE_WORDS.contains(&word),
            },
            _ => false,
        };
        if chained { self.unexpected() } else { Ok(()) }
    }

    fn is(&mut self, left: Node, at: usize) -> Parsed<Node> {
        let not = self.takes_word("not");
        let operand = Box::new(left);
        if self.takes_word("distinct") {
            self.expect_word("from")?;
            let right = Box::new(self.expression(IS + 1)?);
            self.refuse_chained(IS)?;
            return node(at, Kind::Distinct { not, left: operand, right });
        }
        let test = match self.peek() {
            Token::Word(word) => match word.as_str() {
                "null" => Test::Null,
                "true" => Test::True,
                "false" => Test::False,
                "unknown" => Test::Unknown,
                _ => return self.unexpected(),
            },
            _ => return self.unexpected(),
        };
        self.advance();
        node(at, Kind::Is { not, test, operand })
    }

    fn membership(&mut self, left: Node, at: usize, not: bool) -> Parsed<Node> {
        self.expect('(')?;
        if self.is_word("select") {
            let query = Box::new(self.select()?);
            return node(at, Kind::InQuery { not, operand: Box::new(left), query });
        }
        self.refuse_subquery()?;
        let list = self.list(')')?;
        if list.is_empty() {
            return refuse(at, "syntax error at or near \")\"");
        }
        node(at, Kind::In { not, operand: Box::new(left), list })
    }

    fn like(&mut self, left: Node, at: usize, not: bool, folded: bool) -> Parsed<Node> {
        for word in ["any", "some", "all"] {
            if self.is_word(word) && *self.peek_after(1) == Token::Punctuation('(') {
                let operator = ["~~", "~~*", "!~~", "!~~*"][usize::from(folded) + 2 * usize::from(not)];
                return self.binary(left, operator.into(), LIKE);
            }
        }
        let pattern = Box::new(self.expression(LIKE + 1)?);
        let escape = if self.takes_word("escape") { Some(Box::new(self.expression(LIKE + 1)?)) } else { None };
        self.refuse_chained(LIKE)?;
        node(at, Kind::Like { not, folded, operand: Box::new(left), pattern, escape })
    }

    fn between(&mut self, left: Node, at: usize, not: bool) -> Parsed<Node> {
        let symmetric = self.takes_word("symmetric");
        if !symmetric {
            self.takes_word("asymmetric");
        }
        let low = Box::new(self.expression(LIKE + 1)?);
        self.expect_word("and")?;
        let high = Box::new(self.expression(LIKE + 1)?);
        self.refuse_chained(LIKE)?;
        node(at, Kind::Between { not, symmetric, operand: Box::new(left), low, high })
    }
}
