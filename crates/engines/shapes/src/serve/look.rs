//! What a request gets of a shape as it is now, or what it has to wait for.

use crate::format::offset::{From, ShapeOffset};
use crate::read::Wanted;
use crate::shape::{Failure, Phase, State};
use std::sync::Arc;

/// An answer with messages, perhaps none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// `None`: there are no messages before the control message.
    pub(crate) wanted: Option<Wanted>,
    /// The position asked for lies inside of the first entry: what is before it is left out.
    pub(crate) skip: Option<ShapeOffset>,
    /// The position after the answer.
    pub(crate) end: ShapeOffset,
    /// The snapshot ends here.
    pub(crate) snapshot_end: bool,
    /// Everything that there is has been told; the LSN below which that is true.
    pub(crate) up_to_date: Option<u64>,
}

/// What a look at a shape comes to.
#[derive(Clone, Debug)]
pub(crate) enum Look {
    Answer(Answer),
    /// Rows are on their way.
    WaitForRows,
    /// There is nothing new. (An answer without messages, if the time is up.)
    WaitForChange(Answer),
    /// The position is after everything that there is: a crash may have taken what came before it, and Postgres sends it again.
    Beyond,
    Failed(Arc<Failure>),
    Gone,
}

/// Looks at a shape. `processed`: asked for before the state was locked.
pub(crate) fn look(state: &State, from: From, live: bool, processed: u64) -> Look {
    match &state.phase {
        Phase::Failed(failure) => return Look::Failed(Arc::clone(failure)),
        Phase::Gone => return Look::Gone,
        Phase::Preparing | Phase::Snapshotting | Phase::Live => {}
    }
    let processed = state.complete(processed);
    // What is known of a shape is durable when its first chunk is.
    if state.chunks.is_empty() {
        return Look::WaitForRows;
    }
    match from {
        From::Start => chunk(state, 0),
        From::Now => Look::Answer(nothing(state, state.tail(), processed)),
        From::After(offset) if offset.is_snapshot() && offset.op != ShapeOffset::END => {
            let next = offset.op.saturating_add(1);
            if next < state.chunks.len() as u64 {
                chunk(state, next as usize)
            } else if !state.is_live() {
                Look::WaitForRows
            } else if next > state.chunks.len() as u64 {
                Look::Beyond
            } else {
                changes(state, ShapeOffset::SNAPSHOT_END, offset, live, processed)
            }
        }
        From::After(_) if !state.is_live() => Look::WaitForRows,
        From::After(offset) if offset > state.tail() => Look::Beyond,
        From::After(offset) => changes(state, offset, offset, live, processed),
    }
}

/// A chunk of the snapshot. Never up to date, so that caches can keep it for long.
fn chunk(state: &State, n: usize) -> Look {
    let from = n.checked_sub(1).and_then(|before| state.chunks.get(before)).copied().unwrap_or(0);
    let (Some(upto), Some(log)) = (state.chunks.get(n).copied(), state.log) else { return Look::WaitForRows };
    // A chunk that is shown before the snapshot is complete has another one after it.
    let is_last = n + 1 == state.chunks.len() && state.is_live();
    Look::Answer(Answer {
        wanted: (upto > from).then_some(Wanted::Rows { log, from, upto }),
        skip: None,
        end: ShapeOffset::chunk(n as u64),
        snapshot_end: is_last,
        up_to_date: None,
    })
}

/// Changes after `from`. `asked`: what the client said, which it gets back if there are none.
fn changes(state: &State, from: ShapeOffset, asked: ShapeOffset, live: bool, processed: u64) -> Look {
    let part = state.entries.after(from);
    let Some(last) = part.entries.last() else {
        let end = if asked.is_snapshot() { ShapeOffset::SNAPSHOT_END } else { asked };
        let nothing = nothing(state, end, processed);
        return if live { Look::WaitForChange(nothing) } else { Look::Answer(nothing) };
    };
    let inside = part.entries.first().is_some_and(|first| first.lsn == from.lsn && from.op != ShapeOffset::END);
    let known = state.complete(if live { last.lsn } else { processed.max(part.end.lsn) });
    Look::Answer(Answer {
        wanted: Some(Wanted::Changes { entries: part.entries.to_vec(), whole: part.whole }),
        skip: inside.then_some(from),
        end: part.end,
        snapshot_end: false,
        up_to_date: part.at_tail.then_some(known),
    })
}

