//! A cache of table descriptions.
//!
//! The full query for a table costs milliseconds of planning. A cached description needs only a cheap query, which
//! compares the transactions that wrote the table's rows in the catalog.

use super::{Found, LookupError, lookup};
use crate::error::SourceError;
use crate::session::{Session, Sql};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_pg::Error;
use thalweg_shapes_model::table::TableName;

/// How long a cached description is valid for facts that those rows do not show: labels of enums, keys, parts.
const BELIEVED_FOR: Duration = Duration::from_secs(2);
const TABLES_MAX: usize = 10_000;

const MARKS: &str = "SELECT c.oid, c.xmin, (SELECT pg_catalog.string_agg(a.xmin::pg_catalog.text, ',') FROM pg_catalog.pg_attribute a \
    WHERE a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.>) 0) \
    FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) ";

/// The cached tables of one publication.
#[derive(Debug)]
pub struct Tables {
    publication: String,
    seen: Mutex<HashMap<TableName, Seen>>,
}

#[derive(Debug)]
struct Seen {
    found: Arc<Found>,
    marks: String,
    at: Instant,
}

impl Tables {
    pub fn new(publication: String) -> Self {
        Self { publication, seen: Mutex::default() }
    }

    /// Empties the cache: another history begins.
    pub fn forget(&self) {
        self.seen.lock().clear();
    }

    /// As [`lookup`]: the columns and the name are those of now, everything else may be seconds old.
    pub fn find(&self, session: &mut Session, name: &TableName) -> Result<Option<Arc<Found>>, LookupError> {
        // The marks are read before the description: the next call notices a change between the two.
        let Some(marks) = session.connection.marks(name).map_err(SourceError::from)? else {
            self.seen.lock().remove(name);
            return Ok(None);
        };
        if let Some(seen) = self.seen.lock().get(name)
            && seen.marks == marks
            && session.clock.since(seen.at) < BELIEVED_FOR
        {
            return Ok(Some(Arc::clone(&seen.found)));
        }
        let at = session.clock.now();
        let Some(found) = lookup(session, &self.publication, name)?.map(Arc::new) else { return Ok(None) };
        let mut seen = self.seen.lock();
        if seen.len() >= TABLES_MAX {
            seen.clear();
        }
        seen.insert(name.clone(), Seen { found: Arc::clone(&found), marks, at });
        Ok(Some(found))
    }
}

pub(crate) fn marks(sql: &mut Sql, name: &TableName) -> Result<Option<String>, Error> {
    let answer = sql.ask(&format!("{MARKS}{}", super::regclass(name)))?;
    Ok(answer.row(0).map(|row| row.values().map(Option::unwrap_or_default).collect::<Vec<_>>().join("/")))
}
