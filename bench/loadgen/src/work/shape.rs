//! Clients of shapes: each fetches one shape after another until it is up to date, or one, which it then follows live.

use crate::drive::{Nanos, Verdict, Work};
use crate::http::{header, request};
use clap::Args;
use memchr::memmem::Finder;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The shapes of a load: a shape's number replaces `{i}` in the predicate.
#[derive(Args, Clone, Debug)]
pub(crate) struct Definition {
    #[arg(long, default_value = "items")]
    pub(crate) table: String,
    /// The shapes' predicate, with `{i}` for the shape's number; by default all rows.
    #[arg(long = "where")]
    pub(crate) predicate: Option<String>,
    /// The number of the first one.
    #[arg(long, default_value_t = 0)]
    pub(crate) from: u64,
    /// Number of different shapes.
    #[arg(long, default_value_t = 1)]
    pub(crate) shapes: u64,
    /// A client that is refused with 503 retries after `retry-after`.
    #[arg(long)]
    pub(crate) retry: bool,
}

impl Definition {
    fn path(&self, job: u64) -> String {
        let mut path = format!("/v1/shape?table={}", self.table);
        if let Some(predicate) = &self.predicate {
            let number = (self.from + job % self.shapes.max(1)).to_string();
            path.push_str("&where=");
            for byte in predicate.replace("{i}", &number).bytes() {
                if byte.is_ascii_alphanumeric() {
                    path.push(char::from(byte));
                } else {
                    // Writing to a string cannot fail.
                    let _ = write!(path, "%{byte:02X}");
                }
            }
        }
        path
    }
}

/// Each operation in an answer has this once; the content that is measured with does not.
const OPERATION: &[u8] = b"\"operation\"";

/// Counts operations in a text that comes in pieces.
#[derive(Debug)]
struct Counter {
    finder: Finder<'static>,
}

/// The end of the last piece, which may be a beginning.
type Rest = Vec<u8>;

impl Counter {
    fn count(&self, rest: &mut Rest, piece: &[u8]) -> u64 {
        // The kept bytes are too short for a whole match, so none is counted twice.
        let keep = OPERATION.len() - 1;
        rest.extend_from_slice(&piece[..piece.len().min(keep)]);
        let mut count = self.finder.find_iter(&rest[..]).count() as u64;
        if piece.len() > keep {
            count += self.finder.find_iter(piece).count() as u64;
            rest.clear();
            rest.extend_from_slice(&piece[piece.len() - keep..]);
        } else {
            rest.drain(..rest.len().saturating_sub(keep));
        }
        count
    }
}

/// Clients report events here, and the writer waits for them.
#[derive(Debug, Default)]
pub(crate) struct Board {
    /// Clients that are up to date for the first time.
    pub(crate) ready: AtomicU64,
    /// Clients that are not, and never will be.
    pub(crate) refused: AtomicU64,
    arrivals: Mutex<Vec<Nanos>>,
    came: Condvar,
    wanted: AtomicU64,
}

impl Board {
    /// Begins a new event, which this many clients will report.
    pub(crate) fn begin(&self, wanted: u64) {
        self.wanted.store(wanted, Ordering::Release);
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn arrive(&self, now: Nanos) {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.push(now);
        if arrivals.len() as u64 >= self.wanted.load(Ordering::Acquire) {
            self.came.notify_all();
        }
    }

    /// The time at which each client received the event; fewer than expected if `patience` ends.
    pub(crate) fn wait(&self, patience: Duration) -> Vec<Nanos> {
        let wanted = self.wanted.load(Ordering::Acquire);
        let arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = |arrivals: &mut Vec<Nanos>| (arrivals.len() as u64) < wanted;
        let (mut arrivals, _) =
            self.came.wait_timeout_while(arrivals, patience, missing).unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut arrivals)
    }
}

/// Totals of clients' messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    /// Refusals for now, and other failures.
    pub(crate) refused: u64,
    /// Refusals for now, after which the client tried again.
    pub(crate) retried: u64,
    /// Shapes that had to be fetched again.
    pub(crate) rotated: u64,
    /// Shapes with an unexpected number of rows.
    pub(crate) wrong: u64,
    pub(crate) status: u16,
}

/// The clients' task.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// Fetch this many shapes, one after another, taken from a list that all connections share; each has this many
    /// rows.
    Fetch { jobs: u64, rows: Option<u64> },
    /// Fetch one shape and follow it; a transaction has this many of its operations.
    Follow { operations: u64 },
}

pub(crate) struct Shapes<'a> {
    definition: &'a Definition,
    goal: Goal,
    /// The next of the list.
    next: &'a AtomicU64,
    board: &'a Board,
    counter: Counter,
    clients: Vec<Client>,
    pub(crate) seen: Seen,
}

