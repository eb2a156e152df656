//! The tables that a table is a partition of, which the replication stream does not give.
//!
//! The applier has to know them before it goes on: a row of a new partition belongs to the shapes of the partitioned
//! table. It waits for the answer, but never for long; without one, the shapes that the row may belong to are dropped.

use crate::no_wait;
use parking_lot::Mutex;
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use thalweg_shapes_source::catalog;
use thalweg_shapes_source::error::SourceError;
use thalweg_shapes_source::pool::Jobs;
use thalweg_shapes_source::session::Endpoint;

/// How long to wait for an answer.
const WITHIN: Duration = Duration::from_secs(2);

pub(crate) struct Partitions {
    publication: String,
    /// One separate connection: other queries may have to wait for theirs.
    pool: Mutex<Option<Box<dyn Jobs>>>,
}

impl Partitions {
    pub(crate) fn new(endpoint: Endpoint, publication: String) -> Self {
        Self { publication, pool: Mutex::new(Some(endpoint.jobs(1))) }
    }

    pub(crate) fn stop(&self) {
        let pool = self.pool.lock().take();
        drop(pool);
    }

    /// The tables that this one is a partition of, directly or not; or why that cannot be told.
    pub(crate) fn ancestors(&self, table: u32) -> Result<Vec<u32>, SourceError> {
        no_wait::assert_may_wait();
        let (send, receive) = sync_channel(1);
        let publication = self.publication.clone();
        let asked = {
            let pool = self.pool.lock();
            let Some(pool) = &*pool else { return Err(SourceError::Stopped) };
            pool.submit(Box::new(move |session| {
                let found = session.and_then(|session| catalog::lookup_oids(session, &publication, &[table]));
                // The receiver may have given up.
                let _ = send.send(found);
            }))?
        };
        let Ok(found) = receive.recv_timeout(WITHIN) else {
            // Another thread interrupts the query, as that may take as long.
            let interrupt = std::thread::Builder::new().name("shapes-interrupt".into());
            let _ = interrupt.spawn(move || asked.cancel());
            return Err(SourceError::Other(format!("no answer within {WITHIN:?}")));
        };
        // A table that is gone by now has no shapes that go on.
        Ok(found?.into_iter().next().map(|found| found.table.ancestors).unwrap_or_default())
    }
}
