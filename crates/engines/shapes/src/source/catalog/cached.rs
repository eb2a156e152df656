//! Tables that were looked up a moment ago.
//!
//! A look at everything that the catalog has of a table takes milliseconds of planning. Who makes many shapes of one table asks instead
//! whether its rows in the catalog are still the same ones, by the transactions that wrote them.

use super::{Found, LookupError, lookup};
use crate::source::error::SourceError;
use crate::source::session::Session;
use crate::table::TableName;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to believe what these rows do not tell: labels of enums, keys, parts.
const BELIEVED_FOR: Duration = Duration::from_secs(2);
const TABLES_MAX: usize = 10_000;

const MARKS: &str = "SELECT c.oid, c.xmin, (SELECT pg_catalog.string_agg(a.xmin::pg_catalog.text, ',') FROM pg_catalog.pg_attribute a \
    WHERE a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.>) 0) \
    FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) ";

/// Looks tables up for one publication.
#[derive(Debug)]
pub(crate) struct Tables {
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
    pub(crate) fn new(publication: String) -> Self {
        Self { publication, seen: Mutex::default() }
    }

    /// Another history begins.
    pub(crate) fn forget(&self) {
        self.seen.lock().clear();
    }

    /// As [`lookup`]: the columns and the name are those of now, everything else may be seconds old.
    pub(crate) fn find(&self, session: &mut Session, name: &TableName) -> Result<Option<Arc<Found>>, LookupError> {
        // Before the look itself: what is changed between the two is noticed the next time.
        let Some(marks) = marks(session, name)? else {
            self.seen.lock().remove(name);
            return Ok(None);
        };
        if let Some(seen) = self.seen.lock().get(name)
            && seen.marks == marks
            && seen.at.elapsed() < BELIEVED_FOR
        {
            return Ok(Some(Arc::clone(&seen.found)));
        }
        let at = Instant::now();
        let Some(found) = lookup(session, &self.publication, name)?.map(Arc::new) else { return Ok(None) };
        let mut seen = self.seen.lock();
        if seen.len() >= TABLES_MAX {
            seen.clear();
        }
        seen.insert(name.clone(), Seen { found: Arc::clone(&found), marks, at });
        Ok(Some(found))
    }
}

fn marks(session: &mut Session, name: &TableName) -> Result<Option<String>, SourceError> {
    let answer = session.ask(&format!("{MARKS}{}", super::regclass(name)))?;
    Ok(answer.row(0).map(|row| row.values().map(Option::unwrap_or_default).collect::<Vec<_>>().join("/")))
}
