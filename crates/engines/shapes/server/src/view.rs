//! The views of shapes for operators: a page of a list, and one shape by its handle.

use crate::server::ShapesServer;
use crate::shape::{Phase, Shape};
use serde::Serialize;
use std::sync::Arc;
use thalweg_shapes_model::definition::{LogMode, Replica};
use thalweg_shapes_model::health::Health;

/// Shapes of one page, at most.
pub(crate) const PAGE_MAX: usize = 1000;

/// A shape as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShapeView {
    pub handle: String,
    /// `schema.table`, each quoted if SQL wants that.
    pub table: String,
    #[serde(rename = "where")]
    pub where_sql: Option<String>,
    /// Values of `$1`, `$2`, ….
    pub params: Vec<String>,
    /// Sorted; `None`: all.
    pub columns: Option<Vec<String>>,
    /// As in requests: `default` or `full`.
    pub replica: &'static str,
    /// `full` or `changes_only`.
    pub log: &'static str,
    /// `preparing`, `snapshotting`, `live`, `failed` or `gone`.
    pub phase: &'static str,
    /// Rows that were copied when it was made; `None`: before the last start of the server.
    pub snapshot_rows: Option<u64>,
    /// Of the rows that clients begin with now.
    pub snapshot_bytes: u64,
    /// The number of these rows: 0 is the snapshot, 1 and up were merged of the ones before and of changes.
    pub base: u32,
    /// How many such there are: older ones stay for a while.
    pub bases: u64,
    /// Ranges of changes after the snapshot; a range has the changes of one transaction that lie together.
    pub log_entries: u64,
    pub log_bytes: u64,
    /// Where its log ends.
    pub offset: String,
    /// Requests that wait for a change.
    pub waiting: u64,
    /// Milliseconds since it was asked for; `None`: not since the last start of the server.
    pub idle_ms: Option<u64>,
}

/// A part of the list of shapes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Page {
    pub(crate) shapes: Vec<ShapeView>,
    /// The position that the next page comes after; `None`: this is the last one.
    pub(crate) next: Option<u64>,
    pub(crate) source: SourceView,
}

/// How the changes come in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SourceView {
    /// As `/v1/health` has it: `active`, `waiting` or `starting`.
    pub(crate) status: &'static str,
    /// Changes that came cannot be stored: the disk is full, or settling is behind.
    pub(crate) stuck: bool,
    pub(crate) lag_bytes: u64,
    pub(crate) lag_ms: u64,
    /// Bytes of the log that Postgres keeps for the replication slot.
    pub(crate) wal_kept_bytes: u64,
}

impl ShapesServer {
    /// Shapes in the order in which they were made, those after `after`; `table`: only of this one, written as in
    /// [`ShapeView`].
    pub(crate) fn page(&self, after: u64, limit: usize, table: Option<&str>, now_ms: u64) -> Page {
        let limit = limit.clamp(1, PAGE_MAX);
        let mut numbers: Vec<(u64, u32)> = {
            let registry = self.catalog.registry.read();
            let wanted = registry.places().filter(|(_, shape)| shape.number > after && !shape.is_inner());
            let wanted = wanted.filter(|(_, shape)| table.is_none_or(|table| table_name(shape) == table));
            wanted.map(|(place, shape)| (shape.number, place)).collect()
        };
        let more = numbers.len() > limit;
        if more {
            numbers.select_nth_unstable(limit);
            numbers.truncate(limit);
        }
        numbers.sort_unstable();
        let shapes: Vec<Arc<Shape>> = {
            let registry = self.catalog.registry.read();
            numbers.iter().filter_map(|(number, place)| registry.at(*place, *number).cloned()).collect()
        };
        Page {
            shapes: shapes.iter().map(|shape| view(shape, now_ms)).collect(),
            next: if more { numbers.last().map(|(number, _)| *number) } else { None },
            source: self.source_view(),
        }
    }

