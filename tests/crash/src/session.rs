//! A worker's connection to a server that may die at any moment.

use crate::http::{Answer, Conn, Request};
use crate::world::World;
use std::time::{Duration, Instant};

/// The server was killed before it answered: what was asked may have happened or not.
#[derive(Debug)]
pub(crate) struct Down;

pub(crate) struct Session<'a> {
    pub(crate) world: &'a World,
    conn: Option<(Conn, u64)>,
    used: Instant,
}

const PATIENCE: Duration = Duration::from_secs(20);

impl<'a> Session<'a> {
    pub(crate) fn new(world: &'a World) -> Self {
        Self { world, conn: None, used: Instant::now() }
    }

    /// Waits until the server serves. Whether it ever will.
    pub(crate) fn revive(&mut self) -> bool {
        self.conn = None;
        self.world.server.serving().is_some()
    }

    /// The server's generation that this session is connected to.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.conn.as_ref().map(|(_, generation)| *generation)
    }

    pub(crate) fn connect(&mut self) -> Result<&mut Conn, Down> {
        // A server may close what idles: do not let that look like a fault.
        if self.used.elapsed() > Duration::from_secs(4) {
            self.conn = None;
        }
        self.used = Instant::now();
        if self.conn.is_none() {
            let (address, generation) = self.world.server.serving().ok_or(Down)?;
            match Conn::open(address, PATIENCE) {
                Ok(conn) => self.conn = Some((conn, generation)),
                Err(error) => return Err(self.explain(generation, "connecting", &error)),
            }
        }
        match &mut self.conn {
            Some((conn, _)) => Ok(conn),
            None => Err(Down),
        }
    }

    /// The connection as it is, for reading on.
    pub(crate) fn connected(&mut self) -> Result<&mut Conn, Down> {
        self.used = Instant::now();
        self.conn.as_mut().map(|(conn, _)| conn).ok_or(Down)
    }

    pub(crate) fn call(&mut self, request: &Request) -> Result<Answer, Down> {
        let (mut answers, down) = self.pipeline(std::slice::from_ref(request));
        match (answers.pop(), down) {
            (Some(answer), None) => Ok(answer),
            _ => Err(Down),
        }
    }

    /// Sends all requests at once; the answers that came, and whether the server died before the last of them.
    pub(crate) fn pipeline(&mut self, requests: &[Request]) -> (Vec<Answer>, Option<Down>) {
        let mut answers = Vec::with_capacity(requests.len());
        let conn = match self.connect() {
            Ok(conn) => conn,
            Err(down) => return (answers, Some(down)),
        };
        let mut outcome = conn.send(requests);
        // Even if sending broke, answers to the first requests may have come.
        for request in requests {
            match conn.receive(request) {
                Ok(answer) => answers.push(answer),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        self.used = Instant::now();
        if answers.len() == requests.len() {
            return (answers, None);
        }
        let asked = requests.get(answers.len()).map_or("", |request| request.line.as_str()).to_owned();
        let error = outcome.err().unwrap_or_else(|| std::io::Error::other("no answer"));
        let generation = self.generation().unwrap_or(0);
        let down = self.explain(generation, &asked, &error);
        (answers, Some(down))
    }

    /// A connection broke: because of a kill, or for no good reason?
    pub(crate) fn explain(&mut self, generation: u64, doing: &str, error: &std::io::Error) -> Down {
        self.conn = None;
        if self.world.server.is_still(generation) && self.world.report.clean() {
            self.world.violation(format!("{doing}: the server is up, but: {error}"));
        }
        Down
    }
}
