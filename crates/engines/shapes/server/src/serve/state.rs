//! The state that all requests for shapes share.

use super::admission::Admission;
use super::create_batcher::CreateBatcher;
use super::in_flight_creates::InFlightCreates;
use super::refusal::Refusal;
use super::respond::{RequestClock, Responder};
use super::secret::Secret;
use crate::server::ShapesServer;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_http::Pool;
use thalweg_shapes_source::pool::Pool as Database;

/// Reads that wait for the disk, at most.
const READS_MAX: usize = 4096;

pub(crate) struct ServeState {
    pub(crate) server: Arc<ShapesServer>,
    pub(crate) responder: Responder,
    pub(super) secret: Secret,
    pub(crate) admission: Arc<Admission>,
    pub(super) in_flight: InFlightCreates,
    pub(super) batcher: CreateBatcher,
    pub(crate) database: Database,
    pub(crate) io: Pool,
    pub(super) random: RandomState,
    unique: AtomicU64,
}

impl ServeState {
    pub(crate) fn new(server: Arc<ShapesServer>, database: Database) -> Self {
        let http = server.config.http.clone();
        Self {
            admission: Admission::new(http.initial_requests_max, http.existing_requests_max),
            secret: Secret::new(server.config.secret.as_deref()),
            responder: Responder::new(http, env!("CARGO_PKG_VERSION")),
            io: Pool::new("shapes-io", server.config.io_threads, READS_MAX),
            in_flight: InFlightCreates::default(),
            batcher: CreateBatcher::new(Arc::clone(&server.lifetime.clock)),
            random: RandomState::new(),
            unique: AtomicU64::new(0),
            server,
            database,
        }
    }

    pub(crate) fn moment(&self, now_ms: u64) -> RequestClock {
        let unique = self.unique.fetch_add(1, Ordering::Relaxed);
        // Never the same twice, also not after a restart.
        let unique = unique.wrapping_add(now_ms << 20);
        RequestClock { now_s: now_ms / 1000, random: self.random.hash_one(unique) as u32, unique }
    }
}

/// The queue of disk reads is full.
pub(super) fn too_many_reads() -> Refusal {
    Refusal::Unavailable {
        code: "too_many_reads",
        message: format!("{READS_MAX} reads wait for the disk, please retry"),
        retry_after_s: 1,
    }
}
