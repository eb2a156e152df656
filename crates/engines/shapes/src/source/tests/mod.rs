//! Against real servers: every version that is here.

mod catalog;
mod pool;
mod publish;
mod reconcile;
mod setup;
mod snapshot;
mod validate;

use super::session::{Endpoint, Session};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use thalweg_pgtest::{Cluster, Options, installations};
use thalweg_wire::pg::{Config, Conn};

/// One server of each version, shared by all tests.
fn clusters() -> &'static [Cluster] {
    static CLUSTERS: OnceLock<Vec<Cluster>> = OnceLock::new();
    CLUSTERS.get_or_init(|| installations().iter().map(|one| Cluster::start(one, &Options::default())).collect())
}

/// A database of its own for one test on one server.
pub(crate) struct Database {
    major: u32,
    name: String,
    pub(crate) config: Config,
}

/// Runs a test on each server.
pub(crate) fn on_each(test: impl Fn(&Database)) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for cluster in clusters() {
        let name = format!("d{}", NEXT.fetch_add(1, Ordering::Relaxed));
        eprintln!("on Postgres {}", cluster.major());
        let admin: Config = cluster.url("postgres").parse().unwrap();
        Conn::connect(&admin).unwrap().simple(&format!("CREATE DATABASE {name}")).unwrap();
        let config = cluster.url(&name).parse().unwrap();
        test(&Database { major: cluster.major(), name, config });
    }
}

/// A way to a database.
pub(crate) fn endpoint(config: &Config) -> Endpoint {
    Endpoint::new(config.clone(), Default::default())
}

pub(crate) fn session(config: &Config) -> Session {
    endpoint(config).connect().unwrap()
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
