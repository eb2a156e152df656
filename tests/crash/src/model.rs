//! The model of one stream: all acknowledged operations, and those in doubt.

use crate::content::{Format, Message};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    No,
    Yes,
    /// It was asked for, and the server died before it answered.
    Maybe,
}

/// One append request: all of it is there, or nothing.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) messages: Vec<Message>,
    pub(crate) there: Truth,
    /// It closed the stream too.
    pub(crate) closes: bool,
    /// The position after it, as the server said.
    pub(crate) end: Option<String>,
    /// Which of the stream's producers sent it, in which epoch, as which number.
    pub(crate) sent_by: Option<Stamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) producer: usize,
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
}

/// An idempotent producer's next append.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Producer {
    pub(crate) epoch: u64,
    pub(crate) next_seq: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) path: String,
    pub(crate) format: Format,
    /// The content that a fork inherited, as [`Format::normalise`] shows it.
    pub(crate) inherited: Arc<[u8]>,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) producers: Vec<Producer>,
    pub(crate) exists: Truth,
    pub(crate) closed: Truth,
    /// Forks of it were made: its name may stay taken after a delete.
    pub(crate) has_forks: bool,
    /// Positions and tags of deleted streams of the same name: never to be answered with this one's bytes.
    pub(crate) old_positions: Vec<String>,
    pub(crate) old_tags: Vec<String>,
    pub(crate) tags: Vec<String>,
}

impl Model {
    pub(crate) fn new(path: String, format: Format) -> Self {
        Self {
            path,
            format,
            inherited: Arc::new([]),
            pieces: Vec::new(),
            producers: vec![Producer::default(); 2],
            exists: Truth::Maybe,
            closed: Truth::No,
            has_forks: false,
            old_positions: Vec::new(),
            old_tags: Vec::new(),
            tags: Vec::new(),
        }
    }

    pub(crate) fn settled(&self) -> bool {
        self.exists != Truth::Maybe
            && self.closed != Truth::Maybe
            && self.pieces.iter().all(|piece| piece.there == Truth::Yes)
    }

    /// Bytes of all pieces, roughly.
    pub(crate) fn size(&self) -> usize {
        self.inherited.len()
            + self.pieces.iter().flat_map(|piece| &piece.messages).map(|m| m.len as usize).sum::<usize>()
    }

    /// The content after the first `pieces` pieces and `messages` more messages.
    pub(crate) fn content_until(&self, pieces: usize, messages: usize) -> Vec<u8> {
        let mut content = self.inherited.to_vec();
        for piece in self.pieces.iter().take(pieces) {
            piece.messages.iter().for_each(|message| message.expected(self.format, &mut content));
        }
        if let Some(next) = self.pieces.get(pieces) {
            next.messages.iter().take(messages).for_each(|message| message.expected(self.format, &mut content));
        }
        content
    }

    /// Compares with the server's answer, and resolves operations in doubt accordingly.
    pub(crate) fn reconcile(&mut self, content: &[u8]) -> Result<(), String> {
        let Some(rest) = content.strip_prefix(&*self.inherited) else {
            return Err(difference("the inherited part", &self.inherited, content));
        };
        let mut present = Vec::with_capacity(self.pieces.len());
        if !fits(&self.pieces, self.format, rest, &mut present) {
            return Err(self.explain(content));
        }
        let mut verdicts = present.into_iter();
        let mut closed_by_piece = None;
        self.pieces.retain_mut(|piece| {
            let there = verdicts.next().unwrap_or(false);
            if piece.closes {
                closed_by_piece = Some(there);
            }
            piece.there = Truth::Yes;
            there
        });
        // A last append that closes is one operation: both halves or none.
        if self.closed == Truth::Maybe
            && let Some(closed) = closed_by_piece
        {
            self.closed = if closed { Truth::Yes } else { Truth::No };
        }
        Ok(())
    }

