//! Live readers, by long-poll and by server-sent events.

use super::{Stream, ensure};
use crate::http::{Events, Request};
use crate::session::{Down, Session};
use base64::Engine as _;
use std::time::Duration;

pub(super) struct Reader<'a, 'w> {
    pub(super) session: Session<'w>,
    pub(super) stream: &'a Stream,
    pub(super) at: String,
    pub(super) seen: Vec<u8>,
    pub(super) ended: bool,
}

impl Reader<'_, '_> {
    pub(super) fn follow(&mut self, kind: &str) {
        while ensure(&mut self.session, self.stream).is_err() {
            if !self.session.revive() {
                return;
            }
        }
        while !self.ended && !self.session.world.over() {
            let step = if kind == "sse" { self.events() } else { self.poll() };
            match step {
                Ok(()) => {}
                Err(Down) => {
                    if !self.session.revive() {
                        return;
                    }
                    self.session.world.report.count("live readers resumed");
                }
            }
        }
    }

    fn poll(&mut self) -> Result<(), Down> {
        let path = format!("{}?offset={}&live=long-poll", self.stream.path, self.at);
        let answer = self.session.call(&Request::get(&path))?;
        match answer.status {
            200 => {
                if let Err(error) = self.stream.format.normalise(&answer.body, &mut self.seen) {
                    self.session.world.violation(format!("GET {path}: {error}"));
                    return Err(Down);
                }
            }
            204 => {}
            429 | 503 => {
                std::thread::sleep(Duration::from_millis(20));
                return Ok(());
            }
            status => {
                self.session
                    .world
                    .violation(format!("GET {path}: {status} {:?}", String::from_utf8_lossy(&answer.body)));
                return Err(Down);
            }
        }
        if let Some(next) = answer.header("stream-next-offset") {
            next.clone_into(&mut self.at);
        }
        self.ended = answer.is_true("stream-closed");
        self.session.world.report.count("long-polls");
        Ok(())
    }

    /// One connection of server-sent events, to its end.
    fn events(&mut self) -> Result<(), Down> {
        let path = format!("{}?offset={}&live=sse", self.stream.path, self.at);
        let world = self.session.world;
        let request = self.session.authorised(&Request::get(&path));
        let conn = self.session.connect()?;
        let opened = conn.send(std::slice::from_ref(&request)).and_then(|()| conn.head());
        let generation = self.session.generation().unwrap_or(0);
        let base64 = match opened {
            Ok(answer) if answer.status == 200 => answer.header("stream-sse-data-encoding") == Some("base64"),
            Ok(answer) => {
                world.violation(format!("GET {path}: {}", answer.status));
                return Err(Down);
            }
            Err(error) => return Err(self.session.explain(generation, &request.line, &error)),
        };
        let mut events = Events::default();
        let mut data: Vec<u8> = Vec::new();
        loop {
            let conn = self.session.connected()?;
            let chunk = match conn.chunk() {
                Ok(Some(chunk)) => chunk,
                Ok(None) => {
                    // Nothing more follows on this connection.
                    let _ = self.session.revive();
                    return Ok(());
                }
                Err(error)
                    if error.kind() == std::io::ErrorKind::UnexpectedEof && !world.server.is_still(generation) =>
                {
                    let _ = self.session.revive();
                    return Err(Down);
                }
                Err(error) => return Err(self.session.explain(generation, &request.line, &error)),
            };
            for event in events.push(&chunk) {
                match event.kind.as_str() {
                    "data" => {
                        let bytes = if base64 {
                            let text: String = event.data.split_whitespace().collect();
                            match base64::engine::general_purpose::STANDARD.decode(text) {
                                Ok(bytes) => bytes,
                                Err(error) => {
                                    world.violation(format!("GET {path}: a data event is not base64: {error}"));
                                    return Err(Down);
                                }
                            }
                        } else {
                            event.data.into_bytes()
                        };
                        if let Err(error) = self.stream.format.normalise(&bytes, &mut data) {
                            world.violation(format!("GET {path}: {error}"));
                            return Err(Down);
                        }
                    }
                    "control" => {
                        let control: serde_json::Value = serde_json::from_str(&event.data).unwrap_or_default();
                        self.seen.append(&mut data);
                        if let Some(next) = control["streamNextOffset"].as_str() {
                            next.clone_into(&mut self.at);
                        }
                        world.report.count("live events");
                        if control["streamClosed"] == true {
                            self.ended = true;
                        }
                    }
                    _ => {}
                }
            }
            if world.over() {
                let _ = self.session.revive();
                return Ok(());
            }
        }
    }
}
