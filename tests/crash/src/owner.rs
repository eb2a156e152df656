//! A worker with streams of its own: it alone changes them, so it knows what each must hold.

use crate::content::{Format, Message, body};
use crate::http::{Answer, Request};
use crate::model::{Model, Piece, Producer, Stamp, Truth, difference};
use crate::session::{Down, Session};
use crate::world::{Sabotage, World};
use std::sync::Arc;

const LIVE_MAX: usize = 12;
const SIZE_MAX: usize = 3 << 20;

pub(crate) fn work(world: &World, number: u32, seed: u64) {
    let rng = oorandom::Rand64::new(u128::from(seed) * 1000 + u128::from(number));
    let mut owner = Owner {
        session: Session::new(world),
        number,
        rng,
        names: 0,
        streams: Vec::new(),
        dead: Vec::new(),
        buried: Vec::new(),
    };
    loop {
        let step = if world.over() { owner.last_check() } else { owner.step() };
        match step {
            Ok(()) if world.over() => return,
            Ok(()) => {}
            Err(Down) => loop {
                if !owner.session.revive() {
                    return;
                }
                if owner.after_restart().is_ok() {
                    break;
                }
            },
        }
    }
}

struct Owner<'a> {
    session: Session<'a>,
    number: u32,
    rng: oorandom::Rand64,
    names: u64,
    streams: Vec<Model>,
    /// Deleted, and free to be created again.
    dead: Vec<Model>,
    /// Deleted, with forks that may keep the name taken.
    buried: Vec<String>,
}

