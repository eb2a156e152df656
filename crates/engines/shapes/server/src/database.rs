//! Databases of real servers, for tests.

use std::sync::Arc;
use thalweg_pg::{Config, Conn};
use thalweg_pgtest::{shared_clusters, unique_database};
use thalweg_shapes_source::clock::SystemClock;
use thalweg_shapes_source::session::{Endpoint, Session};

/// A database of its own for one test on one server.
pub(crate) struct Database {
    pub(crate) config: Config,
}

/// Runs a test on a server of each installed version.
pub(crate) fn on_each(test: impl Fn(&Database)) {
    for cluster in shared_clusters() {
        eprintln!("on Postgres {}", cluster.major());
        let name = unique_database();
        let admin = Database { config: cluster.url("postgres").parse().unwrap() };
        admin.run(&format!("CREATE DATABASE {name}"));
        test(&Database { config: cluster.url(&name).parse().unwrap() });
    }
}

impl Database {
    pub(crate) fn run(&self, sql: &str) {
        let mut conn = Conn::connect(&self.config).unwrap();
        conn.simple(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// The last value that `sql` selects.
    pub(crate) fn value(&self, sql: &str) -> String {
        let answers = Conn::connect(&self.config).unwrap().simple(sql).unwrap();
        answers.last().unwrap().value().unwrap_or("NULL").to_owned()
    }

    pub(crate) fn session(&self) -> Session {
        Endpoint::new(self.config.clone(), Arc::default(), Arc::new(SystemClock)).connect().unwrap()
    }
}