fn nothing(state: &State, end: ShapeOffset, processed: u64) -> Answer {
    let known = state.complete(processed.max(end.lsn));
    Answer { wanted: None, skip: None, end, snapshot_end: false, up_to_date: Some(known) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::entries::Entry;
    use thalweg_base::LogId;

    fn state(phase: Phase, chunks: &[u64], entries: &[(u64, u32)]) -> State {
        let mut state = State::default();
        (state.phase, state.chunks, state.log) = (phase, chunks.to_vec(), Some(LogId(1)));
        state.snapshot_taken("1:1:".parse().unwrap(), 1000);
        entries.iter().for_each(|(lsn, op)| state.push(9, Entry { lsn: *lsn, at: 0, op: *op, len: 10 }, 1000));
        state
    }

    fn answer(look: Look) -> Answer {
        match look {
            Look::Answer(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn after(text: &str) -> From {
        text.parse().unwrap()
    }

    #[test]
    fn the_first_answer_is_a_chunk_of_the_snapshot_and_never_up_to_date() {
        let state = state(Phase::Live, &[100, 150], &[(7, 0)]);
        let first = answer(look(&state, From::Start, false, 50));
        assert_eq!(first.wanted, Some(Wanted::Rows { log: LogId(1), from: 0, upto: 100 }));
        assert_eq!((first.end.to_string().as_str(), first.snapshot_end, first.up_to_date), ("0_0", false, None));
        let last = answer(look(&state, after("0_0"), false, 50));
        assert_eq!((last.end.to_string().as_str(), last.snapshot_end, last.up_to_date), ("0_1", true, None));
        let changes = answer(look(&state, after("0_1"), false, 50));
        assert_eq!((changes.end.to_string().as_str(), changes.up_to_date), ("7_0", Some(50)));
    }

    #[test]
    fn an_empty_snapshot_is_an_answer() {
        let state = state(Phase::Live, &[0], &[]);
        let first = answer(look(&state, From::Start, false, 50));
        assert_eq!((first.wanted, first.snapshot_end), (None, true));
        let log = answer(look(&state, after("0_0"), false, 50));
        assert_eq!((log.end.to_string().as_str(), log.up_to_date), ("0_inf", Some(50)));
    }

    #[test]
    fn who_is_ahead_of_the_snapshot_waits() {
        let making = state(Phase::Snapshotting, &[], &[]);
        assert!(matches!(look(&making, From::Start, false, 0), Look::WaitForRows));
        assert!(matches!(look(&making, From::Now, false, 0), Look::WaitForRows));
        let streaming = state(Phase::Snapshotting, &[100], &[]);
        assert!(!answer(look(&streaming, From::Start, false, 0)).snapshot_end);
        assert!(matches!(look(&streaming, after("0_0"), false, 0), Look::WaitForRows));
        assert!(matches!(look(&streaming, after("0_inf"), false, 0), Look::WaitForRows));
    }

    #[test]
    fn live_requests_wait_and_others_are_told_that_there_is_nothing() {
        let state = state(Phase::Live, &[0], &[(7, 0)]);
        assert!(matches!(look(&state, after("7_0"), true, 90), Look::WaitForChange(_)));
        let nothing = answer(look(&state, after("7_0"), false, 90));
        assert_eq!((nothing.end, nothing.up_to_date), (ShapeOffset::new(7, 0), Some(90)));
        let live = answer(look(&state, after("0_inf"), true, 90));
        assert_eq!(live.up_to_date, Some(7), "a live answer with changes says their own LSN");
        let now = answer(look(&state, From::Now, false, 90));
        assert_eq!((now.wanted, now.end, now.up_to_date), (None, ShapeOffset::new(7, 0), Some(90)));
    }

    #[test]
    fn positions_after_the_end_are_noticed() {
        let state = state(Phase::Live, &[0], &[(7, 0)]);
        assert!(matches!(look(&state, after("8_0"), true, 90), Look::Beyond));
        assert!(matches!(look(&state, after("0_4"), false, 90), Look::Beyond));
    }
}
