//! Compares a restored server with the models of before and after the backup.

use super::{Snapshot, afterlife};
use crate::http::Request;
use crate::model::{Model, Truth, difference};
use crate::numbered::{self, Read};
use crate::session::Session;
use std::collections::BTreeMap;

const ROOT: &str = "/v1/stream/";
const UNREACHABLE: &str = "it went away";

/// Names and whether they are closed.
pub(super) struct Restored {
    listed: BTreeMap<String, bool>,
}

impl Restored {
    pub(super) fn read(session: &mut Session<'_>) -> Result<Self, String> {
        let (mut listed, mut after) = (BTreeMap::new(), String::new());
        loop {
            let path = format!("{ROOT}__ds/streams?prefix=crash/&limit=50&after={after}");
            let answer = session.call(&Request::get(&path)).map_err(|_| UNREACHABLE)?;
            let page = answer.json();
            for stream in page["streams"].as_array().into_iter().flatten() {
                let name = stream["name"].as_str().unwrap_or_default().to_owned();
                listed.insert(format!("{ROOT}{name}"), stream["closed"] == true);
            }
            match page["next"].as_str() {
                Some(next) => next.clone_into(&mut after),
                None if answer.status == 200 => return Ok(Self { listed }),
                None => return Err(format!("GET {path}: {} {:?}", answer.status, answer.text())),
            }
        }
    }

    /// Compares the streams of all owners; how many that were.
    pub(super) fn compare(
        &self,
        session: &mut Session<'_>,
        before: &[Snapshot],
        after: &[Snapshot],
    ) -> Result<(), String> {
        let find = |snapshots: &'_ [Snapshot], path: &str| -> Option<Model> {
            snapshots.iter().flat_map(|one| &one.streams).find(|model| model.path == path).cloned()
        };
        let gone = |path: &str| after.iter().any(|one| one.gone.iter().any(|gone| gone == path));
        for path in self.listed.keys().filter(|path| path.starts_with("/v1/stream/crash/w")) {
            if path != "/v1/stream/crash/wake" && !gone(path) && find(after, path).is_none() {
                return Err(format!("{path} was deleted before, or never made, but is there"));
            }
        }
        for later in after.iter().flat_map(|one| &one.streams).filter(|model| !gone(&model.path)) {
            let earlier = find(before, &later.path);
            let Some(closed) = self.listed.get(&later.path) else {
                match earlier {
                    Some(earlier) if earlier.exists == Truth::Yes => {
                        return Err(format!("{} was there before, but is not", later.path));
                    }
                    _ => continue,
                }
            };
            let content = content(session, later)?;
            let pieces =
                is_between(earlier.as_ref(), later, &content).map_err(|what| format!("{}: {what}", later.path))?;
            let must_be_closed = earlier.is_some_and(|earlier| earlier.closed == Truth::Yes);
            if (must_be_closed && !closed) || (*closed && later.closed == Truth::No) {
                return Err(format!("{}: closed should not be {closed}", later.path));
            }
            if let Some(pieces) = pieces {
                afterlife::check(session, later, pieces, *closed)?;
            }
        }
        Ok(())
    }

    /// Compares numbered streams: earlier content is there, and of sequential writes a beginning. How many streams
    /// there are in all, and how many of these writes.
    pub(super) fn compare_history(
        &self,
        session: &mut Session<'_>,
        before: &BTreeMap<String, u64>,
        history: &[(String, u64)],
    ) -> Result<(u64, u64), String> {
        let mut there: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, _) in history {
            if there.contains_key(name.as_str()) || !self.listed.contains_key(&format!("{ROOT}{name}")) {
                continue;
            }
            let lines = match numbered::read(session, &format!("{ROOT}{name}"), "-1").map_err(|_| UNREACHABLE)? {
                Read::Lines(None, _) => 0,
                Read::Lines(Some((0, next)), _) => next,
                Read::Lines(Some((first, _)), _) => return Err(format!("{name} begins with line {first}")),
                Read::Refused(answer) => return Err(format!("{name}: {} {:?}", answer.status, answer.text())),
            };
            there.insert(name, lines);
        }
        let of = |name: &str| there.get(name).copied().unwrap_or(0);
        for (name, lines) in before {
            if of(name) < *lines {
                return Err(format!("{name}: {lines} lines were there before, {} are now", of(name)));
            }
        }
        let mut missing: Option<&(String, u64)> = None;
        let mut found = 0;
        for write in history {
            match missing {
                _ if of(&write.0) < write.1 => missing = missing.or(Some(write)),
                Some(missed) => {
                    return Err(format!("{write:?} is there, but {missed:?}, which was answered before, is not"));
                }
                None => found += 1,
            }
        }
        Ok((self.listed.len() as u64, found))
    }
}

