//! Names of types, in all their spellings.

use super::lex::Token;
use super::parse::Parser;
use super::tree::TypeName;
use crate::error::{Parsed, refuse};

/// The canonical name of a type named by a single word, as in the catalogue and error messages.
fn canonical(word: &str) -> &str {
    match word {
        "int" | "int4" => "integer",
        "int2" => "smallint",
        "int8" => "bigint",
        "bool" => "boolean",
        "float4" => "real",
        "float8" | "float" => "double precision",
        "decimal" | "dec" => "numeric",
        "char" | "bpchar" => "character",
        "varchar" => "character varying",
        "timestamptz" => "timestamp with time zone",
        "timestamp" => "timestamp without time zone",
        "timetz" => "time with time zone",
        "time" => "time without time zone",
        other => other,
    }
}

impl Parser<'_> {
    /// Number of tokens of a type's name in front of a string literal (`date '2020-01-01'`), if one begins here.
    pub(super) fn typed_literal(&self) -> bool {
        let Token::Word(word) = self.peek() else { return false };
        match word.as_str() {
            "double" => {
                matches!(self.peek_after(1), Token::Word(w) if w == "precision")
                    && matches!(self.peek_after(2), Token::String(_))
            }
            "timestamp" | "time" => {
                matches!(self.peek_after(1), Token::String(_))
                    || matches!(self.peek_after(1), Token::Word(w) if w == "with" || w == "without")
                        && matches!(self.peek_after(2), Token::Word(w) if w == "time")
            }
            "not" | "and" | "or" => false,
            _ => matches!(self.peek_after(1), Token::String(_)),
        }
    }

    pub(super) fn type_name(&mut self) -> Parsed<TypeName> {
        let at = self.at();
        let word = match self.advance() {
            Token::Word(word) if word == "setof" => return refuse(at, "syntax error at or near \"setof\""),
            Token::Word(word) => word,
            Token::Quoted(name) => match name.as_str() {
                // The one-byte type, not character(1).
                "char" => "\"char\"".to_owned(),
                _ => name,
            },
            _ => return refuse(at, "syntax error in the name of a type"),
        };
        let word = if word == "pg_catalog" && self.takes('.') {
            match self.advance() {
                Token::Word(word) | Token::Quoted(word) => word,
                _ => return refuse(at, "syntax error in the name of a type"),
            }
        } else {
            word
        };
        let mut name = canonical(&word).to_owned();
        match word.as_str() {
            "double" => {
                self.expect_word("precision")?;
                name = "double precision".into();
            }
            "character" | "char" | "nchar" if self.takes_word("varying") => name = "character varying".into(),
            _ => {}
        }
        let mut modifiers = Vec::new();
        if self.takes('(') {
            loop {
                let at = self.at();
                match self.advance() {
                    Token::Number(number) if number.parse::<i32>().is_ok() => modifiers.extend(number.parse::<i32>()),
                    _ => return refuse(at, "type modifiers must be simple constants"),
                }
                if !self.takes(',') {
                    break;
                }
            }
            self.expect(')')?;
        }
        if word == "char" || word == "character" && name == "character" {
            // Without a length a `character` has one character; `bpchar` is unlimited.
            if modifiers.is_empty() {
                modifiers.push(1);
            }
        }
        if matches!(word.as_str(), "timestamp" | "time") && (self.is_word("with") || self.is_word("without")) {
            let zoned = self.takes_word("with");
            if !zoned {
                self.expect_word("without")?;
            }
            self.expect_word("time")?;
            self.expect_word("zone")?;
            name = format!("{word} {} time zone", if zoned { "with" } else { "without" });
        }
        let mut array = false;
        while *self.peek() == Token::Punctuation('[') {
            self.advance();
            if matches!(self.peek(), Token::Number(_)) {
                self.advance();
            }
            self.expect(']')?;
            array = true;
        }
        if self.takes_word("array") {
            array = true;
        }
        Ok(TypeName { name, modifiers, array })
    }
}
