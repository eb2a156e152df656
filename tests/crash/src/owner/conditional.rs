//! Appends with `If-Match`: taken at the tail that they name, and nowhere else.

use super::Owner;
use crate::content::body;
use crate::http::Request;
use crate::model::{Piece, Truth};
use crate::session::Down;

impl Owner<'_> {
    pub(super) fn append_conditionally(&mut self, which: usize) -> Result<(), Down> {
        let model = &self.streams[which];
        if self.world().is_peer() || !model.settled() {
            return Ok(());
        }
        let ends: Vec<String> = model.pieces.iter().filter_map(|piece| piece.end.clone()).collect();
        let Some(tail) = model.pieces.last().and_then(|piece| piece.end.clone()) else { return Ok(()) };
        let stale = ends[self.pick(ends.len())].clone();
        if stale == tail || self.chance(50) {
            self.append_at(which, &tail)
        } else {
            self.append_behind(which, &stale, &tail)
        }
    }

    fn append_at(&mut self, which: usize, tail: &str) -> Result<(), Down> {
        let messages = self.messages(self.streams[which].format);
        let model = &mut self.streams[which];
        let tag = format!("\"{tail}\"");
        let headers = [("content-type", model.format.media_type()), ("if-match", tag.as_str())];
        let request = Request::new("POST", &model.path, &headers, &body(&messages, model.format));
        model.pieces.push(Piece { messages, there: Truth::Maybe, closes: false, end: None, sent_by: None });
        let answer = self.session.call(&request)?;
        let model = &mut self.streams[which];
        if !matches!(answer.status, 200 | 204) {
            model.pieces.pop();
            let model = model.clone();
            return self.refused(&answer, &request, &model);
        }
        if let Some(piece) = model.pieces.last_mut() {
            piece.there = Truth::Yes;
            piece.end = answer.position();
        }
        self.count("conditional appends taken");
        Ok(())
    }

    /// At an earlier tail: refused for every sender and form, without an effect.
    fn append_behind(&mut self, which: usize, stale: &str, tail: &str) -> Result<(), Down> {
        let messages = self.messages(self.streams[which].format);
        let producer = self.pick(2);
        let (with_producer, closing) = (self.chance(40), self.chance(20));
        let model = &self.streams[which];
        let known = model.producers[producer];
        let (tag, id) = (format!("\"{stale}\""), format!("p{producer}"));
        let (epoch, seq) = (known.epoch.to_string(), known.next_seq.to_string());
        let mut headers = vec![("content-type", model.format.media_type()), ("if-match", tag.as_str())];
        if with_producer {
            headers.extend([("producer-id", id.as_str()), ("producer-epoch", &epoch), ("producer-seq", &seq)]);
        }
        if closing {
            headers.push(("stream-closed", "true"));
        }
        let request = Request::new("POST", &model.path, &headers, &body(&messages, model.format));
        let answer = self.session.call(&request)?;
        match answer.status {
            412 if answer.position().as_deref() == Some(tail) => self.count("conditional appends refused"),
            429 | 503 => {}
            status => self.violation(format!(
                "{} expecting {stale}, the tail is {tail}: {status}, at {:?} {:?}",
                request.line,
                answer.position(),
                answer.text()
            )),
        }
        Ok(())
    }
}