impl Owner<'_> {
    fn world(&self) -> &World {
        self.session.world
    }

    fn count(&self, what: &'static str) {
        self.world().report.count(what);
    }

    fn violation(&self, what: String) {
        self.world().violation(what);
    }

    fn pick(&mut self, n: usize) -> usize {
        usize::try_from(self.rng.rand_range(0..n.max(1) as u64)).unwrap_or(0)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.rng.rand_range(0..100) < percent
    }

    fn step(&mut self) -> Result<(), Down> {
        if self.streams.len() < 3 {
            return self.create();
        }
        let which = self.pick(self.streams.len());
        let open = self.streams[which].closed == Truth::No;
        if self.world().is_spoiled() {
            return self.check(which);
        }
        if self.streams[which].size() > SIZE_MAX {
            return self.delete(which);
        }
        match self.rng.rand_range(0..100) {
            0..8 if self.streams.len() < LIVE_MAX => self.create(),
            0..45 if open => self.append(which),
            0..70 if open => self.produce(which),
            70..74 if open => self.close(which),
            74..80 if self.streams.len() < LIVE_MAX => self.fork(which),
            80..84 if self.streams.len() > 4 => self.delete(which),
            84..88 if !self.dead.is_empty() => self.recreate(),
            88..92 => self.read_from_the_middle(which),
            92..94 if !open => self.append_to_closed(which),
            94..97 if open => self.retry(which),
            97..99 => self.check(which),
            _ => {
                std::thread::sleep(std::time::Duration::from_millis(2));
                Ok(())
            }
        }
    }

    // ---- operations

    fn create(&mut self) -> Result<(), Down> {
        self.names += 1;
        let format = Format::ALL[self.pick(3)];
        let model = Model::new(format!("/v1/stream/crash/w{}/s{}", self.number, self.names), format);
        self.put(model, &[])
    }

    /// Creates the stream of a model, with the first content and closure that chance gives it.
    fn put(&mut self, mut model: Model, more: &[(&str, &str)]) -> Result<(), Down> {
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
            piece.end = position(&answer);
        }
        self.count("creates");
        Ok(())
    }

    /// One or several appends at once, without a producer.
    fn append(&mut self, which: usize) -> Result<(), Down> {
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
                piece.end = position(&answer);
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

    /// Appends of an idempotent producer, pipelined.
    fn produce(&mut self, which: usize) -> Result<(), Down> {
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
    fn settle_produced(&mut self, which: usize) -> Result<(), Down> {
        let model = &self.streams[which];
        let doubtful: Vec<usize> = (0..model.pieces.len())
            .filter(|i| model.pieces[*i].there == Truth::Maybe && model.pieces[*i].sent_by.is_some())
            .collect();
        let requests: Vec<Request> = doubtful.iter().map(|i| produced(model, &model.pieces[*i])).collect();
        let (answers, down) = self.session.pipeline(&requests);
        // Appends that were done before the close that came with the last of them: on a closed stream only the closing one is
        // recognised, and all others are refused. That the close is known proves that they were taken.
        let mut before_close: Vec<usize> = Vec::new();
        for ((i, answer), request) in doubtful.into_iter().zip(answers).zip(&requests) {
            let model = &mut self.streams[which];
            let piece = &mut model.pieces[i];
            match (answer.status, piece.sent_by) {
                (200 | 204, Some(stamp)) => {
                    piece.there = Truth::Yes;
                    if answer.status == 200 {
                        piece.end = position(&answer);
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
                (409, _) if answer.is_true("stream-closed") && model.closed == Truth::Maybe => before_close.push(i),
                _ => {
                    // Whatever the reason, an append in order with a valid stamp must be taken.
                    let what = format!(
                        "{} of producer {:?}: {} {:?} (expected seq {:?})",
                        request.line,
                        piece.sent_by,
                        answer.status,
                        text(&answer),
                        answer.header("producer-expected-seq")
                    );
                    self.violation(what);
                    return Err(Down);
                }
            }
        }
        down.map_or(Ok(()), Err)
    }

    /// Repeats acknowledged appends of producers: they must be recognised, and nothing may be added.
    fn retry(&mut self, which: usize) -> Result<(), Down> {
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
                    text(answer)
                )),
            }
        }
        down.map_or(Ok(()), Err)
    }

    fn close(&mut self, which: usize) -> Result<(), Down> {
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
            piece.end = position(&answer);
        }
        self.count("closes");
        Ok(())
    }

    fn append_to_closed(&mut self, which: usize) -> Result<(), Down> {
        let model = &self.streams[which];
        let request = Request::new("POST", &model.path, &[("content-type", model.format.media_type())], b"12345");
        let answer = self.session.call(&request)?;
        if answer.status != 409 || !answer.is_true("stream-closed") {
            self.violation(format!(
                "{}: the stream is closed, but the answer is {} {:?}",
                request.line,
                answer.status,
                text(&answer)
            ));
        }
        self.count("appends to closed streams refused");
        Ok(())
    }

    fn fork(&mut self, which: usize) -> Result<(), Down> {
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

    fn delete(&mut self, which: usize) -> Result<(), Down> {
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

    fn bury(&mut self, mut model: Model) {
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
    fn recreate(&mut self) -> Result<(), Down> {
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

    // ---- checks

    fn check_old_positions(&mut self, which: usize) -> Result<(), Down> {
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

    fn read_from_the_middle(&mut self, which: usize) -> Result<(), Down> {
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
            Err(answer) => self.violation(format!("{} from {end}: {} {:?}", model.path, answer.status, text(&answer))),
        }
        Ok(())
    }

    /// Reads to the end, page by page; the content and whether the stream says that it is closed. Err: the refusal.
    fn read(&mut self, model: &Model, from: &str) -> Result<Result<(Vec<u8>, bool), Answer>, Down> {
        let (mut content, mut offset) = (Vec::new(), from.to_owned());
        loop {
            let answer = self.session.call(&Request::get(&format!("{}?offset={offset}", model.path)))?;
            if answer.status != 200 {
                return Ok(Err(answer));
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
            let next = position(&answer).unwrap_or_default();
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

    /// Compares a stream with its model, and settles what was in doubt.
    fn check(&mut self, which: usize) -> Result<(), Down> {
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
                    self.violation(format!("{} must be there, but: {} {:?}", model.path, answer.status, text(&answer)));
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

    fn after_restart(&mut self) -> Result<(), Down> {
        // A delete or create in doubt changes the list: from the back, so that what is to come keeps its place.
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
        for _ in 0..10 {
            let which = self.pick(self.dead.len());
            if let Some(path) = self.dead.get(which).map(|model| model.path.clone()) {
                self.must_be_gone(&path)?;
            }
        }
        Ok(())
    }

    fn must_be_gone(&mut self, path: &str) -> Result<(), Down> {
        let answer = self.session.call(&Request::get(&format!("{path}?offset=-1")))?;
        if !matches!(answer.status, 404 | 410) {
            self.violation(format!("{path} was deleted, but is answered {}", answer.status));
        }
        self.count("deleted streams still gone");
        Ok(())
    }

    fn last_check(&mut self) -> Result<(), Down> {
        for which in (0..self.streams.len()).rev() {
            self.check(which)?;
            if which < self.streams.len() {
                self.check_old_positions(which)?;
            }
        }
        let gone: Vec<String> =
            self.dead.iter().map(|model| model.path.clone()).chain(self.buried.iter().cloned()).collect();
        for path in gone {
            self.must_be_gone(&path)?;
        }
        Ok(())
    }

    fn messages(&mut self, format: Format) -> Vec<Message> {
        let many = if format == Format::Json && self.chance(30) { self.pick(6) + 2 } else { 1 };
        (0..many).map(|_| Message::random(&mut self.rng)).collect()
    }

    /// An answer that refuses: allowed when the server says that it is busy or full, else a fault.
    fn refused(&self, answer: &Answer, request: &Request, model: &Model) -> Result<(), Down> {
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
            text(answer)
        ));
        Err(Down)
    }
}

/// The append of an idempotent producer, as often as it is needed.
fn produced(model: &Model, piece: &Piece) -> Request {
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

fn position(answer: &Answer) -> Option<String> {
    answer.header("stream-next-offset").map(str::to_owned)
}

fn text(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).chars().take(160).collect()
}
