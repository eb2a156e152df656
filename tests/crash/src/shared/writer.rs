//! Writers: every other one is an idempotent producer.

use super::{Stream, ensure, line};
use crate::http::Request;
use crate::session::{Down, Session};
use crate::world::Sabotage;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(super) struct Writer<'a, 'w> {
    pub(super) session: &'a mut Session<'w>,
    pub(super) stream: &'a Stream,
    pub(super) writer: u64,
    pub(super) rng: oorandom::Rand64,
}

impl Writer<'_, '_> {
    fn idempotent(&self) -> bool {
        self.writer % 2 == 1 && !self.session.world.tolerates("producer")
    }

    pub(super) fn write(&mut self) {
        while ensure(self.session, self.stream).is_err() {
            if !self.session.revive() {
                return;
            }
        }
        let mut next = 0;
        let mut unanswered: Vec<usize> = Vec::new();
        loop {
            let leaving = self.stream.retired() || self.session.world.over();
            if leaving && (unanswered.is_empty() || !self.idempotent()) {
                return;
            }
            if unanswered.is_empty() {
                let many = usize::try_from(self.rng.rand_range(1..9)).unwrap_or(1);
                unanswered = (next..next + many).collect();
                next += many;
            }
            match self.send(&unanswered) {
                Ok(answered) => {
                    unanswered.drain(..answered);
                }
                Err((answered, Down)) => {
                    unanswered.drain(..answered);
                    // A plain append without an answer is not repeated: it may be there.
                    if !self.idempotent() {
                        unanswered.clear();
                    }
                    if !self.session.revive() {
                        return;
                    }
                }
            }
            if self.rng.rand_float() < 0.3 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Sends these lines, pipelined; how many of them were answered.
    fn send(&mut self, numbers: &[usize]) -> Result<usize, (usize, Down)> {
        let stream = self.stream;
        let (id, writer) = (format!("w{}", self.writer), self.writer);
        let mut requests = Vec::new();
        let idempotent = self.idempotent();
        {
            let mut lines = stream.lines.lock().unwrap_or_else(PoisonError::into_inner);
            let mine = lines.entry(writer).or_default();
            for number in numbers {
                if *number >= mine.len() {
                    mine.resize(number + 1, false);
                }
                let bytes = line(stream.format, writer, *number);
                let seq = number.to_string();
                let mut headers = vec![("content-type", stream.format.media_type())];
                if idempotent {
                    headers.extend([
                        ("producer-id", id.as_str()),
                        ("producer-epoch", "0"),
                        ("producer-seq", seq.as_str()),
                    ]);
                }
                requests.push(Request::new("POST", &stream.path, &headers, &bytes));
                stream.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
        }
        if self.session.world.sabotage(Sabotage::Invented) {
            let bytes = line(stream.format, 99, 0);
            let request = Request::new("POST", &stream.path, &[("content-type", stream.format.media_type())], &bytes);
            let _ = self.session.call(&request);
        }
        let (answers, down) = self.session.pipeline(&requests);
        let mut taken = 0;
        for (number, answer) in numbers.iter().zip(&answers) {
            match answer.status {
                200 | 204 => {
                    taken += 1;
                    let mut lines = stream.lines.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(acknowledged) = lines.get_mut(&writer).and_then(|mine| mine.get_mut(*number)) {
                        *acknowledged = true;
                    }
                }
                // Refused: not there. A producer repeats it, another writer goes on; in both cases later ones must
                // wait.
                429 | 503 | 507 => {
                    self.session.world.report.count("refused for now");
                    std::thread::sleep(Duration::from_millis(20));
                    if !self.idempotent() {
                        taken += 1;
                        continue;
                    }
                    break;
                }
                409 if self.idempotent() && taken < numbers.len() && answers.iter().any(|a| a.status == 503) => break,
                status => {
                    let what = format!(
                        "POST {} by writer {writer}, line {number}: {status} {:?} (expected seq {:?})",
                        stream.path,
                        String::from_utf8_lossy(&answer.body),
                        answer.header("producer-expected-seq")
                    );
                    self.session.world.violation(what);
                    return Err((taken, Down));
                }
            }
        }
        self.session.world.report.add("shared appends acknowledged", taken as u64);
        match down {
            None => Ok(taken),
            Some(down) => Err((taken, down)),
        }
    }
}
