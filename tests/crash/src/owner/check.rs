//! Compares what the server shows with the model.

use super::Owner;
use crate::http::{Answer, Request};
use crate::model::{Model, Truth, difference};
use crate::session::Down;
use crate::world::Sabotage;

impl Owner<'_> {
    pub(super) fn check_old_positions(&mut self, which: usize) -> Result<(), Down> {
        let model = self.streams[which].clone();
        if model.exists != Truth::Yes || self.world().tolerates("stale") {
            return Ok(());
        }
        for old in &model.old_positions {
            let answer = self.session.call(&Request::get(&format!("{}?offset={old}", model.path)))?;
            if !matches!(answer.status, 400 | 404 | 409 | 410 | 416) {
                self.violation(format!(
                    "{}: position {old} is of a deleted stream of that name, but is answered {} with {} bytes",
                    model.path,
                    answer.status,
                    answer.body.len()
                ));
            }
            self.count("old positions refused");
        }
        for tag in &model.old_tags {
            let request = Request::new("GET", &format!("{}?offset=-1", model.path), &[("if-none-match", tag)], &[]);
            if self.session.call(&request)?.status == 304 {
                self.violation(format!(
                    "{}: the tag {tag} of a deleted stream of that name is answered 304",
                    model.path
                ));
            }
            self.count("old tags refused");
        }
        Ok(())
    }

    pub(super) fn read_from_the_middle(&mut self, which: usize) -> Result<(), Down> {
        let count = self.streams[which].pieces.len();
        let at = self.pick(count);
        let model = &self.streams[which];
        let Some(end) = model.pieces.get(at).and_then(|piece| piece.end.clone()) else { return Ok(()) };
        if !model.settled() {
            return Ok(());
        }
        let model = model.clone();
        match self.read(&model, &end)? {
            Ok((content, _)) => {
                let skipped = model.content_until(at + 1, 0).len();
                let all = model.content_until(model.pieces.len(), 0);
                if content != all[skipped..] {
                    self.violation(format!(
                        "{} from {end}: {}",
                        model.path,
                        difference("the content", &all[skipped..], &content)
                    ));
                }
                self.count("reads from the middle");
            }
            Err(answer) => self.violation(format!("{} from {end}: {} {:?}", model.path, answer.status, answer.text())),
        }
        Ok(())
    }

    /// Reads to the end, page by page; the content and whether the stream says that it is closed. Err: the refusal.
    pub(super) fn read(&mut self, model: &Model, from: &str) -> Result<Result<(Vec<u8>, bool), Answer>, Down> {
        let (mut content, mut offset) = (Vec::new(), from.to_owned());
        loop {
            let plain = Request::get(&format!("{}?offset={offset}", model.path));
            let asked = if self.chance(40) { plain.with("accept-encoding", "gzip") } else { plain.clone() };
            let mut answer = self.session.call(&asked)?;
            if answer.status != 200 {
                return Ok(Err(answer));
            }
            if answer.compressed {
                self.compare_with_plain(&plain, &mut answer)?;
            }
            if let Err(error) = model.format.normalise(&answer.body, &mut content) {
                self.violation(format!("{} at {offset}: {error}", model.path));
                return Err(Down);
            }
            if let Some(tag) = answer.header("etag")
                && let Some(known) = self.streams.iter_mut().find(|known| known.path == model.path)
                && known.tags.len() < 4
            {
                known.tags.push(tag.to_owned());
            }
            let next = answer.position().unwrap_or_default();
            if answer.is_true("stream-up-to-date") {
                return Ok(Ok((content, answer.is_true("stream-closed"))));
            }
            if next == offset || next.is_empty() {
                self.violation(format!("{} at {offset}: neither up to date nor a next position", model.path));
                return Err(Down);
            }
            offset = next;
        }
    }

    /// Compressed or not, an answer says the same.
    fn compare_with_plain(&mut self, plain: &Request, answer: &mut Answer) -> Result<(), Down> {
        self.count("compressed answers");
        if self.world().sabotage(Sabotage::Garbled)
            && let Some(byte) = answer.body.get_mut(1_000)
        {
            *byte ^= 1;
        }
        if !self.chance(30) && !self.world().is_spoiled() {
            return Ok(());
        }
        let uncompressed = self.session.call(plain)?;
        if uncompressed.compressed
            || uncompressed.body != answer.body
            || uncompressed.position() != answer.position()
            || uncompressed.is_true("stream-up-to-date") != answer.is_true("stream-up-to-date")
        {
            self.violation(format!(
                "{}: {} and compressed it is not the same",
                plain.line,
                difference("what is plain", &uncompressed.body, &answer.body)
            ));
        }
        self.count("compressed answers compared");
        Ok(())
    }

    /// Compares a stream with its model, and resolves operations in doubt.
    pub(super) fn check(&mut self, which: usize) -> Result<(), Down> {
        if self.streams[which].exists == Truth::Yes {
            self.settle_produced(which)?;
        }
        let model = self.streams[which].clone();
        let (content, closed) = match self.read(&model, "-1")? {
            Ok(read) => read,
            Err(answer) => {
                let gone = matches!(answer.status, 404 | 410);
                if gone && model.exists == Truth::Maybe {
                    let model = self.streams.remove(which);
                    self.count("operations in doubt settled");
                    self.bury(model);
                } else {
                    self.violation(format!("{} must be there, but: {} {:?}", model.path, answer.status, answer.text()));
                }
                return Ok(());
            }
        };
        let model = &mut self.streams[which];
        let in_doubt = !model.settled();
        if let Err(difference) = model.reconcile(&content) {
            let what = format!("{}: {difference}", model.path);
            self.violation(what);
            return Ok(());
        }
        model.exists = Truth::Yes;
        let expected = model.closed;
        model.closed = if closed { Truth::Yes } else { Truth::No };
        if expected != Truth::Maybe && expected != model.closed {
            let by = match model.pieces.last() {
                Some(last) if last.closes => "with its last append",
                _ => "by itself",
            };
            let what = format!("{}: closed {by}: should be {expected:?}, but is {:?}", model.path, model.closed);
            self.violation(what);
        }
        self.world().report.add("bytes compared", content.len() as u64);
        self.count("streams compared");
        if in_doubt {
            self.count("operations in doubt settled");
        }
        Ok(())
    }

    pub(super) fn after_restart(&mut self) -> Result<(), Down> {
        // A delete or create in doubt changes the list: from the back, so that later items keep their places.
        for which in (0..self.streams.len()).rev() {
            let doubtful = !self.streams[which].settled();
            if doubtful || self.chance(50) {
                self.check(which)?;
            }
            if which < self.streams.len()
                && self.streams[which].exists == Truth::Yes
                && self.streams[which].closed == Truth::No
            {
                self.retry(which)?;
            }
            if which < self.streams.len() && self.chance(30) {
                self.check_old_positions(which)?;
            }
        }
        self.check_list()?;
        for _ in 0..10 {
            let which = self.pick(self.dead.len());
            if let Some(path) = self.dead.get(which).map(|model| model.path.clone()) {
                self.must_be_gone(&path)?;
            }
        }
        Ok(())
    }

    pub(super) fn must_be_gone(&mut self, path: &str) -> Result<(), Down> {
        let answer = self.session.call(&Request::get(&format!("{path}?offset=-1")))?;
        if !matches!(answer.status, 404 | 410) {
            self.violation(format!("{path} was deleted, but is answered {}", answer.status));
        }
        self.count("deleted streams still gone");
        Ok(())
    }

    pub(super) fn last_check(&mut self) -> Result<(), Down> {
        for which in (0..self.streams.len()).rev() {
            self.check(which)?;
            if which < self.streams.len() {
                self.check_old_positions(which)?;
            }
        }
        self.check_list()?;
        let gone: Vec<String> =
            self.dead.iter().map(|model| model.path.clone()).chain(self.buried.iter().cloned()).collect();
        for path in gone {
            self.must_be_gone(&path)?;
        }
        Ok(())
    }
}
