//! Subqueries: `SELECT columns FROM table WHERE condition`, and nothing else that a SELECT may have.

use super::lex::Token;
use super::parse::Parser;
use super::primary::RESERVED;
use super::tree::{Kind, Node, Select};
use crate::error::{Parsed, refuse};

const FORM: &str = "a subquery must be SELECT columns FROM one table, with WHERE or without";

impl Parser<'_> {
    /// The subquery in the parentheses after IN, and the closing one.
    pub(super) fn select(&mut self) -> Parsed<Select> {
        let at = self.at();
        self.expect_word("select")?;
        if self.is_word("distinct") {
            return refuse(self.at(), FORM);
        }
        self.takes_word("all");
        let mut columns = Vec::new();
        loop {
            columns.push(self.selected()?);
            if !self.takes(',') {
                break;
            }
        }
        if !self.takes_word("from") {
            return refuse(self.at(), FORM);
        }
        self.takes_word("only");
        let mut table = self.name()?;
        let mut schema = None;
        while self.takes('.') {
            schema = Some(std::mem::replace(&mut table, self.name()?));
        }
        let alias = match self.peek().clone() {
            Token::Word(word) if word == "as" => {
                self.advance();
                Some(self.name()?)
            }
            Token::Quoted(_) => Some(self.name()?),
            Token::Word(word) if !RESERVED.contains(&word.as_str()) && !JOINS.contains(&word.as_str()) => {
                Some(self.name()?)
            }
            _ => None,
        };
        let condition = if self.takes_word("where") { Some(self.expression(0)?) } else { None };
        if !self.takes(')') {
            return refuse(self.at(), FORM);
        }
        Ok(Select { at, columns, schema, table, alias, condition })
    }

    fn selected(&mut self) -> Parsed<Node> {
        let at = self.at();
        if !matches!(self.peek(), Token::Word(_) | Token::Quoted(_)) {
            return refuse(at, "a subquery can only select columns");
        }
        let column = self.column()?;
        match column.kind {
            Kind::Column { .. } => Ok(column),
            _ => refuse(at, "a subquery can only select columns"),
        }
    }

    fn name(&mut self) -> Parsed<String> {
        match self.peek().clone() {
            Token::Quoted(name) => {
                self.advance();
                Ok(name)
            }
            Token::Word(word) if !RESERVED.contains(&word.as_str()) => {
                self.advance();
                Ok(word)
            }
            _ => self.unexpected(),
        }
    }
}

/// Words that continue the FROM clause, and are no alias.
const JOINS: [&str; 9] = ["join", "inner", "left", "right", "full", "cross", "natural", "tablesample", "as"];
