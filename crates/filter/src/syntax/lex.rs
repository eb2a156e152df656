//! Tokens, by the rules of Postgres's `scan.l` (`standard_conforming_strings` on).

use crate::error::{Parsed, refuse};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// An unquoted word, in lower case.
    Word(String),
    /// A quoted identifier.
    Quoted(String),
    String(String),
    Number(String),
    Parameter(u32),
    Operator(String),
    /// One of `( ) [ ] , . : ;`
    Punctuation(char),
    /// `::`
    Cast,
    End,
}

pub(super) struct Lexed {
    pub(super) token: Token,
    /// Bytes from the start of the text.
    pub(super) at: usize,
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

/// The tokens of a text; the last is [`Token::End`].
pub(super) fn lex(text: &str) -> Parsed<Vec<Lexed>> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blank()?;
        let at = lexer.at;
        let token = lexer.next()?;
        let last = token == Token::End;
        tokens.push(Lexed { token, at });
        if last {
            return Ok(tokens);
        }
    }
}

/// The text with other numbers for its parameters: `$1` becomes `$1` + `by`.
pub(crate) fn renumbered(text: &str, by: u32) -> Parsed<String> {
    let mut out = String::with_capacity(text.len() + 16);
    let mut done = 0;
    for Lexed { token, at } in lex(text)? {
        let Token::Parameter(number) = token else { continue };
        let Some(number) = number.checked_add(by) else {
            return refuse(at, format!("there is no parameter ${number}"));
        };
        out.push_str(&text[done..at]);
        out.push_str(&format!("${number}"));
        done = at + 1 + text[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
    }
    out.push_str(&text[done..]);
    Ok(out)
}

fn starts_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn continues_word(byte: u8) -> bool {
    starts_word(byte) || byte.is_ascii_digit() || byte == b'$'
}

fn is_operator(byte: u8) -> bool {
    b"+-*/<>=~!@#%^&|`?".contains(&byte)
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// The byte at this distance; 0 past the end.
    fn byte(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn take_while(&mut self, what: impl Fn(u8) -> bool) -> &str {
        let from = self.at;
        self.at += self.rest().bytes().take_while(|b| what(*b)).count();
        &self.text[from..self.at]
    }

    /// White space and comments; the latter nest.
    fn skip_blank(&mut self) -> Parsed<()> {
        loop {
            self.take_while(|b| b.is_ascii_whitespace() || b == 0x0b);
            if self.rest().starts_with("--") {
                self.take_while(|b| b != b'\n' && b != b'\r');
            } else if self.rest().starts_with("/*") {
                let from = self.at;
                let mut open = 0_u32;
                loop {
                    if self.rest().is_empty() {
                        return refuse(from, "unterminated /* comment");
                    } else if self.rest().starts_with("/*") {
                        (open, self.at) = (open + 1, self.at + 2);
                    } else if self.rest().starts_with("*/") {
                        (open, self.at) = (open - 1, self.at + 2);
                        if open == 0 {
                            break;
                        }
                    } else {
                        self.at += self.rest().chars().next().map_or(1, char::len_utf8);
                    }
                }
            } else {
                return Ok(());
            }
        }
    }

    fn next(&mut self) -> Parsed<Token> {
        let first = self.byte(0);
        match first {
            0 if self.rest().is_empty() => Ok(Token::End),
            b'\'' => self.string(0, false),
            b'e' | b'E' if self.byte(1) == b'\'' => self.string(1, true),
            b'b' | b'B' | b'x' | b'X' if self.byte(1) == b'\'' => {
                refuse(self.at, "bit string literals are not supported")
            }
            b'u' | b'U' if self.byte(1) == b'&' && matches!(self.byte(2), b'\'' | b'"') => {
                refuse(self.at, "U& literals are not supported")
            }
            b'"' => self.quoted(),
            b'$' if self.byte(1).is_ascii_digit() => {
                let at = self.at;
                self.at += 1;
                let digits = self.take_while(|b| b.is_ascii_digit()).to_owned();
                match digits.parse() {
                    Ok(number) => Ok(Token::Parameter(number)),
                    Err(_) => refuse(at, format!("there is no parameter ${digits}")),
                }
            }
            b'$' => self.dollar_quoted(),
            b'.' if self.byte(1).is_ascii_digit() => self.number(),
            b'0'..=b'9' => self.number(),
            b':' if self.byte(1) == b':' => {
                self.at += 2;
                Ok(Token::Cast)
            }
            b'(' | b')' | b'[' | b']' | b',' | b'.' | b':' | b';' => {
                self.at += 1;
                Ok(Token::Punctuation(char::from(first)))
            }
            _ if starts_word(first) => Ok(Token::Word(self.take_while(continues_word).to_ascii_lowercase())),
            _ if is_operator(first) => Ok(self.operator()),
            _ => {
                let char = self.rest().chars().next().unwrap_or(' ');
                refuse(self.at, format!("syntax error at or near \"{}\"", char.escape_debug()))
            }
        }
    }

    /// The longest run of operator characters that holds no comment; it ends in `+` or `-` only if it has a character
    /// that the standard's operators have not, so that `a=-1` is as expected.
    fn operator(&mut self) -> Token {
        let from = self.at;
        let mut run = self.take_while(is_operator).to_owned();
        if let Some(comment) = run.find("--").into_iter().chain(run.find("/*")).min() {
            run.truncate(comment);
        }
        while run.len() > 1
            && run.ends_with(['+', '-'])
            && !run[..run.len() - 1].contains(['~', '!', '@', '#', '%', '^', '&', '|', '`', '?'])
        {
            run.pop();
        }
        self.at = from + run.len();
        if run == "!=" {
            run = "<>".into();
        }
        Token::Operator(run)
    }

    fn number(&mut self) -> Parsed<Token> {
        let at = self.at;
        self.take_while(|b| b.is_ascii_digit());
        if self.byte(0) == b'.' && self.byte(1) != b'.' {
            self.at += 1;
            self.take_while(|b| b.is_ascii_digit());
        }
        if matches!(self.byte(0), b'e' | b'E') {
            let sign = usize::from(matches!(self.byte(1), b'+' | b'-'));
            if self.byte(1 + sign).is_ascii_digit() {
                self.at += 1 + sign;
                self.take_while(|b| b.is_ascii_digit());
            }
        }
        let number = self.text[at..self.at].to_owned();
        if starts_word(self.byte(0)) {
            let junk = self.take_while(continues_word).to_owned();
            return refuse(at, format!("trailing junk after numeric literal at or near \"{number}{junk}\""));
        }
        Ok(Token::Number(number))
    }

    fn quoted(&mut self) -> Parsed<Token> {
        let from = self.at;
        self.at += 1;
        let mut name = String::new();
        loop {
            name.push_str(self.take_while(|b| b != b'"'));
            if self.rest().is_empty() {
                return refuse(from, "unterminated quoted identifier");
            }
            self.at += 1;
            if self.byte(0) != b'"' {
                break;
            }
            name.push('"');
            self.at += 1;
        }
        if name.is_empty() { refuse(from, "zero-length delimited identifier") } else { Ok(Token::Quoted(name)) }
    }

    fn string(&mut self, prefix: usize, escapes: bool) -> Parsed<Token> {
        let from = self.at;
        self.at += prefix + 1;
        let mut bytes = Vec::new();
        loop {
            bytes.extend_from_slice(self.take_while(|b| b != b'\'' && !(escapes && b == b'\\')).as_bytes());
            if self.rest().is_empty() {
                return refuse(from, "unterminated quoted string");
            }
            if self.byte(0) == b'\\' {
                self.escape(&mut bytes)?;
                continue;
            }
            self.at += 1;
            if self.byte(0) != b'\'' {
                break;
            }
            bytes.push(b'\'');
            self.at += 1;
        }
        match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Ok(Token::String(text)),
            _ => refuse(from, "invalid byte sequence for encoding \"UTF8\""),
        }
    }

    /// A backslash escape in `E'…'`.
    fn escape(&mut self, out: &mut Vec<u8>) -> Parsed<()> {
        let at = self.at;
        let Some(what) = self.rest()[1..].chars().next() else { return refuse(at, "unterminated quoted string") };
        self.at += 1 + what.len_utf8();
        let radix = |lexer: &mut Self, most: usize, radix: u32| {
            let digits: String = lexer.rest().chars().take(most).take_while(|c| c.is_digit(radix)).collect();
            lexer.at += digits.len();
            (digits.len(), u32::from_str_radix(&digits, radix).unwrap_or(0))
        };
        match what {
            'b' => out.push(8),
            'f' => out.push(12),
            'n' => out.push(b'\n'),
            'r' => out.push(b'\r'),
            't' => out.push(b'\t'),
            '0'..='7' => {
                self.at -= 1;
                out.push(radix(self, 3, 8).1.to_le_bytes()[0]);
            }
            'x' => match radix(self, 2, 16) {
                (0, _) => out.push(b'x'),
                (_, byte) => out.push(byte.to_le_bytes()[0]),
            },
            'u' | 'U' => {
                let most = if what == 'u' { 4 } else { 8 };
                match radix(self, most, 16) {
                    (digits, code) if digits == most => match char::from_u32(code) {
                        Some(char) => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
                        None => return refuse(at, "invalid Unicode escape value"),
                    },
                    _ => return refuse(at, "invalid Unicode escape"),
                }
            }
            other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        Ok(())
    }

    /// `$tag$ … $tag$`
    fn dollar_quoted(&mut self) -> Parsed<Token> {
        let from = self.at;
        self.at += 1;
        let tag = self.take_while(|b| continues_word(b) && b != b'$').len();
        if self.byte(0) != b'$' || self.text.as_bytes()[from + 1].is_ascii_digit() {
            return refuse(from, "syntax error at or near \"$\"");
        }
        self.at += 1;
        let delimiter = &self.text[from..from + tag + 2];
        let Some(length) = self.rest().find(delimiter) else {
            return refuse(from, "unterminated dollar-quoted string");
        };
        let text = self.rest()[..length].to_owned();
        self.at += length + tag + 2;
        Ok(Token::String(text))
    }
}