    pub(crate) fn source_view(&self) -> SourceView {
        let behind = self.behind();
        SourceView {
            status: match self.source.health() {
                Health::Active => "active",
                Health::Asleep => "asleep",
                Health::Waiting => "waiting",
                Health::Starting => "starting",
            },
            stuck: self.changes.write_stall.is_stuck(),
            lag_bytes: behind.bytes,
            lag_ms: u64::try_from(behind.age.as_millis()).unwrap_or(u64::MAX),
            wal_kept_bytes: behind.kept_bytes,
        }
    }
}

/// One shape.
pub(crate) fn view(shape: &Shape, now_ms: u64) -> ShapeView {
    let state = shape.lock();
    let (family, condition) = (&shape.family, &shape.condition);
    let base = state.newest();
    let shown = state.rows(base).and_then(|rows| rows.chunks.last().copied()).unwrap_or(0);
    ShapeView {
        handle: shape.handle.to_string(),
        table: table_name(shape),
        where_sql: condition.where_sql().map(str::to_owned),
        params: condition.params().map(str::to_owned).collect(),
        columns: family.columns.clone(),
        replica: match family.replica {
            Replica::Default => "default",
            Replica::Full => "full",
        },
        log: match family.log {
            LogMode::Full => "full",
            LogMode::ChangesOnly => "changes_only",
            LogMode::Inner => "inner",
        },
        phase: match state.phase {
            Phase::Preparing => "preparing",
            Phase::Snapshotting => "snapshotting",
            Phase::Live => "live",
            Phase::Failed(_) => "failed",
            Phase::Gone => "gone",
        },
        snapshot_rows: state.copied().map(|copied| copied.rows),
        snapshot_bytes: state.copied().filter(|_| base == 0).map_or(shown, |copied| copied.bytes),
        base,
        bases: state.bases.as_ref().map_or(1, |bases| bases.count() as u64),
        log_entries: state.entries.len() as u64,
        log_bytes: state.entries.bytes(),
        offset: state.tail().to_string(),
        waiting: state.waiting() as u64,
        idle_ms: Some(shape.used_ms()).filter(|used| *used > 0).map(|used| now_ms.saturating_sub(used)),
    }
}

fn table_name(shape: &Shape) -> String {
    let name = &shape.family.name;
    format!("{}.{}", plain(&name.schema), plain(&name.name))
}

/// An identifier as it may stand in `table=`: in quotes only if they are needed.
fn plain(name: &str) -> String {
    let simple = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let bare = name.bytes().all(simple) && !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty();
    if bare { name.to_owned() } else { thalweg_shapes_model::table::quoted(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{State, sample_of};
    use thalweg_shapes_core::state::entries::Entry;
    use thalweg_shapes_model::definition::Definition;

    #[test]
    fn identifiers_are_quoted_where_sql_wants_it() {
        for (name, shown) in [("items", "items"), ("Items", "\"Items\""), ("a b", "\"a b\""), ("a\"b", "\"a\"\"b\"")] {
            assert_eq!(plain(name), shown);
        }
        assert_eq!(plain("1a"), "\"1a\"");
    }

    #[test]
    fn a_view_tells_what_a_shape_has() {
        let mut state = State::default();
        (state.phase, state.chunks) = (Phase::Live, vec![10, 25].into());
        state.snapshot_taken(Arc::new("1:1:".parse().unwrap()), 1000);
        state.push(9, Entry { lsn: 7, at: 0, op: 4, len: 30 }, 1000);
        state.push(9, Entry { lsn: 8, at: 30, op: 0, len: 5 }, 1000);
        let shape = sample_of(1, &Definition::of_table("public", "Items"), state);
        let seen = view(&shape, 5000);
        assert_eq!((seen.table.as_str(), seen.phase, seen.offset.as_str()), ("public.\"Items\"", "live", "8_0"));
        assert_eq!((seen.snapshot_rows, seen.snapshot_bytes, seen.idle_ms), (None, 25, None));
        assert_eq!((seen.log_entries, seen.log_bytes, seen.waiting), (2, 35, 0));
        shape.used(4000);
        assert_eq!(view(&shape, 5000).idle_ms, Some(1000));
        let json = serde_json::to_value(&seen).unwrap();
        assert_eq!((&json["replica"], &json["log"]), (&"default".into(), &"full".into()));
    }
}