#[derive(Debug, Default)]
struct Client {
    /// The path of the client's shape; empty if it has none.
    path: String,
    /// `&offset=…&handle=…&cursor=…`; empty at the beginning.
    position: Vec<u8>,
    up_to_date: bool,
    live: bool,
    operations: u64,
    /// Operations at which the next transaction is complete.
    complete: u64,
    rest: Rest,
    /// Seconds until a refused client may come again.
    retry_after: Option<u64>,
}

impl Seen {
    pub(crate) fn add(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            bytes: self.bytes + other.bytes,
            refused: self.refused + other.refused,
            retried: self.retried + other.retried,
            rotated: self.rotated + other.rotated,
            wrong: self.wrong + other.wrong,
            status: self.status.max(other.status),
        }
    }
}

impl<'a> Shapes<'a> {
    pub(crate) fn new(
        definition: &'a Definition,
        goal: Goal,
        many: usize,
        next: &'a AtomicU64,
        board: &'a Board,
    ) -> Self {
        let clients = (0..many).map(|_| Client::default()).collect();
        let counter = Counter { finder: Finder::new(OPERATION) };
        Self { definition, goal, next, board, counter, clients, seen: Seen::default() }
    }
}

impl Work for Shapes<'_> {
    fn request(&mut self, connection: usize, _at: Nanos, out: &mut Vec<u8>) -> Option<u32> {
        let client = &mut self.clients[connection];
        if client.path.is_empty() {
            let job = self.next.fetch_add(1, Ordering::Relaxed);
            if matches!(self.goal, Goal::Fetch { jobs, .. } if job >= jobs) {
                return None;
            }
            *client = Client { path: self.definition.path(job), ..Client::default() };
        } else if client.path == REFUSED {
            return None;
        }
        let mut path = client.path.clone().into_bytes();
        path.extend_from_slice(if client.position.is_empty() { b"&offset=-1" } else { &client.position });
        path.extend_from_slice(if client.live { b"&live=true" } else { b"" });
        client.rest.clear();
        request(out, "GET", std::str::from_utf8(&path).ok()?, &[], b"");
        Some(0)
    }

    fn head(&mut self, connection: usize, status: u16, head: &[u8]) {
        let client = &mut self.clients[connection];
        client.up_to_date = header(head, "electric-up-to-date").is_some();
        client.retry_after =
            header(head, "retry-after").and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
        if status != 200 {
            return;
        }
        client.position.clear();
        for (name, head_name) in
            [("offset", "electric-offset"), ("handle", "electric-handle"), ("cursor", "electric-cursor")]
        {
            if let Some(value) = header(head, head_name) {
                client.position.extend_from_slice(format!("&{name}=").as_bytes());
                client.position.extend_from_slice(value);
            }
        }
    }

    fn body(&mut self, connection: usize, _tag: u32, bytes: &[u8], now: Nanos) {
        let client = &mut self.clients[connection];
        let count = self.counter.count(&mut client.rest, bytes);
        client.operations += count;
        self.seen.operations += count;
        self.seen.bytes += bytes.len() as u64;
        if let Goal::Follow { operations } = self.goal
            && client.live
        {
            while client.operations >= client.complete {
                client.complete += operations.max(1);
                self.board.arrive(now);
            }
        }
    }

    fn done(&mut self, connection: usize, _tag: u32, status: u16) -> Verdict {
        let client = &mut self.clients[connection];
        match status {
            200 if !client.up_to_date => return Verdict::More,
            200 => {}
            409 => {
                self.seen.rotated += 1;
                *client = Client { path: std::mem::take(&mut client.path), ..Client::default() };
                return Verdict::More;
            }
            // A refusal without a time to retry cannot be followed.
            503 if self.definition.retry && client.retry_after.is_some() => {
                self.seen.retried += 1;
                return Verdict::Later(client.retry_after.unwrap_or_default() * 1_000_000_000);
            }
            status => {
                self.seen.refused += 1;
                self.seen.status = status;
                self.board.refused.fetch_add(1, Ordering::AcqRel);
                client.path = match self.goal {
                    Goal::Fetch { .. } => String::new(),
                    Goal::Follow { .. } => REFUSED.into(),
                };
                return Verdict::Bad;
            }
        }
        match self.goal {
            Goal::Fetch { rows, .. } => {
                client.path.clear();
                if rows.is_some_and(|rows| rows != client.operations) {
                    self.seen.wrong += 1;
                    return Verdict::Bad;
                }
            }
            Goal::Follow { operations } => {
                if !client.live {
                    client.live = true;
                    client.complete = client.operations + operations.max(1);
                    self.board.ready.fetch_add(1, Ordering::AcqRel);
                }
            }
        }
        Verdict::Good
    }

    /// Servers close connections after a refusal; a client without an answer repeats its request.
    fn closed(&mut self, _connection: usize) -> bool {
        true
    }
}

