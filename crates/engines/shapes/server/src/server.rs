//! The owners of the server's state, as its threads share them.
//!
//! | owner | state |
//! |---|---|
//! | [`Lifetime`] | the clock, the stop, the counters |
//! | [`SharedFeed`] | the state that the change path decides with |
//! | [`Watermarks`] | how far changes have come |
//! | [`Catalog`] | the shapes that requests find, and the values that new shapes share with them |
//! | [`ChangeStore`] | the kernel unit, and the copies of changes in memory |
//! | [`Source`] | the database: its connections, its bookmark, the known tables |
//! | [`MoveInFetcher`] | rows of subqueries that are being fetched |
//! | [`Retirement`] | taking shapes out |
//! | [`Compactor`] | the shapes that need a new base |
//!
//! A job takes the owners that it needs. Making shapes, recovery and maintenance need nearly all of them: they are
//! methods of [`ShapesServer`], each in the file of its job. `../README.md` has the order of the locks.

use crate::acknowledge::NOTED_MAX;
use crate::catalog::Catalog;
use crate::change_store::ChangeStore;
use crate::compact::Compactor;
use crate::config::ShapesConfig;
use crate::faults::Faults;
use crate::feed_lock::SharedFeed;
use crate::lag::Behind;
use crate::lifetime::Lifetime;
use crate::move_in_fetcher::MoveInFetcher;
use crate::retirement::Retirement;
use crate::shape::{Phase, Shape};
use crate::source::Source;
use crate::store::{Store, StoreError};
use crate::watermarks::Watermarks;
use std::sync::Arc;
use thalweg_shapes_source::clock::Clock;
use thalweg_shapes_source::postgres::{Postgres, Server};
use thalweg_shapes_source::setup::Known;

pub(crate) struct ShapesServer {
    pub(crate) config: ShapesConfig,
    pub(crate) lifetime: Arc<Lifetime>,
    pub(crate) feed: Arc<SharedFeed>,
    pub(crate) watermarks: Arc<Watermarks>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) changes: Arc<ChangeStore>,
    pub(crate) source: Arc<Source>,
    pub(crate) fetcher: Arc<MoveInFetcher>,
    pub(crate) retirement: Retirement,
    pub(crate) compactor: Compactor,
}

impl ShapesServer {
    pub(crate) fn new(config: ShapesConfig, store: Store, clock: Arc<dyn Clock>) -> Self {
        Self::of(Arc::new(Server), config, store, clock, Faults::default())
    }

    /// The server of shapes of any Postgres.
    pub(crate) fn of(
        postgres: Arc<dyn Postgres>,
        config: ShapesConfig,
        store: Store,
        clock: Arc<dyn Clock>,
        faults: Faults,
    ) -> Self {
        let source = Arc::new(Source::new(&config, &postgres, &clock));
        let lifetime = Arc::new(Lifetime::new(clock, faults));
        let (feed, catalog, watermarks) = (Arc::<SharedFeed>::default(), Arc::<Catalog>::default(), Arc::default());
        let changes = Arc::new(ChangeStore::new(store, config.hot_bytes, config.unsent_bytes_max));
        let fetcher =
            MoveInFetcher::new(Arc::clone(&feed), Arc::clone(&lifetime), Arc::clone(&source), Arc::clone(&watermarks));
        Self {
            fetcher: Arc::new(fetcher),
            retirement: Retirement::new(
                Arc::clone(&lifetime),
                Arc::clone(&feed),
                Arc::clone(&catalog),
                Arc::clone(&changes),
                Arc::clone(&source),
            ),
            compactor: Compactor::new(
                &config,
                Arc::clone(&lifetime),
                Arc::clone(&changes),
                Arc::clone(&catalog),
                Arc::clone(&watermarks),
            ),
            config,
            lifetime,
            feed,
            watermarks,
            catalog,
            changes,
            source,
        }
    }

    /// How far the applied changes are behind Postgres's log.
    pub(crate) fn behind(&self) -> Behind {
        self.source.lag.behind(self.watermarks.processed_lsn(), self.lifetime.clock.now())
    }

    /// Notes a clean stop, once no thread applies changes.
    pub(crate) fn note_clean_stop(&self) -> Result<(), StoreError> {
        let recent = self.feed.lock().recent.last(NOTED_MAX);
        let (processed, anchor) = (self.watermarks.processed_lsn(), self.watermarks.anchor());
        self.source.bookmark.close(&self.changes.store, processed, anchor, recent)
    }

    /// Knowledge of the source; `None`: no stream was ever followed.
    pub(crate) fn known_source(&self) -> Option<Known> {
        let note = self.source.bookmark.note()?;
        let of_shape = |shape: &Arc<Shape>| {
            let state = shape.lock();
            let is_complete = matches!(state.phase, Phase::Live);
            state.snapshot.as_ref().filter(|_| is_complete).map(|snapshot| snapshot.lsn)
        };
        let snapshots = self.catalog.registry.read().all().filter_map(of_shape).max();
        let changes = self.watermarks.seen();
        let shown_at_most = self.source.bookmark.shown_at_most();
        Some(Known {
            identity: note.identity,
            seen: changes.0.max(snapshots.unwrap_or(0)).max(shown_at_most.unwrap_or_default().0),
            unclean: shown_at_most.is_none(),
            acknowledged: note.acknowledged,
            broken: self.source.bookmark.broken(),
        })
    }
}
