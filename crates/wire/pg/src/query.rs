//! Questions with an answer that fits into memory.

use super::conn::{Conn, Step};
use super::error::Error;
use super::rows::{self, Column, ResultSet};
use fallible_iterator::FallibleIterator;
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;

const COPY: &str = "COPY gives no result: use copy_out";

/// Parameters and columns of a statement, by the server's own analysis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// The types of `$1`, `$2`, … (oid).
    pub parameters: Vec<u32>,
    /// Empty if it returns no rows.
    pub columns: Vec<Column>,
}

/// Protocol of a query.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Simple,
    Extended,
}

impl Conn {
    /// Runs any number of statements, separated by `;`, in one transaction unless one is open. Returns one result for
    /// each.
    pub fn simple(&mut self, sql: &str) -> Result<Vec<ResultSet>, Error> {
        self.check()?;
        frontend::query(sql, self.out()).map_err(refused)?;
        self.flush()?;
        self.collect(Manner::Simple)
    }

    /// Runs one statement; `parameters` are `$1`, `$2`, … as text, `None` is NULL.
    pub fn query(&mut self, sql: &str, parameters: &[Option<&str>]) -> Result<ResultSet, Error> {
        self.check()?;
        if parameters.len() > usize::from(u16::MAX) {
            return Err(Error::Refused("more than 65535 parameters"));
        }
        let out = self.out();
        frontend::parse("", sql, [], out).map_err(refused)?;
        let value = |value: &Option<&str>, out: &mut bytes::BytesMut| match value {
            Some(text) => {
                out.extend_from_slice(text.as_bytes());
                Ok(IsNull::No)
            }
            None => Ok(IsNull::Yes),
        };
        frontend::bind("", "", [], parameters, value, [], out)
            .map_err(|_| Error::Refused("parameters that fit no message"))?;
        frontend::describe(b'P', "", out).map_err(refused)?;
        frontend::execute("", 0, out).map_err(refused)?;
        frontend::sync(out);
        self.flush()?;
        Ok(self.collect(Manner::Extended)?.pop().unwrap_or_default())
    }

    /// Lets the server parse a statement, and returns its parameters and columns; nothing runs. `types`: those of the
    /// first parameters (oid), where 0 leaves the choice to the server.
    pub fn describe(&mut self, sql: &str, types: &[u32]) -> Result<Statement, Error> {
        self.check()?;
        if types.len() > usize::from(u16::MAX) {
            return Err(Error::Refused("more than 65535 parameters"));
        }
        let out = self.out();
        frontend::parse("", sql, types.iter().copied(), out).map_err(refused)?;
        frontend::describe(b'S', "", out).map_err(refused)?;
        frontend::sync(out);
        self.flush()?;
        let (mut statement, mut failed) = (Statement::default(), None);
        loop {
            match self.step()? {
                Step::Error(error) => failed = failed.or(Some(error)),
                Step::Frame(frame) => match frame.tag {
                    b'1' | b'n' => {}
                    b't' => match self.message(&frame)? {
                        Message::ParameterDescription(body) => match body.parameters().collect() {
                            Ok(parameters) => statement.parameters = parameters,
                            Err(_) => return Err(self.unexpected("parameters that cannot be read")),
                        },
                        _ => return Err(self.unexpected("parameters that are none")),
                    },
                    b'T' => {
                        let columns = rows::columns(&self.receiver, &frame);
                        statement.columns = columns.map_err(|error| self.fail(error))?;
                    }
                    b'Z' => {
                        self.set_status(&frame)?;
                        return failed.map_or(Ok(statement), |error| Err(Error::Server(error)));
                    }
                    _ => return Err(self.unexpected("no description of a statement")),
                },
            }
        }
    }

    /// Reads everything up to `ReadyForQuery`.
    fn collect(&mut self, manner: Manner) -> Result<Vec<ResultSet>, Error> {
        let max = self.config().result_bytes_max;
        let (mut done, mut bytes) = (Vec::new(), 0);
        let mut set = ResultSet::default();
        let mut failed: Option<Error> = None;
        loop {
            let frame = match self.step()? {
                Step::Frame(frame) => frame,
                Step::Error(error) => {
                    failed.get_or_insert(Error::Server(error));
                    continue;
                }
            };
            match frame.tag {
                b'T' => {
                    set.columns = rows::columns(&self.receiver, &frame).map_err(|error| self.fail(error))?;
                }
                b'D' if failed.is_some() => {}
                b'D' => {
                    let pushed = set.push(self.receiver.body(&frame));
                    pushed.map_err(|error| self.fail(error))?;
                    if bytes + set.bytes() > max {
                        return Err(self.fail(Error::TooLarge { what: "a result", max }));
                    }
                }
                b'C' => {
                    let Message::CommandComplete(body) = self.message(&frame)? else {
                        return Err(self.unexpected("an end that is none"));
                    };
                    set.command = body.tag().unwrap_or_default().to_owned();
                    bytes += set.bytes() + size_of::<ResultSet>();
                    if bytes > max {
                        return Err(self.fail(Error::TooLarge { what: "results", max }));
                    }
                    done.push(std::mem::take(&mut set));
                }
                b'I' => done.push(ResultSet::default()),
                b'1' | b'2' | b'n' if manner == Manner::Extended => {}
                b'H' => {
                    failed.get_or_insert(Error::Refused(COPY));
                }
                b'd' | b'c' if failed.is_some() => {}
                b'G' => {
                    failed.get_or_insert(Error::Refused(COPY));
                    let out = self.out();
                    frontend::copy_fail("no data comes from here", out).map_err(refused)?;
                    // After our CopyFail the server ignores the Sync that the query sent along.
                    if manner == Manner::Extended {
                        frontend::sync(out);
                    }
                    self.flush()?;
                }
                b'Z' => {
                    self.set_status(&frame)?;
                    return failed.map_or(Ok(done), Err);
                }
                _ => return Err(self.unexpected("no answer to a query")),
            }
        }
    }
}

/// The only errors of encoding our messages.
pub(super) fn refused(_: std::io::Error) -> Error {
    Error::Refused("a zero byte in a text, or a text of more than 2 GiB")
}
