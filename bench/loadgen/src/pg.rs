//! Just enough of Postgres' protocol for a writer and its yardsticks: simple queries, COPY out, a replication stream.
//!
//! Blocking, one thread each, and no authentication: the cluster is a private one that trusts loopback.

use anyhow::{Context, bail};
use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::str::FromStr;

/// `postgres://USER@HOST:PORT/DATABASE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    user: String,
    host: String,
    port: u16,
    database: String,
}

impl FromStr for Url {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let rest = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"));
        let (who, rest) =
            rest.and_then(|rest| rest.split_once('@')).context("not postgres://USER@HOST:PORT/DATABASE")?;
        let (host, database) = rest.split_once('/').context("no database")?;
        let (host, port) = host.split_once(':').unwrap_or((host, "5432"));
        let user = who.split_once(':').map_or(who, |(user, _)| user);
        Ok(Self { user: user.into(), host: host.into(), port: port.parse()?, database: database.into() })
    }
}

pub(crate) struct Pg {
    socket: BufReader<TcpStream>,
    body: Vec<u8>,
}

/// Columns of a row in text form.
pub(crate) type Row = Vec<Option<String>>;

const BUFFER_BYTES: usize = 64 << 10;

impl Pg {
    pub(crate) fn connect(url: &Url) -> anyhow::Result<Self> {
        Self::start(url, &[])
    }

    /// A connection that can replicate the database's changes.
    pub(crate) fn replication(url: &Url) -> anyhow::Result<Self> {
        Self::start(url, &["replication", "database"])
    }

    fn start(url: &Url, more: &[&str]) -> anyhow::Result<Self> {
        let socket =
            TcpStream::connect((url.host.as_str(), url.port)).with_context(|| format!("no Postgres at {url:?}"))?;
        socket.set_nodelay(true)?;
        let mut startup = 196_608_u32.to_be_bytes().to_vec();
        for word in ["user", &url.user, "database", &url.database].iter().chain(more) {
            startup.extend_from_slice(word.as_bytes());
            startup.push(0);
        }
        startup.push(0);
        let mut pg = Self { socket: BufReader::with_capacity(BUFFER_BYTES, socket), body: Vec::new() };
        pg.send(None, &startup)?;
        loop {
            match pg.receive()? {
                b'R' if pg.body[..] != [0; 4] => bail!("Postgres asks for a password: only `trust` is known here"),
                b'Z' => return Ok(pg),
                _ => {}
            }
        }
    }

    fn send(&mut self, tag: Option<u8>, body: &[u8]) -> anyhow::Result<()> {
        let mut message: Vec<u8> = tag.into_iter().collect();
        message.extend_from_slice(&u32::try_from(body.len() + 4)?.to_be_bytes());
        message.extend_from_slice(body);
        Ok(self.socket.get_mut().write_all(&message)?)
    }

    /// The tag of the next message; its content is in `body`. Errors of the server are errors.
    fn receive(&mut self) -> anyhow::Result<u8> {
        let mut head = [0; 5];
        self.socket.read_exact(&mut head).context("Postgres has closed the connection")?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        self.body.resize(length.checked_sub(4).context("a message shorter than its head")?, 0);
        self.socket.read_exact(&mut self.body)?;
        if head[0] == b'E' {
            let text: Vec<_> = self.body.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
            bail!("Postgres: {}", text.join(" "));
        }
        Ok(head[0])
    }

    fn ask(&mut self, sql: &str) -> anyhow::Result<()> {
        self.send(Some(b'Q'), &[sql.as_bytes(), b"\0"].concat())
    }

    /// Sends one or more statements and waits until all are done; rows of all of them.
    pub(crate) fn query(&mut self, sql: &str) -> anyhow::Result<Vec<Row>> {
        self.ask(sql).with_context(|| sql.to_owned())?;
        let mut rows = Vec::new();
        loop {
            match self.receive().with_context(|| sql.to_owned())? {
                b'D' => rows.push(row(&self.body).context("a row that cannot be read")?),
                b'Z' => return Ok(rows),
                _ => {}
            }
        }
    }

    /// The first column of the first row.
    pub(crate) fn value(&mut self, sql: &str) -> anyhow::Result<Option<String>> {
        Ok(self.query(sql)?.into_iter().next().and_then(|row| row.into_iter().next()).flatten())
    }

    /// Runs a COPY TO STDOUT: rows and bytes that came.
    pub(crate) fn copy(&mut self, sql: &str) -> anyhow::Result<(u64, u64)> {
        self.ask(sql)?;
        let (mut rows, mut bytes) = (0, 0);
        loop {
            match self.receive().with_context(|| sql.to_owned())? {
                b'd' => (rows, bytes) = (rows + 1, bytes + self.body.len() as u64),
                b'Z' => return Ok((rows, bytes)),
                _ => {}
            }
        }
    }

    /// Begins a replication stream, which [`Pg::change`] then reads.
    pub(crate) fn stream(&mut self, sql: &str) -> anyhow::Result<()> {
        self.ask(sql)?;
        while self.receive()? != b'W' {}
        Ok(())
    }

    /// The next pgoutput message of a replication stream.
    pub(crate) fn change(&mut self) -> anyhow::Result<&[u8]> {
        loop {
            // `w`, three positions or times of 8 bytes, then the plugin's message.
            if self.receive()? == b'd' && self.body.first() == Some(&b'w') {
                return self.body.get(25..).context("a change without content");
            }
        }
    }

    /// A handle that ends a read of another thread.
    pub(crate) fn plug(&self) -> anyhow::Result<Plug> {
        Ok(Plug(self.socket.get_ref().try_clone()?))
    }
}

/// Ends a connection when it is pulled.
pub(crate) struct Plug(TcpStream);

impl Plug {
    pub(crate) fn pull(&self) {
        // The socket may be closed already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

fn row(body: &[u8]) -> Option<Row> {
    let (columns, mut rest) = body.split_first_chunk::<2>()?;
    (0..u16::from_be_bytes(*columns))
        .map(|_| {
            let (length, after) = rest.split_first_chunk::<4>()?;
            let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
                rest = after;
                return Some(None);
            };
            let (value, after) = after.split_at_checked(length)?;
            rest = after;
            Some(Some(String::from_utf8_lossy(value).into_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_url_has_a_user_a_place_and_a_database() {
        let url: Url = "postgresql://me:secret@127.0.0.1:5433/shop".parse().unwrap();
        let expected = Url { user: "me".into(), host: "127.0.0.1".into(), port: 5433, database: "shop".into() };
        assert_eq!(url, expected);
        assert!("127.0.0.1:5433".parse::<Url>().is_err());
    }

    #[test]
    fn rows_have_values_and_nulls_and_garbage_is_none() {
        let body = b"\0\x02\0\0\0\x02hi\xff\xff\xff\xff";
        assert_eq!(row(body), Some(vec![Some("hi".into()), None]));
        for cut in 0..body.len() {
            assert_eq!(row(&body[..cut]), None, "{cut}");
        }
    }
}
