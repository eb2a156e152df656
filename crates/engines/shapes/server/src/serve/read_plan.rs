//! The plan of a read: the messages that a request gets of a shape as it is now, or the event that it waits for.

use crate::read::ReadRange;
use crate::shape::{Phase, State};
use std::sync::Arc;
use thalweg_shapes_core::state::entries::Entry;
use thalweg_shapes_model::failure::Failure;
use thalweg_shapes_model::offset::{From, ShapeOffset};

/// An answer with messages, perhaps none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The base that the client goes by.
    pub(crate) base: u32,
    /// The requested position, as a position of the log: the changes after the rows follow it.
    pub(crate) after: ShapeOffset,
    /// `None`: there are no messages before the control message.
    pub(crate) range: Option<ReadRange>,
    /// The requested position lies inside of the first entry: the messages before it are left out.
    pub(crate) skip: Option<ShapeOffset>,
    /// The position after the answer.
    pub(crate) end: ShapeOffset,
    /// The snapshot ends here.
    pub(crate) snapshot_end: bool,
    /// The answer ends with the newest message; the LSN below which the client then has all changes.
    pub(crate) up_to_date: Option<u64>,
}

impl Answer {
    /// Leaves out changes beyond this many bytes: an answer may end with every entry.
    pub(crate) fn cut(&mut self, bytes_max: u64) {
        let Some(ReadRange::Changes { entries, whole }) = &mut self.range else { return };
        let mut bytes = 0;
        let begins_below = |entry: &&Entry| {
            let at: u64 = bytes;
            bytes += u64::from(entry.len);
            at < bytes_max
        };
        let count = entries.iter().take_while(begins_below).count();
        let (Some(last), Some(next)) = (count.checked_sub(1).and_then(|at| entries.get(at)), entries.get(count)) else {
            return;
        };
        *whole = next.lsn != last.lsn;
        (self.end, self.up_to_date) = (last.offset(), None);
        entries.truncate(count);
    }
}

/// The plan for a request for a position of a shape.
#[derive(Clone, Debug)]
pub(crate) enum ReadPlan {
    Answer(Answer),
    /// The requested rows are not durable yet.
    WaitForRows,
    /// No message follows the position yet. (The answer without messages, for when the time is up.)
    WaitForChange(Answer),
    /// The position is after the end of the log: a crash may have lost the changes before it, and Postgres sends them
    /// again.
    Beyond,
    Failed(Arc<Failure>),
    /// The position is no longer kept. A client that begins again with another base gets all rows.
    Past,
    Gone,
}

/// Plans a read of a shape. `base`: the one of the client's handle; `None`: it has none. `processed`: read before the
/// state was locked.
pub(crate) fn plan_read(state: &State, base: Option<u32>, from: From, live: bool, processed: u64) -> ReadPlan {
    match &state.phase {
        Phase::Failed(failure) => return ReadPlan::Failed(Arc::clone(failure)),
        Phase::Gone => return ReadPlan::Gone,
        Phase::Preparing | Phase::Snapshotting | Phase::Live => {}
    }
    let processed = state.complete(processed);
    let base = base.unwrap_or(state.newest());
    if base > state.newest() {
        return ReadPlan::Past;
    }
    // The record of a shape is durable when its first chunk is.
    if base == 0 && state.newest() == 0 && state.chunks.is_empty() {
        return ReadPlan::WaitForRows;
    }
    match from {
        From::Start => chunk(state, base, 0),
        From::Now => ReadPlan::Answer(nothing(state, base, state.tail(), processed)),
        From::After(offset) if offset.is_snapshot() => {
            let Some(rows) = state.rows(base) else { return ReadPlan::Past };
            let next = offset.op.saturating_add(1);
            if offset.op == ShapeOffset::END {
                if state.is_live() { changes(state, base, rows.end, live, processed) } else { ReadPlan::WaitForRows }
            } else if next < rows.chunks.len() as u64 {
                chunk(state, base, next as usize)
            } else if !state.is_live() {
                ReadPlan::WaitForRows
            } else if next > rows.chunks.len() as u64 {
                ReadPlan::Beyond
            } else {
                changes(state, base, rows.end, live, processed)
            }
        }
        From::After(_) if !state.is_live() => ReadPlan::WaitForRows,
        From::After(offset) if offset < state.start() => ReadPlan::Past,
        From::After(offset) if offset > state.tail() => ReadPlan::Beyond,
        From::After(offset) => changes(state, base, offset, live, processed),
    }
}