fn content(session: &mut Session<'_>, model: &Model) -> Result<Vec<u8>, String> {
    let (mut content, mut at) = (Vec::new(), "-1".to_owned());
    loop {
        let path = format!("{}?offset={at}", model.path);
        let answer = session.call(&Request::get(&path)).map_err(|_| UNREACHABLE)?;
        if answer.status != 200 {
            return Err(format!("GET {path}: {} {:?}", answer.status, answer.text()));
        }
        model.format.normalise(&answer.body, &mut content)?;
        if answer.is_true("stream-up-to-date") {
            return Ok(content);
        }
        at = answer.position().unwrap_or_default();
    }
}

/// Whether content is at least that of before the backup, at most that of after it, and ends between two appends. How
/// many appends it has, if none of them was in doubt.
fn is_between(before: Option<&Model>, after: &Model, content: &[u8]) -> Result<Option<usize>, String> {
    if let Some(before) = before {
        // A write in doubt at that time is decided by now, or never happened.
        let sure: Vec<u8> = if before.settled() { before.content_until(before.pieces.len(), 0) } else { Vec::new() };
        if !content.starts_with(&sure) {
            return Err(difference("what was there before", &sure, content));
        }
    }
    if after.settled() {
        let all = after.content_until(after.pieces.len(), 0);
        if !all.starts_with(content) {
            return Err(difference("a beginning of the content", &all, content));
        }
        let (mut at, mut pieces) = (after.inherited.len(), 0);
        for piece in &after.pieces {
            if at >= content.len() {
                break;
            }
            let mut bytes = Vec::new();
            piece.messages.iter().for_each(|message| message.expected(after.format, &mut bytes));
            (at, pieces) = (at + bytes.len(), pieces + 1);
        }
        let whole = content.len() == at;
        return if whole { Ok(Some(pieces)) } else { Err(format!("its {} bytes end inside an append", content.len())) };
    }
    let mut beginning = after.clone();
    loop {
        if beginning.clone().reconcile(content).is_ok() {
            return Ok(None);
        }
        if beginning.pieces.pop().is_none() {
            let all = after.content_until(after.pieces.len(), 0);
            return Err(difference("a beginning of the content", &all, content));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{Format, Message};
    use crate::model::Piece;

    fn model(seeds: &[u64]) -> Model {
        let piece = |seed: &u64| Piece {
            messages: vec![Message { seed: *seed, len: 40 }],
            there: Truth::Yes,
            closes: false,
            end: None,
            sent_by: None,
        };
        let mut model = Model::new("s".to_owned(), Format::Binary);
        (model.exists, model.pieces) = (Truth::Yes, seeds.iter().map(piece).collect());
        model
    }

    fn content(seeds: &[u64]) -> Vec<u8> {
        model(seeds).content_until(seeds.len(), 0)
    }

    #[test]
    fn a_backup_has_all_of_before_and_a_beginning_of_after() {
        let (before, after) = (model(&[1, 2]), model(&[1, 2, 3, 4]));
        for seeds in [&[1, 2][..], &[1, 2, 3], &[1, 2, 3, 4]] {
            is_between(Some(&before), &after, &content(seeds)).unwrap();
        }
        assert_eq!(is_between(None, &after, &content(&[])), Ok(Some(0)));
        assert_eq!(is_between(Some(&before), &after, &content(&[1, 2, 3])), Ok(Some(3)));
    }

    #[test]
    fn a_backup_that_misses_adds_cuts_or_leaves_out_is_found() {
        let (before, after) = (model(&[1, 2]), model(&[1, 2, 3, 4]));
        for seeds in [&[1][..], &[1, 2, 4], &[1, 2, 3, 4, 5], &[2, 1]] {
            assert!(is_between(Some(&before), &after, &content(seeds)).is_err(), "{seeds:?}");
        }
        assert!(is_between(Some(&before), &after, &content(&[1, 2, 3])[..100]).is_err());
    }
}
