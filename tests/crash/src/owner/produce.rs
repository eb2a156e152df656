//! Appends of idempotent producers, and their retries.

use super::Owner;
use crate::content::{Message, body};
use crate::http::Request;
use crate::model::{Model, Piece, Producer, Stamp, Truth};
use crate::session::Down;
use crate::world::Sabotage;

impl Owner<'_> {
    /// Appends of an idempotent producer, pipelined.
    pub(super) fn produce(&mut self, which: usize) -> Result<(), Down> {
        if self.world().tolerates("producer") {
            return self.append(which);
        }
        let producer = self.pick(2);
        let many = self.pick(6) + 1;
        let closes = self.chance(3);
        if self.chance(8) && self.streams[which].producers[producer].next_seq > 0 {
            let known = &mut self.streams[which].producers[producer];
            *known = Producer { epoch: known.epoch + 1, next_seq: 0 };
        }
        for i in 0..many {
            let messages = self.messages(self.streams[which].format);
            let model = &mut self.streams[which];
            let known = &mut model.producers[producer];
            let stamp = Stamp { producer, epoch: known.epoch, seq: known.next_seq };
            known.next_seq += 1;
            let closes = closes && i + 1 == many;
            model.pieces.push(Piece { messages, there: Truth::Maybe, closes, end: None, sent_by: Some(stamp) });
            if closes {
                model.closed = Truth::Maybe;
            }
        }
        if self.world().sabotage(Sabotage::Forgotten) {
            let model = &mut self.streams[which];
            model.pieces.iter_mut().for_each(|piece| piece.there = Truth::Yes);
        }
        self.settle_produced(which)
    }

    /// Sends what producers have in doubt, again and in order, until it is answered.
    pub(super) fn settle_produced(&mut self, which: usize) -> Result<(), Down> {
        while !self.try_to_settle(which)? && self.world().report.clean() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Ok(())
    }

    /// Whether all are taken: a server that is busy or full refuses one for now, and then those after it too.
    fn try_to_settle(&mut self, which: usize) -> Result<bool, Down> {
        let model = &self.streams[which];
        let doubtful: Vec<usize> = (0..model.pieces.len())
            .filter(|i| model.pieces[*i].there == Truth::Maybe && model.pieces[*i].sent_by.is_some())
            .collect();
        let requests: Vec<Request> = doubtful.iter().map(|i| produced(model, &model.pieces[*i])).collect();
        let (answers, down) = self.session.pipeline(&requests);
        // Appends that were done before the close that came with the last of them: on a closed stream only the closing
        // one is recognised, and all others are refused. That the close is known proves that they were taken.
        let mut before_close: Vec<usize> = Vec::new();
        for ((i, answer), request) in doubtful.into_iter().zip(answers).zip(&requests) {
            let model = &mut self.streams[which];
            let piece = &mut model.pieces[i];
            match (answer.status, piece.sent_by) {
                (200 | 204, Some(stamp)) => {
                    piece.there = Truth::Yes;
                    if answer.status == 200 {
                        piece.end = answer.position();
                    }
                    if piece.closes {
                        model.closed = Truth::Yes;
                        for earlier in before_close.drain(..) {
                            model.pieces[earlier].there = Truth::Yes;
                        }
                    }
                    let highest = answer.header("producer-seq").and_then(|seq| seq.parse::<u64>().ok());
                    if highest.is_none_or(|highest| highest < stamp.seq) {
                        let what =
                            format!("{}: number {} was taken, but the answer says {highest:?}", model.path, stamp.seq);
                        self.violation(what);
                    }
                    self.count(if answer.status == 200 { "producer appends" } else { "producer retries found done" });
                }
                (429 | 503 | 507, _) => {
                    self.count("refused for now");
                    return down.map_or(Ok(false), Err);
                }
                (409, _) if answer.is_true("stream-closed") && model.closed == Truth::Maybe => before_close.push(i),
                _ => {
                    // Whatever the reason, an append in order with a valid stamp must be taken.
                    let what = format!(
                        "{} of producer {:?}: {} {:?} (expected seq {:?})",
                        request.line,
                        piece.sent_by,
                        answer.status,
                        answer.text(),
                        answer.header("producer-expected-seq")
                    );
                    self.violation(what);
                    return Err(Down);
                }
            }
        }
        down.map_or(Ok(true), Err)
    }

    /// Repeats acknowledged appends of producers: they must be recognised, and nothing may be added.
    pub(super) fn retry(&mut self, which: usize) -> Result<(), Down> {
        let model = &self.streams[which];
        let mut requests = Vec::new();
        for (number, producer) in model.producers.iter().enumerate() {
            let mine = |piece: &&Piece| {
                piece.there == Truth::Yes
                    && piece.sent_by.is_some_and(|by| by.producer == number && by.epoch == producer.epoch)
            };
            let mut last: Vec<&Piece> = model.pieces.iter().rev().filter(mine).take(4).collect();
            last.reverse();
            requests.extend(last.into_iter().map(|piece| (produced(model, piece), piece.sent_by)));
            // An epoch that is over is fenced for ever.
            if producer.epoch > 0 && producer.next_seq > 0 {
                let stamp = Stamp { producer: number, epoch: producer.epoch - 1, seq: 0 };
                let stale = Piece {
                    messages: vec![Message { seed: 1, len: 30 }],
                    there: Truth::No,
                    closes: false,
                    end: None,
                    sent_by: Some(stamp),
                };
                requests.push((produced(model, &stale), None));
            }
        }
        let sent: Vec<Request> = requests.iter().map(|(request, _)| request.clone()).collect();
        let (answers, down) = self.session.pipeline(&sent);
        for (answer, (request, stamp)) in answers.iter().zip(&requests) {
            let highest = answer.header("producer-seq").and_then(|seq| seq.parse::<u64>().ok());
            match stamp {
                Some(stamp) if answer.status == 204 && highest.is_some_and(|highest| highest >= stamp.seq) => {
                    self.count("duplicates recognised");
                }
                None if answer.status == 403 => self.count("old epochs fenced"),
                _ => self.violation(format!(
                    "{}: the retry of {stamp:?} is answered {} (producer-seq {highest:?}) {:?}",
                    request.line,
                    answer.status,
                    answer.text()
                )),
            }
        }
        down.map_or(Ok(()), Err)
    }
}

/// The append of an idempotent producer, as often as it is needed.
pub(crate) fn produced(model: &Model, piece: &Piece) -> Request {
    let stamp = piece.sent_by.unwrap_or(Stamp { producer: 0, epoch: 0, seq: 0 });
    let (id, epoch, seq) = (format!("p{}", stamp.producer), stamp.epoch.to_string(), stamp.seq.to_string());
    let mut headers = vec![
        ("content-type", model.format.media_type()),
        ("producer-id", id.as_str()),
        ("producer-epoch", epoch.as_str()),
        ("producer-seq", seq.as_str()),
    ];
    if piece.closes {
        headers.push(("stream-closed", "true"));
    }
    Request::new("POST", &model.path, &headers, &body(&piece.messages, model.format))
}