/// A chunk of rows. Never up to date, so that caches can keep it for long.
fn chunk(state: &State, base: u32, n: usize) -> ReadPlan {
    let Some(rows) = state.rows(base) else { return ReadPlan::Past };
    let from = n.checked_sub(1).and_then(|before| rows.chunks.get(before)).copied().unwrap_or(0);
    let (Some(upto), Some(log)) = (rows.chunks.get(n).copied(), rows.log) else { return ReadPlan::WaitForRows };
    // A chunk that is shown before the snapshot is complete has another one after it.
    let is_last = n + 1 == rows.chunks.len() && state.is_live();
    ReadPlan::Answer(Answer {
        base,
        after: ShapeOffset::chunk(0),
        range: (upto > from).then_some(ReadRange::Rows { log, from, upto }),
        skip: None,
        end: ShapeOffset::chunk(n as u64),
        snapshot_end: is_last,
        up_to_date: None,
    })
}

/// Changes after `from`.
fn changes(state: &State, base: u32, from: ShapeOffset, live: bool, processed: u64) -> ReadPlan {
    debug_assert!(from >= state.start(), "invariant 8: changes before the start are gone");
    let part = state.entries.after(from);
    let Some(last) = part.entries.last() else {
        let nothing = nothing(state, base, from, processed);
        return if live { ReadPlan::WaitForChange(nothing) } else { ReadPlan::Answer(nothing) };
    };
    let inside = part.entries.first().is_some_and(|first| first.lsn == from.lsn && from.op != ShapeOffset::END);
    debug_assert!(part.end > from, "an answer with changes moves the client on");
    let known = state.complete(if live { last.lsn } else { processed.max(part.end.lsn) });
    ReadPlan::Answer(Answer {
        base,
        after: from,
        range: Some(ReadRange::Changes { entries: part.entries.to_vec(), whole: part.whole }),
        skip: inside.then_some(from),
        end: part.end,
        snapshot_end: false,
        up_to_date: part.at_tail.then_some(known),
    })
}

