//! `COPY … TO STDOUT`.

use super::conn::{Conn, Step};
use super::error::Error;
use super::query::refused;
use postgres_protocol::message::frontend;

/// The data of one `COPY … TO STDOUT`, as it comes. In text format each item is a row with its line feed.
///
/// Dropping it before its end poisons the connection: the rest could be of any size.
#[derive(Debug)]
pub struct CopyOut<'a> {
    conn: &'a mut Conn,
    columns: usize,
    binary: bool,
    done: bool,
}

impl Conn {
    /// Runs `sql`, which must be one `COPY … TO STDOUT`.
    pub fn copy_out(&mut self, sql: &str) -> Result<CopyOut<'_>, Error> {
        self.check()?;
        frontend::query(sql, self.out()).map_err(refused)?;
        self.flush()?;
        match self.step()? {
            Step::Error(error) => {
                self.skip_to_ready()?;
                Err(Error::Server(error))
            }
            Step::Frame(frame) => match (frame.tag, self.receiver.body(&frame)) {
                (b'H', &[format, high, low, ..]) => {
                    let columns = usize::from(u16::from_be_bytes([high, low]));
                    Ok(CopyOut { conn: self, columns, binary: format != 0, done: false })
                }
                (b'T' | b'C' | b'I', _) => {
                    self.skip_to_ready()?;
                    Err(Error::Refused("not a COPY TO STDOUT"))
                }
                (b'G', _) => {
                    frontend::copy_fail("no data comes from here", self.out()).map_err(refused)?;
                    self.flush()?;
                    self.skip_to_ready()?;
                    Err(Error::Refused("not a COPY TO STDOUT"))
                }
                _ => Err(self.unexpected("no answer to a COPY")),
            },
        }
    }
}

impl CopyOut<'_> {
    /// Number of columns of each row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Whether rows come in the binary format.
    pub fn is_binary(&self) -> bool {
        self.binary
    }

    /// The next item, in the receive buffer; `None` at the end. An error ends the copy.
    #[expect(
        clippy::should_implement_trait,
        reason = "an item lives until the next is asked for, which no Iterator can say"
    )]
    pub fn next(&mut self) -> Result<Option<&[u8]>, Error> {
        if self.done {
            return Ok(None);
        }
        match self.conn.step()? {
            Step::Frame(frame) if frame.tag == b'd' => Ok(Some(self.conn.receiver.body(&frame))),
            Step::Frame(frame) if frame.tag == b'c' => {
                let end = self.end();
                end.map(|()| None)
            }
            Step::Frame(_) => Err(self.conn.unexpected("no data of a COPY")),
            Step::Error(error) => {
                self.done = true;
                self.conn.skip_to_ready()?;
                Err(Error::Server(error))
            }
        }
    }

    /// An error may still come between the last row and the end.
    fn end(&mut self) -> Result<(), Error> {
        let mut failed = None;
        loop {
            match self.conn.step()? {
                Step::Frame(frame) if frame.tag == b'C' => {}
                Step::Frame(frame) if frame.tag == b'Z' => {
                    self.conn.set_status(&frame)?;
                    self.done = true;
                    return failed.map_or(Ok(()), |error| Err(Error::Server(error)));
                }
                Step::Frame(_) => return Err(self.conn.unexpected("no end of a COPY")),
                Step::Error(error) => failed = Some(error),
            }
        }
    }
}

impl Drop for CopyOut<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.conn.link.break_off();
        }
    }
}