/// The path of a client that has stopped.
const REFUSED: &str = "-";

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(shapes: u64) -> Definition {
        Definition { table: "items".into(), predicate: Some("name = 'n-{i}'".into()), from: 3, shapes, retry: false }
    }

    fn answer(work: &mut Shapes<'_>, head: &str, body: &str, status: u16) -> Verdict {
        work.head(0, status, head.as_bytes());
        work.body(0, 0, body.as_bytes(), 7);
        work.done(0, 0, status)
    }

    fn asked(work: &mut Shapes<'_>) -> Option<String> {
        let mut out = Vec::new();
        work.request(0, 0, &mut out)?;
        Some(String::from_utf8(out).unwrap().split(' ').nth(1).unwrap().to_owned())
    }

    #[test]
    fn operations_are_counted_however_the_text_is_cut() {
        let text = format!("[{}]", [r#"{"headers":{"operation":"insert"}}"#; 5].join(","));
        let counter = Counter { finder: Finder::new(OPERATION) };
        for size in 1..text.len() {
            let mut rest = Rest::new();
            let count: u64 = text.as_bytes().chunks(size).map(|piece| counter.count(&mut rest, piece)).sum();
            assert_eq!(count, 5, "pieces of {size}");
        }
    }

    #[test]
    fn a_shape_is_followed_from_its_beginning_to_its_changes() {
        let (definition, next, board) = (definition(1), AtomicU64::new(0), Board::default());
        let mut work = Shapes::new(&definition, Goal::Follow { operations: 2 }, 1, &next, &board);
        let shape = "/v1/shape?table=items&where=name%20%3D%20%27n%2D3%27";
        assert_eq!(asked(&mut work).unwrap(), format!("{shape}&offset=-1"));
        let head = "x\r\nelectric-offset: 0_0\r\nelectric-handle: h\r\n\r\n";
        assert_eq!(answer(&mut work, head, r#"[{"operation":1}]"#, 200), Verdict::More);
        assert_eq!(asked(&mut work).unwrap(), format!("{shape}&offset=0_0&handle=h"));
        let head = "x\r\nelectric-offset: 0_inf\r\nelectric-handle: h\r\nelectric-up-to-date: \r\n\r\n";
        assert_eq!(answer(&mut work, head, "[]", 200), Verdict::Good);
        assert_eq!(board.ready.load(Ordering::Relaxed), 1);
        assert_eq!(asked(&mut work).unwrap(), format!("{shape}&offset=0_inf&handle=h&live=true"));
        board.begin(1);
        answer(&mut work, head, r#"[{"operation":1}]"#, 200);
        assert!(board.wait(Duration::ZERO).is_empty());
        answer(&mut work, head, r#"[{"operation":1}]"#, 200);
        assert_eq!(board.wait(Duration::ZERO), [7]);
    }

    #[test]
    fn who_is_refused_comes_again_from_where_it_was() {
        let (mut definition, next, board) = (definition(1), AtomicU64::new(0), Board::default());
        definition.retry = true;
        let mut work = Shapes::new(&definition, Goal::Follow { operations: 1 }, 1, &next, &board);
        asked(&mut work).unwrap();
        answer(&mut work, "x\r\nelectric-offset: 0_0\r\nelectric-handle: h\r\n\r\n", "[]", 200);
        let before = asked(&mut work).unwrap();
        let refused = answer(&mut work, "x\r\nretry-after: 2\r\n\r\n", "{}", 503);
        assert_eq!(refused, Verdict::Later(2_000_000_000));
        assert_eq!(asked(&mut work).unwrap(), before);
        assert_eq!(answer(&mut work, "x\r\n\r\n", "{}", 503), Verdict::Bad, "it does not say when");
        assert_eq!((work.seen.retried, work.seen.refused), (1, 1));
    }

    #[test]
    fn a_list_is_fetched_to_its_end_and_a_wrong_number_of_rows_is_told() {
        let (definition, next, board) = (definition(2), AtomicU64::new(0), Board::default());
        let mut work = Shapes::new(&definition, Goal::Fetch { jobs: 2, rows: Some(1) }, 1, &next, &board);
        let head = "x\r\nelectric-up-to-date: \r\n\r\n";
        assert!(asked(&mut work).unwrap().ends_with("2D3%27&offset=-1"));
        assert_eq!(answer(&mut work, head, r#"[{"operation":1}]"#, 200), Verdict::Good);
        assert!(asked(&mut work).unwrap().ends_with("2D4%27&offset=-1"));
        assert_eq!(answer(&mut work, head, "[]", 200), Verdict::Bad);
        assert_eq!((work.seen.wrong, work.seen.operations), (1, 1));
        assert_eq!(asked(&mut work), None);
    }
}
