//! Move events: the tags of a row name the reasons for which the shape has it, and an event removes or restores a
//! reason without naming rows. This module does with bytes what clients do with both.
//!
//! A message about a row holds all of its tags and truths, so only the events after the row's last message matter.

use super::body::BodyError;
use hashbrown::HashMap;
use serde::Deserialize;

/// The reasons of a row, as its headers state them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reasons<'a> {
    /// `["…/…","…/…"]`: a tag for each alternative, with a slot for each position.
    pub tags: &'a [u8],
    /// `[true,false]`: for each position.
    pub active: &'a [u8],
}

/// The effect of events on a row.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    Stays,
    /// The row stays with these truths.
    Changed(Vec<u8>),
    Gone,
}

/// A message without a row: its headers.
#[derive(Deserialize)]
pub struct Event<'a> {
    #[serde(default)]
    event: &'a str,
    #[serde(default)]
    control: &'a str,
    #[serde(default, borrow)]
    patterns: Vec<Pattern<'a>>,
    #[serde(default)]
    pub txids: Vec<u32>,
}

#[derive(Deserialize)]
struct Pattern<'a> {
    pos: u32,
    value: &'a str,
}

/// A position, and the hash at it.
type Slot = (u32, Box<[u8]>);

/// All events of a log, by the slots that they name.
#[derive(Default)]
pub struct Moves {
    by_slot: HashMap<Slot, Vec<(u64, bool)>>,
    bytes: usize,
}

/// The approximate memory of an entry of the map.
const SLOT_BYTES: usize = 96;

impl Moves {
    /// The approximate memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.by_slot.is_empty()
    }

    /// Adds an event. `at` rises from message to message.
    pub fn take(&mut self, at: u64, event: &Event<'_>) -> Result<(), BodyError> {
        let into = match (event.event, event.control) {
            ("move-in", _) => true,
            ("move-out", _) => false,
            // The end of a move-in needs no merge: the order of messages implies it.
            ("", "snapshot-end") => return Ok(()),
            _ => return Err(BodyError::NotRows),
        };
        for pattern in &event.patterns {
            self.by_slot.entry((pattern.pos, pattern.value.as_bytes().into())).or_default().push((at, into));
            self.bytes += SLOT_BYTES + pattern.value.len();
        }
        Ok(())
    }

    /// The fate of a row whose last message was at `since`.
    pub(crate) fn fate(&self, reasons: Reasons<'_>, since: u64) -> Result<Fate, BodyError> {
        if self.is_empty() {
            return Ok(Fate::Stays);
        }
        let tags: Vec<&str> = serde_json::from_slice(reasons.tags).map_err(|_| BodyError::Form)?;
        let mut active: Vec<bool> = serde_json::from_slice(reasons.active).map_err(|_| BodyError::Form)?;
        let alternatives: Vec<Vec<(usize, &str)>> =
            tags.iter().map(|tag| tag.split('/').enumerate().filter(|(_, slot)| !slot.is_empty()).collect()).collect();
        let mut events: Vec<(u64, usize, bool)> = Vec::new();
        for (position, slot) in alternatives.iter().flatten() {
            let known = u32::try_from(*position).ok().and_then(|at| self.by_slot.get(&(at, slot.as_bytes().into())));
            let later = known.into_iter().flatten().filter(|(at, _)| *at > since);
            events.extend(later.map(|(at, into)| (*at, *position, *into)));
        }
        if events.is_empty() {
            return Ok(Fate::Stays);
        }
        events.sort_unstable();
        for together in events.chunk_by(|a, b| a.0 == b.0) {
            for (_, position, into) in together {
                *active.get_mut(*position).ok_or(BodyError::Form)? = *into;
            }
            let holds = |all: &Vec<(usize, &str)>| all.iter().all(|(at, _)| active.get(*at) == Some(&true));
            if !together.iter().all(|(_, _, into)| *into) && !alternatives.iter().any(holds) {
                return Ok(Fate::Gone);
            }
        }
        Ok(Fate::Changed(serde_json::to_vec(&active).map_err(|_| BodyError::Form)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> Event<'_> {
        serde_json::from_str(text).unwrap()
    }

    fn fate(moves: &Moves, tags: &str, active: &str, since: u64) -> Fate {
        moves.fate(Reasons { tags: tags.as_bytes(), active: active.as_bytes() }, since).unwrap()
    }

    #[test]
    fn a_row_stays_while_one_alternative_is_true() {
        let mut moves = Moves::default();
        moves.take(5, &event(r#"{"event":"move-out","patterns":[{"pos":0,"value":"a"}],"txids":[1]}"#)).unwrap();
        assert_eq!(fate(&moves, r#"["a"]"#, "[true]", 4), Fate::Gone);
        assert_eq!(fate(&moves, r#"["a"]"#, "[true]", 5), Fate::Stays, "it came later");
        assert_eq!(fate(&moves, r#"["b"]"#, "[true]", 4), Fate::Stays);
        assert_eq!(fate(&moves, r#"["a/","/1"]"#, "[true,true]", 4), Fate::Changed(b"[false,true]".to_vec()));
        assert_eq!(fate(&moves, r#"["a/","/1"]"#, "[true,false]", 4), Fate::Gone);
        moves.take(7, &event(r#"{"event":"move-in","patterns":[{"pos":0,"value":"a"}]}"#)).unwrap();
        assert_eq!(fate(&moves, r#"["a"]"#, "[true]", 4), Fate::Gone, "a removed row does not come back by itself");
        assert_eq!(fate(&moves, r#"["a/","/1"]"#, "[true,true]", 4), Fate::Changed(b"[true,true]".to_vec()));
        moves
            .take(8, &event(r#"{"event":"move-out","patterns":[{"pos":0,"value":"c"},{"pos":1,"value":"d"}]}"#))
            .unwrap();
        assert_eq!(fate(&moves, r#"["c/","/d"]"#, "[true,true]", 4), Fate::Gone, "one event takes both");
    }

    #[test]
    fn what_is_no_event_is_refused() {
        let mut moves = Moves::default();
        assert!(moves.take(1, &event(r#"{"control":"snapshot-end","xmin":"1","xip_list":[]}"#)).is_ok());
        assert_eq!(moves.take(1, &event(r#"{"control":"must-refetch"}"#)), Err(BodyError::NotRows));
        moves.take(1, &event(r#"{"event":"move-in","patterns":[{"pos":0,"value":"a"}]}"#)).unwrap();
        let bad = Reasons { tags: b"[\"a/a\"]", active: b"[" };
        assert_eq!(moves.fate(bad, 0), Err(BodyError::Form));
        assert_eq!(moves.fate(Reasons { tags: b"[\"a\"]", active: b"[]" }, 0), Err(BodyError::Form));
    }
}
