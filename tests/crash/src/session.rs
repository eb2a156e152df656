//! A worker's connection to a server that may die at any moment.

use crate::http::{Answer, Conn, Request};
use crate::world::{Sabotage, World};
use std::time::{Duration, Instant};

/// The server was killed before it answered: the operation may have happened or not.
#[derive(Debug)]
pub(crate) struct Down;

pub(crate) struct Session<'a> {
    pub(crate) world: &'a World,
    conn: Option<(Conn, u64)>,
    used: Instant,
    /// The `Authorization` of every request, if tokens are required.
    authorization: Option<String>,
    calls: u64,
}

/// How many calls come between two that are tried with a wrong token first.
const TRESPASS_EVERY: u64 = 40;

const PATIENCE: Duration = Duration::from_secs(20);

impl<'a> Session<'a> {
    /// `who` is the name of the session's token.
    pub(crate) fn new(world: &'a World, who: &str) -> Self {
        let authorization = world.tokens.as_ref().and_then(|tokens| tokens.authorization(who));
        Self { world, conn: None, used: Instant::now(), authorization, calls: 0 }
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
        self.trespass(request)?;
        self.ask(&self.authorised(request))
    }

    /// The request with this session's token.
    pub(crate) fn authorised(&self, request: &Request) -> Request {
        match &self.authorization {
            Some(authorization) => request.with("authorization", authorization),
            None => request.clone(),
        }
    }

    /// Now and then: the same request with a wrong token, which must not succeed, and not do anything.
    fn trespass(&mut self, request: &Request) -> Result<(), Down> {
        let Some(tokens) = &self.world.tokens else { return Ok(()) };
        self.calls += 1;
        if !self.calls.is_multiple_of(TRESPASS_EVERY) || !request.line.contains(" /v1/stream/crash/") {
            return Ok(());
        }
        let (mut wrong, status) = tokens.trespass(request.changes_something(), self.calls / TRESPASS_EVERY);
        if self.world.sabotage(Sabotage::Trespass) {
            wrong.clone_from(&self.authorization);
        }
        let tried = wrong.map_or_else(|| request.clone(), |wrong| request.with("authorization", &wrong));
        let answer = self.ask(&tried)?;
        if answer.status != status {
            self.world.violation(format!(
                "{} with a wrong token: {} {:?} instead of {status}",
                request.line,
                answer.status,
                answer.text()
            ));
            return Err(Down);
        }
        self.world.report.count("wrong tokens refused");
        Ok(())
    }

    /// Sends a request as it is.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Answer, Down> {
        let (mut answers, down) = self.exchange(std::slice::from_ref(request));
        match (answers.pop(), down) {
            (Some(answer), None) => Ok(answer),
            _ => Err(Down),
        }
    }

    /// Sends all requests at once; the answers that came, and whether the server died before the last of them.
    pub(crate) fn pipeline(&mut self, requests: &[Request]) -> (Vec<Answer>, Option<Down>) {
        let requests: Vec<Request> = requests.iter().map(|request| self.authorised(request)).collect();
        self.exchange(&requests)
    }

    fn exchange(&mut self, requests: &[Request]) -> (Vec<Answer>, Option<Down>) {
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
            let closes = |answer: &Answer| answer.header("connection").is_some_and(|v| v.eq_ignore_ascii_case("close"));
            if answers.last().is_some_and(closes) {
                self.conn = None;
            }
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