fn nothing(state: &State, base: u32, end: ShapeOffset, processed: u64) -> Answer {
    let known = state.complete(processed.max(end.lsn));
    Answer { base, after: end, range: None, skip: None, end, snapshot_end: false, up_to_date: Some(known) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::LogId;
    use thalweg_shapes_core::state::bases::{Base, Bases};

    fn state(phase: Phase, chunks: &[u64], entries: &[(u64, u32)]) -> State {
        let mut state = State::default();
        (state.phase, state.chunks, state.log) = (phase, chunks.to_vec().into(), Some(LogId(1)));
        state.snapshot_taken(Arc::new("1:1:".parse().unwrap()), 1000);
        entries.iter().for_each(|(lsn, op)| state.push(9, Entry { lsn: *lsn, at: 0, op: *op, len: 10 }, 1000));
        state
    }

    fn answer(plan_read: ReadPlan) -> Answer {
        match plan_read {
            ReadPlan::Answer(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn after(text: &str) -> From {
        text.parse().unwrap()
    }

    #[test]
    fn the_first_answer_is_a_chunk_of_the_snapshot_and_never_up_to_date() {
        let state = state(Phase::Live, &[100, 150], &[(7, 0)]);
        let first = answer(plan_read(&state, None, From::Start, false, 50));
        assert_eq!(first.range, Some(ReadRange::Rows { log: LogId(1), from: 0, upto: 100 }));
        assert_eq!((first.end.to_string().as_str(), first.snapshot_end, first.up_to_date), ("0_0", false, None));
        let last = answer(plan_read(&state, None, after("0_0"), false, 50));
        assert_eq!((last.end.to_string().as_str(), last.snapshot_end, last.up_to_date), ("0_1", true, None));
        let changes = answer(plan_read(&state, None, after("0_1"), false, 50));
        assert_eq!((changes.end.to_string().as_str(), changes.up_to_date), ("7_0", Some(50)));
    }

    #[test]
    fn an_empty_snapshot_is_an_answer() {
        let state = state(Phase::Live, &[0], &[]);
        let first = answer(plan_read(&state, None, From::Start, false, 50));
        assert_eq!((first.range, first.snapshot_end), (None, true));
        let log = answer(plan_read(&state, None, after("0_0"), false, 50));
        assert_eq!((log.end.to_string().as_str(), log.up_to_date), ("0_inf", Some(50)));
    }

    #[test]
    fn who_is_ahead_of_the_snapshot_waits() {
        let making = state(Phase::Snapshotting, &[], &[]);
        assert!(matches!(plan_read(&making, None, From::Start, false, 0), ReadPlan::WaitForRows));
        assert!(matches!(plan_read(&making, None, From::Now, false, 0), ReadPlan::WaitForRows));
        let streaming = state(Phase::Snapshotting, &[100], &[]);
        assert!(!answer(plan_read(&streaming, None, From::Start, false, 0)).snapshot_end);
        assert!(matches!(plan_read(&streaming, None, after("0_0"), false, 0), ReadPlan::WaitForRows));
        assert!(matches!(plan_read(&streaming, None, after("0_inf"), false, 0), ReadPlan::WaitForRows));
    }

    #[test]
    fn an_answer_can_be_cut_after_every_entry() {
        let state = state(Phase::Live, &[0], &[(7, 0), (7, 2), (8, 0)]);
        let whole = answer(plan_read(&state, None, after("0_inf"), true, 90));
        let cut = |bytes_max| {
            let mut cut = whole.clone();
            cut.cut(bytes_max);
            let Some(ReadRange::Changes { entries, whole }) = cut.range else { panic!("no changes") };
            (entries.len(), whole, cut.end.to_string(), cut.up_to_date.is_some())
        };
        assert_eq!(cut(30), (3, true, "8_0".into(), true));
        assert_eq!(cut(21), (3, true, "8_0".into(), true), "what begins below the limit is told as a whole");
        assert_eq!(cut(20), (2, true, "7_2".into(), false));
        assert_eq!(cut(1), (1, false, "7_0".into(), false), "the transaction goes on");
    }

    #[test]
    fn live_requests_wait_and_others_are_told_that_there_is_nothing() {
        let state = state(Phase::Live, &[0], &[(7, 0)]);
        assert!(matches!(plan_read(&state, None, after("7_0"), true, 90), ReadPlan::WaitForChange(_)));
        let nothing = answer(plan_read(&state, None, after("7_0"), false, 90));
        assert_eq!((nothing.end, nothing.up_to_date), (ShapeOffset::new(7, 0), Some(90)));
        let live = answer(plan_read(&state, None, after("0_inf"), true, 90));
        assert_eq!(live.up_to_date, Some(7), "a live answer with changes says their own LSN");
        let now = answer(plan_read(&state, None, From::Now, false, 90));
        assert_eq!((now.range, now.end, now.up_to_date), (None, ShapeOffset::new(7, 0), Some(90)));
    }

    #[test]
    fn positions_after_the_end_are_noticed() {
        let state = state(Phase::Live, &[0], &[(7, 0)]);
        assert!(matches!(plan_read(&state, None, after("8_0"), true, 90), ReadPlan::Beyond));
        assert!(matches!(plan_read(&state, None, after("0_4"), false, 90), ReadPlan::Beyond));
    }

    /// Changes at 7, 8 and 9; base 1 has the first, base 2 the second.
    fn rebased() -> State {
        let mut state = state(Phase::Live, &[100, 150], &[(7, 0), (8, 0), (9, 0)]);
        let base = |number: u32, lsn, chunks: &[u64]| Base {
            number,
            log: LogId(u64::from(number) + 1),
            end: ShapeOffset::new(lsn, 0),
            chunks: chunks.to_vec(),
            snapshot: Box::new("1:1:".parse().unwrap()),
            shown_ms: u64::from(number) * 100,
        };
        let mut bases = Bases::new(base(1, 7, &[30]), false);
        bases.push(base(2, 8, &[20, 40]));
        state.bases = Some(Box::new(bases));
        state
    }

    #[test]
    fn who_begins_gets_the_newest_base_and_what_follows_it() {
        let state = rebased();
        let first = answer(plan_read(&state, None, From::Start, false, 50));
        assert_eq!(first.range, Some(ReadRange::Rows { log: LogId(3), from: 0, upto: 20 }));
        assert_eq!((first.base, first.snapshot_end), (2, false));
        let last = answer(plan_read(&state, Some(2), after("0_0"), false, 50));
        assert_eq!((last.end.to_string().as_str(), last.snapshot_end), ("0_1", true));
        for end in ["0_1", "0_inf", "8_0"] {
            let changes = answer(plan_read(&state, Some(2), after(end), false, 50));
            assert!(matches!(&changes.range, Some(ReadRange::Changes { entries, .. }) if entries.len() == 1));
            assert_eq!((changes.after, changes.end), (ShapeOffset::new(8, 0), ShapeOffset::new(9, 0)));
        }
        assert_eq!(answer(plan_read(&state, None, From::Now, false, 50)).base, 2);
    }

    #[test]
    fn who_began_earlier_goes_on_where_he_is() {
        let state = rebased();
        let count = |base, from: &str| match answer(plan_read(&state, Some(base), after(from), false, 50)).range {
            Some(ReadRange::Changes { entries, .. }) => entries.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            [count(0, "0_1"), count(0, "0_inf"), count(1, "0_0"), count(1, "0_inf"), count(0, "7_0")],
            [3, 3, 2, 2, 2]
        );
        let rows = answer(plan_read(&state, Some(0), after("0_0"), false, 50));
        assert_eq!(rows.range, Some(ReadRange::Rows { log: LogId(1), from: 100, upto: 150 }));
    }

    #[test]
    fn what_is_given_up_is_refused_and_never_left_out() {
        let mut state = rebased();
        if let Some(bases) = &mut state.bases {
            bases.leave(200);
        }
        let start = state.start();
        state.entries.cut(start);
        for (base, from) in [
            (0, "0_0"),
            (0, "0_1"),
            (0, "0_inf"),
            (1, "0_0"),
            (1, "0_inf"),
            (0, "7_0"),
            (1, "7_0"),
            (0, "7_inf"),
            (3, "9_0"),
        ] {
            assert!(matches!(plan_read(&state, Some(base), after(from), false, 50), ReadPlan::Past), "{base} {from}");
        }
        for base in 0..3 {
            assert_eq!(answer(plan_read(&state, Some(base), after("8_0"), false, 50)).end, ShapeOffset::new(9, 0));
            assert!(matches!(plan_read(&state, Some(base), after("9_0"), true, 50), ReadPlan::WaitForChange(_)));
        }
        assert_eq!(answer(plan_read(&state, Some(2), after("0_1"), false, 50)).end, ShapeOffset::new(9, 0));
        let tail = ShapeOffset::new(9, 0);
        state.entries.cut(tail);
        assert_eq!(state.tail(), start, "all that there is has been merged");
    }
}