    fn explain(&self, content: &[u8]) -> String {
        let sure =
            Self { pieces: self.pieces.iter().filter(|p| p.there == Truth::Yes).cloned().collect(), ..self.clone() };
        let doubtful = self.pieces.len() - sure.pieces.len();
        let expected = sure.content_until(sure.pieces.len(), 0);
        let mut at = sure.inherited.len();
        for (number, piece) in sure.pieces.iter().enumerate() {
            let mut bytes = Vec::new();
            piece.messages.iter().for_each(|message| message.expected(self.format, &mut bytes));
            if content.get(at..at + bytes.len()) != Some(&bytes[..]) {
                return format!(
                    "{} (append {number} of {}, {} bytes; {doubtful} appends in doubt)",
                    difference("the content", &expected, content),
                    sure.pieces.len(),
                    bytes.len()
                );
            }
            at += bytes.len();
        }
        format!("{} ({doubtful} appends in doubt)", difference("the content", &expected, content))
    }
}

/// Whether the pieces give the content, leaving out some of those in doubt; `present` says which are there.
fn fits(pieces: &[Piece], format: Format, content: &[u8], present: &mut Vec<bool>) -> bool {
    let Some((piece, later)) = pieces.split_first() else {
        return content.is_empty();
    };
    let mut bytes = Vec::new();
    piece.messages.iter().for_each(|message| message.expected(format, &mut bytes));
    if let Some(rest) = content.strip_prefix(&bytes[..]) {
        present.push(true);
        if fits(later, format, rest, present) {
            return true;
        }
        present.pop();
    }
    if piece.there == Truth::Maybe {
        present.push(false);
        if fits(later, format, content, present) {
            return true;
        }
        present.pop();
    }
    false
}

pub(crate) fn difference(what: &str, expected: &[u8], got: &[u8]) -> String {
    let at = expected.iter().zip(got).position(|(a, b)| a != b).unwrap_or_else(|| expected.len().min(got.len()));
    let show =
        |bytes: &[u8]| String::from_utf8_lossy(&bytes[at.min(bytes.len())..(at + 24).min(bytes.len())]).into_owned();
    format!(
        "{what} differs at byte {at}: expected {} bytes in all, there {:?}…; got {} bytes, there {:?}…",
        expected.len(),
        show(expected),
        got.len(),
        show(got)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(seed: u64, there: Truth) -> Piece {
        Piece { messages: vec![Message { seed, len: 40 }], there, closes: false, end: None, sent_by: None }
    }

    fn model(pieces: Vec<Piece>) -> Model {
        Model { pieces, ..Model::new("s".to_owned(), Format::Binary) }
    }

    fn content(seeds: &[u64]) -> Vec<u8> {
        let model = model(seeds.iter().map(|seed| piece(*seed, Truth::Yes)).collect());
        model.content_until(seeds.len(), 0)
    }

    #[test]
    fn an_append_in_doubt_may_be_there_or_not_but_only_whole() {
        let doubtful = || model(vec![piece(1, Truth::Yes), piece(2, Truth::Maybe), piece(3, Truth::Maybe)]);
        for seeds in [&[1][..], &[1, 2], &[1, 3], &[1, 2, 3]] {
            let mut model = doubtful();
            model.reconcile(&content(seeds)).unwrap();
            assert_eq!(model.pieces.len(), seeds.len());
            assert!(model.pieces.iter().all(|piece| piece.there == Truth::Yes));
        }
        assert!(doubtful().reconcile(&content(&[1, 2])[..60]).is_err());
    }

    #[test]
    fn what_was_acknowledged_must_be_there_once_and_in_order() {
        let sure = || model(vec![piece(1, Truth::Yes), piece(2, Truth::Yes)]);
        assert!(sure().reconcile(&content(&[1, 2])).is_ok());
        for seeds in [&[1][..], &[2], &[2, 1], &[1, 2, 2], &[1, 2, 9], &[]] {
            assert!(sure().reconcile(&content(seeds)).is_err(), "{seeds:?}");
        }
    }

    #[test]
    fn an_append_that_closes_is_there_with_its_close_or_not_at_all() {
        for (seeds, closed) in [(&[1][..], Truth::No), (&[1, 2], Truth::Yes)] {
            let mut model = model(vec![piece(1, Truth::Yes), Piece { closes: true, ..piece(2, Truth::Maybe) }]);
            model.closed = Truth::Maybe;
            model.reconcile(&content(seeds)).unwrap();
            assert_eq!(model.closed, closed);
        }
    }
}
