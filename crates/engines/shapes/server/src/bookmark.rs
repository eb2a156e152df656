//! The durable record of the source: its history, and the position up to which Postgres was told that it may forget
//! changes.
//!
//! Postgres is told of a position only after that position is durable here. So a slot that begins later was moved by
//! another program, and has skipped changes.

use crate::format::note::SourceNote;
use crate::store::{Store, StoreError};
use parking_lot::Mutex;
use thalweg_base::Lsn;
use thalweg_pg::PgLsn;
use thalweg_shapes_model::history::{Anchor, SourceIdentity};

#[derive(Debug, Default)]
pub(crate) struct Bookmark(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    note: Option<SourceNote>,
    /// Why the history that is noted cannot go on, if the stream has shown that.
    broken: Option<String>,
    /// Clients have seen no changes of the history beyond this LSN, except stored ones. `None`, unknown: the last run
    /// ended without a clean stop, and no stream was followed since.
    shown_at_most: Option<PgLsn>,
}

impl Bookmark {
    /// Takes the note that the start found in the store.
    pub(crate) fn found(&self, note: Option<SourceNote>) {
        let mut state = self.0.lock();
        state.shown_at_most = note.as_ref().is_none_or(|note| note.clean).then_some(PgLsn::ZERO);
        state.note = note;
    }

    /// Clients have seen no changes beyond this LSN, except stored ones. `None`: unknown.
    pub(crate) fn shown_at_most(&self) -> Option<PgLsn> {
        self.0.lock().shown_at_most
    }

    /// Notes a clean stop, if every change that clients were shown is in the store: those of this run were handed to it
    /// before, and all changes up to `processed` were applied.
    /// `anchor`, `recent`: as in [`Self::acknowledge`].
    pub(crate) fn close(
        &self,
        store: &Store,
        processed: PgLsn,
        anchor: Option<Anchor>,
        recent: Vec<u32>,
    ) -> Result<(), StoreError> {
        // Changes that an earlier run showed before an unclean end may not have come again: they are still unknown.
        let is_known = self.shown_at_most().is_some_and(|shown| shown <= processed.next());
        if !is_known {
            return Ok(());
        }
        let noted = self.change(store, |note| (note.clean, note.anchor, note.recent) = (true, anchor, recent))?;
        store.wait_unless_full(noted)
    }

    pub(crate) fn note(&self) -> Option<SourceNote> {
        self.0.lock().note.clone()
    }

    pub(crate) fn broken(&self) -> Option<String> {
        self.0.lock().broken.clone()
    }

    /// The history that is noted cannot go on: the next connection begins another one.
    pub(crate) fn break_off(&self, why: String) {
        self.0.lock().broken = Some(why);
    }

    /// Another history begins: the slot has everything after `confirmed`. Durable when this returns.
    pub(crate) fn begin(&self, store: &Store, identity: SourceIdentity, confirmed: PgLsn) -> Result<(), StoreError> {
        let note =
            SourceNote { identity, acknowledged: Some(confirmed.0), anchor: None, recent: Vec::new(), clean: false };
        let noted = {
            let mut state = self.0.lock();
            let noted = store.put_source(&note)?;
            (state.note, state.broken, state.shown_at_most) = (Some(note), None, Some(PgLsn::ZERO));
            noted
        };
        store.wait(noted)
    }

    /// The history goes on, perhaps by another name: on another timeline. Durable when this returns. `end`: the end of
    /// the server's WAL, and so an upper bound of the changes that an earlier run has shown of the same timeline.
    pub(crate) fn go_on(
        &self,
        store: &Store,
        identity: SourceIdentity,
        confirmed: PgLsn,
        end: PgLsn,
    ) -> Result<(), StoreError> {
        // Read and written under one lock: other threads change the note, too.
        let noted = {
            let mut state = self.0.lock();
            let known = state.note.as_ref();
            let before = known.and_then(|note| note.acknowledged);
            let anchor = known.and_then(|note| note.anchor);
            let recent = known.map(|note| note.recent.clone()).unwrap_or_default();
            let note =
                SourceNote { identity, acknowledged: before.or(Some(confirmed.0)), anchor, recent, clean: false };
            let noted = if known == Some(&note) { Lsn::ZERO } else { store.put_source(&note)? };
            state.note = Some(note);
            state.shown_at_most.get_or_insert(end);
            noted
        };
        store.wait(noted)
    }

    /// Postgres may be told of `position` when the returned frame is durable.
    /// `recent`: the xids of the last transactions that were read.
    pub(crate) fn acknowledge(
        &self,
        store: &Store,
        position: PgLsn,
        anchor: Option<Anchor>,
        recent: Vec<u32>,
    ) -> Result<Lsn, StoreError> {
        self.change(store, |note| {
            // After a crash of Postgres its slot begins earlier than at the last position it was told.
            let acknowledged = note.acknowledged.max(Some(position.0));
            (note.acknowledged, note.anchor, note.recent) = (acknowledged, anchor, recent);
        })
    }

    /// The publication's version at the last check; empty: none is known.
    pub(crate) fn publication(&self) -> String {
        self.0.lock().note.as_ref().map(|note| note.identity.publication_version.clone()).unwrap_or_default()
    }

    /// The publication is this now.
    pub(crate) fn set_publication(&self, store: &Store, version: &str) -> Result<(), StoreError> {
        if self.publication() == version {
            return Ok(());
        }
        self.change(store, |note| version.clone_into(&mut note.identity.publication_version)).map(drop)
    }

    fn change(&self, store: &Store, change: impl FnOnce(&mut SourceNote)) -> Result<Lsn, StoreError> {
        let mut state = self.0.lock();
        let Some(note) = &state.note else { return Ok(Lsn::ZERO) };
        let mut note = note.clone();
        change(&mut note);
        let end = store.put_source(&note)?;
        state.note = Some(note);
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::unit;

    #[test]
    fn a_stop_is_clean_only_if_all_that_was_shown_has_come_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(unit::open(folder.path())).unwrap();
        let identity = SourceIdentity {
            system: "7".into(),
            timeline: 1,
            branches: Vec::new(),
            database: "db".into(),
            database_oid: Some(5),
            slot: "slot".into(),
            publication: "publication".into(),
            publication_version: String::new(),
        };
        let start = |note: Option<SourceNote>| {
            let bookmark = Bookmark::default();
            bookmark.found(note);
            bookmark
        };
        let run = start(None);
        run.begin(&store, identity.clone(), PgLsn(100)).unwrap();
        // It shows changes up to 200, and is killed. The next run follows a log that ends at 300, and reads up to 160.
        let run = start(run.note());
        assert_eq!(run.shown_at_most(), None);
        run.go_on(&store, identity.clone(), PgLsn(100), PgLsn(300)).unwrap();
        run.close(&store, PgLsn(160), None, Vec::new()).unwrap();
        let run = start(run.note());
        assert_eq!(run.shown_at_most(), None, "what clients saw beyond 160 is still unknown");
        run.go_on(&store, identity, PgLsn(100), PgLsn(310)).unwrap();
        let anchor = Anchor { lsn: 305, xid: 9, time: 1 };
        run.close(&store, PgLsn(309), Some(anchor), vec![7]).unwrap();
        let run = start(run.note());
        assert_eq!(run.shown_at_most(), Some(PgLsn::ZERO));
        let note = run.note().unwrap();
        assert_eq!((note.anchor, note.recent), (Some(anchor), vec![7]), "the last transaction is known");
    }
}
