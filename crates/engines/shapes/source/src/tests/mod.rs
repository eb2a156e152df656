//! Tests against real servers of every installed version.

// How long real servers take is measured by the real clock.
#![allow(clippy::disallowed_methods)]

mod catalog;
mod pool;
mod publish;
mod reconcile;
mod session;
mod setup;
mod snapshot;
mod validate;

use super::clock::manual::ManualClock;
use super::clock::{Clock, SystemClock};
use super::session::{Endpoint, Session};
use std::sync::Arc;
use thalweg_pg::{Config, Conn};
use thalweg_pgtest::{shared_clusters, unique_database};

/// A separate database for one test on one server.
pub(crate) struct Database {
    major: u32,
    name: String,
    pub(crate) config: Config,
}

/// Runs a test on each server.
pub(crate) fn on_each(test: impl Fn(&Database)) {
    for cluster in shared_clusters() {
        let name = unique_database();
        eprintln!("on Postgres {}", cluster.major());
        let admin: Config = cluster.url("postgres").parse().unwrap();
        Conn::connect(&admin).unwrap().simple(&format!("CREATE DATABASE {name}")).unwrap();
        let config = cluster.url(&name).parse().unwrap();
        test(&Database { major: cluster.major(), name, config });
    }
}

/// A way to a database.
pub(crate) fn endpoint(config: &Config) -> Endpoint {
    Endpoint::new(config.clone(), Arc::default(), Arc::new(SystemClock))
}

pub(crate) fn session(config: &Config) -> Session {
    endpoint(config).connect().unwrap()
}

/// A session whose time the test sets.
fn session_timed_by(config: &Config, clock: &Arc<ManualClock>) -> Session {
    let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
    Endpoint::new(config.clone(), Arc::default(), clock).connect().unwrap()
}

impl Database {
    pub(crate) fn session(&self) -> Session {
        session(&self.config)
    }

    pub(crate) fn plain(&self) -> Conn {
        Conn::connect(&self.config).unwrap()
    }

    pub(crate) fn run(&self, sql: &str) {
        self.plain().simple(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    pub(crate) fn value(&self, sql: &str) -> String {
        self.plain().simple(sql).unwrap().last().unwrap().value().unwrap_or("NULL").to_owned()
    }

    /// As another role, which is made with these attributes.
    fn role(&self, attributes: &str) -> Config {
        let role = format!("{}_{}", self.name, self.value("SELECT count(*) FROM pg_roles"));
        self.run(&format!("CREATE ROLE {role} LOGIN {attributes}"));
        Config { user: role, ..self.config.clone() }
    }
}
