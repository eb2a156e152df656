//! Creates, appends, closes, forks, deletes.

use super::Owner;
use crate::content::{Format, Message, body};
use crate::http::{Answer, Request};
use crate::model::{Model, Piece, Truth};
use crate::session::Down;
use crate::world::Sabotage;
use std::sync::Arc;

impl Owner<'_> {
    pub(super) fn create(&mut self) -> Result<(), Down> {
        self.names += 1;
        let format = Format::ALL[self.pick(3)];
        let model = Model::new(format!("/v1/stream/crash/w{}/s{}", self.number, self.names), format);
        // A killed process takes nothing, whatever a stream promises about the machine.
        let more: &[(&str, &str)] =
            if self.names.is_multiple_of(2) { &[("stream-durability", "buffered")] } else { &[] };
        self.put(model, more)
    }

    /// Creates the stream of a model, with the first content and closure that chance gives it.
    pub(super) fn put(&mut self, mut model: Model, more: &[(&str, &str)]) -> Result<(), Down> {
        let with_body = self.chance(40);
        let closes = self.chance(4);
        let mut headers = vec![("content-type", model.format.media_type())];
        headers.extend_from_slice(more);
        let mut bytes = Vec::new();
        if with_body {
            let messages = self.messages(model.format);
            bytes = body(&messages, model.format);
            model.pieces.push(Piece { messages, there: Truth::Maybe, closes, end: None, sent_by: None });
        }
        if closes {
            headers.push(("stream-closed", "true"));
            model.closed = Truth::Maybe;
        }
        let request = Request::new("PUT", &model.path, &headers, &bytes);
        self.streams.push(model);
        let which = self.streams.len() - 1;
        let answer = self.session.call(&request)?;
        let model = &mut self.streams[which];
        if answer.status != 201 {
            let refused = self.streams.remove(which);
            return self.refused(&answer, &request, &refused);
        }
        model.exists = Truth::Yes;
        if closes {
            model.closed = Truth::Yes;
        }
        if let Some(piece) = model.pieces.last_mut() {
            piece.there = Truth::Yes;
            piece.end = answer.position();
        }
        self.count("creates");
        Ok(())
    }

    /// One or several appends at once, without a producer.
    pub(super) fn append(&mut self, which: usize) -> Result<(), Down> {
        let many = if self.chance(30) { self.pick(5) + 2 } else { 1 };
        let mut requests = Vec::new();
        for _ in 0..many {
            let format = self.streams[which].format;
            let messages = self.messages(format);
            let mut bytes = body(&messages, format);
            if bytes.len() > 40 && format != Format::Json && self.world().sabotage(Sabotage::Torn) {
                bytes.pop();
            }
            let headers = [("content-type", format.media_type())];
            let model = &mut self.streams[which];
            requests.push(Request::new("POST", &model.path, &headers, &bytes));
            model.pieces.push(Piece { messages, there: Truth::Maybe, closes: false, end: None, sent_by: None });
        }
        if self.world().sabotage(Sabotage::Lost) {
            self.streams[which].pieces[0..1]
                .iter_mut()
                .for_each(|piece| piece.messages.push(Message { seed: 5, len: 50 }));
        }
        if self.world().sabotage(Sabotage::Doubled) {
            self.session.call(&requests[0])?;
        }
        let from = self.streams[which].pieces.len() - many;
        let (answers, down) = self.session.pipeline(&requests);
        let got = answers.len();
        for (i, answer) in answers.into_iter().enumerate().rev() {
            let model = &mut self.streams[which];
            if matches!(answer.status, 200 | 204) {
                let piece = &mut model.pieces[from + i];
                piece.there = Truth::Yes;
                piece.end = answer.position();
            } else {
                model.pieces.remove(from + i);
                let (request, model) = (&requests[i], model.clone());
                self.refused(&answer, request, &model)?;
            }
        }
        self.world().report.add("appends acknowledged", got as u64);
        let model = &mut self.streams[which];
        if model.pieces.len() > 3 && model.settled() {
            let ends: Vec<&String> = model.pieces.iter().filter_map(|piece| piece.end.as_ref()).collect();
            if let Some(pair) = ends.windows(2).find(|pair| pair[0] >= pair[1]) {
                let what = format!("{}: positions do not increase: {} then {}", model.path, pair[0], pair[1]);
                self.violation(what);
            } else {
                let swapped = model.pieces.len() - 2;
                let distinct = model.pieces[swapped].messages != model.pieces[swapped + 1].messages;
                if distinct && model.size() > 100 && self.session.world.sabotage(Sabotage::Reordered) {
                    model.pieces.swap(swapped, swapped + 1);
                }
            }
        }
        down.map_or(Ok(()), Err)
    }

    pub(super) fn close(&mut self, which: usize) -> Result<(), Down> {
        if self.streams.iter().filter(|model| model.closed == Truth::Yes).count() > 4 {
            return self.delete(which);
        }
        let with_body = self.chance(50);
        let model = &mut self.streams[which];
        let mut headers = vec![("stream-closed", "true")];
        let mut bytes = Vec::new();
        if with_body {
            headers.push(("content-type", model.format.media_type()));
            let messages = vec![Message { seed: self.rng.rand_u64(), len: 64 }];
            bytes = body(&messages, model.format);
            model.pieces.push(Piece { messages, there: Truth::Maybe, closes: true, end: None, sent_by: None });
        }
        if !with_body && self.session.world.sabotage(Sabotage::Reopened) {
            model.closed = Truth::Yes;
            return Ok(());
        }
        model.closed = Truth::Maybe;
        let request = Request::new("POST", &model.path, &headers, &bytes);
        let answer = self.session.call(&request)?;
        let model = &mut self.streams[which];
        if !matches!(answer.status, 200 | 204) {
            model.closed = Truth::No;
            if with_body {
                model.pieces.pop();
            }
            let model = model.clone();
            return self.refused(&answer, &request, &model);
        }
        model.closed = Truth::Yes;
        if with_body && let Some(piece) = model.pieces.last_mut() {
            piece.there = Truth::Yes;
            piece.end = answer.position();
        }
        self.count("closes");
        Ok(())
    }

    pub(super) fn append_to_closed(&mut self, which: usize) -> Result<(), Down> {
        let model = &self.streams[which];
        let request = Request::new("POST", &model.path, &[("content-type", model.format.media_type())], b"12345");
        let answer = self.session.call(&request)?;
        if answer.status != 409 || !answer.is_true("stream-closed") {
            self.violation(format!(
                "{}: the stream is closed, but the answer is {} {:?}",
                request.line,
                answer.status,
                answer.text()
            ));
        }
        self.count("appends to closed streams refused");
        Ok(())
    }

    pub(super) fn fork(&mut self, which: usize) -> Result<(), Down> {
        let source = &self.streams[which];
        let boundaries: Vec<usize> = (0..source.pieces.len()).filter(|i| source.pieces[*i].end.is_some()).collect();
        if boundaries.is_empty() || !source.settled() {
            return Ok(());
        }
        let at = boundaries[self.pick(boundaries.len())];
        let source = &self.streams[which];
        let Some(offset) = source.pieces[at].end.clone() else { return Ok(()) };
        // A fork inside a batch: so many messages past the position.
        let next = source.pieces.get(at + 1).map_or(0, |piece| piece.messages.len());
        let past =
            if source.format == Format::Json && !self.world().tolerates("fork") { self.pick(next + 1) } else { 0 };
        let source = &mut self.streams[which];
        source.has_forks = true;
        let (inherited, path, format) = (source.content_until(at + 1, past), source.path.clone(), source.format);
        self.names += 1;
        let mut model = Model::new(format!("/v1/stream/crash/w{}/f{}", self.number, self.names), format);
        model.inherited = Arc::from(inherited);
        let past_text = past.to_string();
        let mut headers = vec![("stream-forked-from", path.as_str()), ("stream-fork-offset", offset.as_str())];
        if past > 0 {
            headers.push(("stream-fork-sub-offset", past_text.as_str()));
        }
        self.put(model, &headers)?;
        self.count("forks");
        Ok(())
    }

    pub(super) fn delete(&mut self, which: usize) -> Result<(), Down> {
        let path = self.streams[which].path.clone();
        let request = Request::new("DELETE", &path, &[], &[]);
        if self.world().sabotage(Sabotage::Vanished) {
            self.session.call(&request)?;
            return Ok(());
        }
        self.streams[which].exists = Truth::Maybe;
        let answer = if self.world().sabotage(Sabotage::Revived) { None } else { Some(self.session.call(&request)?) };
        let model = self.streams.remove(which);
        match answer {
            Some(answer) if answer.status != 204 => {
                let refused = model.clone();
                self.streams.push(Model { exists: Truth::Yes, ..model });
                return self.refused(&answer, &request, &refused);
            }
            _ => {}
        }
        self.count("deletes");
        self.bury(model);
        Ok(())
    }

    pub(super) fn bury(&mut self, mut model: Model) {
        self.gone.push(model.path.clone());
        if model.has_forks {
            self.buried.push(model.path);
            return;
        }
        model.exists = Truth::No;
        let ends = model.pieces.iter().rev().filter_map(|piece| piece.end.clone()).take(3);
        model.old_positions = ends.chain(model.old_positions.drain(..)).take(6).collect();
        model.old_tags = model.tags.drain(..).chain(model.old_tags.drain(..)).take(4).collect();
        self.dead.push(model);
        if self.dead.len() > 200 {
            self.dead.remove(0);
        }
    }

    /// The same name again, with other content: nothing of before may shine through.
    pub(super) fn recreate(&mut self) -> Result<(), Down> {
        let which = self.pick(self.dead.len());
        let old = self.dead.remove(which);
        let mut model = Model::new(old.path, Format::ALL[self.pick(3)]);
        model.old_positions = old.old_positions;
        model.old_tags = old.old_tags;
        self.put(model, &[])?;
        self.count("re-creates");
        // It may have been refused, or created closed.
        let Some(which) = self.streams.len().checked_sub(1).filter(|last| self.streams[*last].closed == Truth::No)
        else {
            return Ok(());
        };
        self.append(which)?;
        let model = &mut self.streams[which];
        if let Some(end) = model.pieces.first().and_then(|piece| piece.end.clone())
            && model.pieces.len() > 1
            && self.session.world.sabotage(Sabotage::Stale)
        {
            model.old_positions.push(end);
        }
        self.check_old_positions(which)
    }

    pub(super) fn messages(&mut self, format: Format) -> Vec<Message> {
        let many = if format == Format::Json && self.chance(30) { self.pick(6) + 2 } else { 1 };
        (0..many).map(|_| Message::random(&mut self.rng)).collect()
    }

    /// An answer that refuses: allowed when the server says that it is busy or full, else a fault.
    pub(super) fn refused(&self, answer: &Answer, request: &Request, model: &Model) -> Result<(), Down> {
        if matches!(answer.status, 429 | 503 | 507) {
            self.count("refused for now");
            std::thread::sleep(std::time::Duration::from_millis(20));
            return Ok(());
        }
        self.violation(format!(
            "{} ({:?}, exists {:?}, closed {:?}): {} {:?}",
            request.line,
            model.format,
            model.exists,
            model.closed,
            answer.status,
            answer.text()
        ));
        Err(Down)
    }
}
