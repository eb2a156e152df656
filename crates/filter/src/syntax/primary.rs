//! Operands: columns, literals, calls, parentheses, and their suffixes.

use super::lex::Token;
use super::parse::{Parser, node};
use super::tree::{Kind, Node};
use crate::error::{Parsed, refuse};

/// Words that Postgres reserves: they name no column unless quoted.
pub(super) const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "current_catalog",
    "current_date",
    "current_role",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "grant",
    "group",
    "having",
    "in",
    "initially",
    "intersect",
    "into",
    "lateral",
    "leading",
    "limit",
    "localtime",
    "localtimestamp",
    "not",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "placing",
    "primary",
    "references",
    "returning",
    "select",
    "session_user",
    "some",
    "symmetric",
    "table",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "variadic",
    "when",
    "where",
    "window",
    "with",
];

impl Parser<'_> {
    pub(super) fn primary(&mut self) -> Parsed<Node> {
        let at = self.at();
        let kind = match self.peek().clone() {
            Token::Number(number) => {
                self.advance();
                Kind::Number(number)
            }
            Token::String(text) => {
                self.advance();
                Kind::String(text)
            }
            Token::Parameter(number) => {
                self.advance();
                let value = node(at, self.parameter(at, number)?)?;
                return self.subscripts(value);
            }
            Token::Punctuation('(') => {
                self.advance();
                self.refuse_subquery()?;
                let mut list = self.list(')')?;
                let inner = match list.len() {
                    0 => return refuse(at, "syntax error at or near \")\""),
                    1 => list.remove(0),
                    _ => node(at, Kind::Row(list))?,
                };
                return self.subscripts(inner);
            }
            Token::Quoted(_) => return self.column(),
            Token::Word(word) => return self.word(word),
            _ => return self.unexpected(),
        };
        node(at, kind)
    }

    fn word(&mut self, word: String) -> Parsed<Node> {
        let at = self.at();
        if self.typed_literal() {
            let name = self.type_name()?;
            return match self.advance() {
                Token::String(text) => {
                    let text = node(at, Kind::String(text))?;
                    node(at, Kind::Cast(Box::new(text), name))
                }
                _ => refuse(at, format!("syntax error at or near \"{word}\"")),
            };
        }
        let called = *self.peek_after(1) == Token::Punctuation('(');
        match word.as_str() {
            "true" | "false" => {
                self.advance();
                node(at, Kind::Bool(word == "true"))
            }
            "null" => {
                self.advance();
                node(at, Kind::Null)
            }
            "case" => refuse(at, "CASE is not supported"),
            "exists" if called => refuse(at, "EXISTS is not supported"),
            "cast" if called => {
                self.advance();
                self.advance();
                let operand = Box::new(self.expression(0)?);
                self.expect_word("as")?;
                let name = self.type_name()?;
                self.expect(')')?;
                node(at, Kind::Cast(operand, name))
            }
            "array" if *self.peek_after(1) == Token::Punctuation('[') => {
                self.advance();
                self.array()
            }
            "row" if called => {
                self.advance();
                self.advance();
                let list = self.list(')')?;
                node(at, Kind::Row(list))
            }
            "array" if called => refuse(at, "subqueries are not supported here"),
            "current_date" | "current_time" | "current_timestamp" | "localtime" | "localtimestamp" | "current_user"
            | "session_user" | "user" | "current_role" | "current_catalog" => {
                refuse(at, format!("unsupported function: {word}"))
            }
            _ if RESERVED.contains(&word.as_str()) => self.unexpected(),
            _ if called => {
                self.advance();
                self.advance();
                if *self.peek() == Token::Operator("*".into()) || self.is_word("distinct") {
                    return refuse(at, format!("aggregates are not supported: {word}"));
                }
                let list = self.list(')')?;
                for clause in ["over", "filter", "within"] {
                    if self.is_word(clause) {
                        return refuse(self.at(), "window and aggregate functions are not supported");
                    }
                }
                node(at, Kind::Call(word, list))
            }
            _ => self.column(),
        }
    }

    /// `name`, `table.name` or `schema.table.name`, and subscripts.
    pub(super) fn column(&mut self) -> Parsed<Node> {
        let at = self.at();
        let mut names = Vec::new();
        loop {
            match self.peek().clone() {
                Token::Word(name) | Token::Quoted(name) => names.push(name),
                _ => return self.unexpected(),
            }
            self.advance();
            if !self.takes('.') {
                break;
            }
        }
        if *self.peek() == Token::Punctuation('(') {
            return refuse(at, format!("unsupported function: {}", names.join(".")));
        }
        let name = names.pop().unwrap_or_default();
        let column = node(at, Kind::Column { table: names.pop(), name })?;
        self.subscripts(column)
    }

    /// `ARRAY[…]`; nested ones without the word.
    fn array(&mut self) -> Parsed<Node> {
        let at = self.at();
        self.expect('[')?;
        let mut list = Vec::new();
        if !self.takes(']') {
            loop {
                if *self.peek() == Token::Punctuation('[') {
                    return refuse(self.at(), "arrays of more than one dimension are not supported");
                }
                list.push(self.expression(0)?);
                if !self.takes(',') {
                    break;
                }
            }
            self.expect(']')?;
        }
        node(at, Kind::Array(list))
    }

    fn subscripts(&mut self, mut inner: Node) -> Parsed<Node> {
        loop {
            let at = self.at();
            if *self.peek() == Token::Punctuation('.') {
                return refuse(at, "fields of composite values are not supported");
            }
            if !self.takes('[') {
                return Ok(inner);
            }
            let bound = |parser: &mut Self, end: char| {
                if *parser.peek() == Token::Punctuation(end) {
                    Ok(None)
                } else {
                    parser.expression(0).map(Box::new).map(Some)
                }
            };
            let from = bound(self, ':')?;
            let kind = match from {
                Some(index) if self.takes(']') => Kind::Element(Box::new(inner), index),
                from => {
                    self.expect(':')?;
                    let to = bound(self, ']')?;
                    self.expect(']')?;
                    Kind::Slice(Box::new(inner), from, to)
                }
            };
            inner = node(at, kind)?;
        }
    }

    /// `operand::type`; the colons are read.
    pub(super) fn cast(&mut self, operand: Node, at: usize) -> Parsed<Node> {
        let name = self.type_name()?;
        node(at, Kind::Cast(Box::new(operand), name))
    }

    /// Expressions between commas, up to the closing character.
    pub(super) fn list(&mut self, end: char) -> Parsed<Vec<Node>> {
        let mut list = Vec::new();
        if self.takes(end) {
            return Ok(list);
        }
        loop {
            list.push(self.expression(0)?);
            if !self.takes(',') {
                self.expect(end)?;
                return Ok(list);
            }
        }
    }

    pub(super) fn refuse_subquery(&self) -> Parsed<()> {
        if ["select", "with", "values", "table"].iter().any(|word| self.is_word(word)) {
            return refuse(self.at(), "subqueries are not supported here");
        }
        Ok(())
    }
}
