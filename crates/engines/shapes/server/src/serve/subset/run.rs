//! MoveInFetcher Postgres for a subset. Runs on a thread that may wait for it.

use super::answer::{mark_header, push_begin, push_end};
use super::order::parse_order;
use super::query::Query;
use crate::failures;
use crate::serve::access::Clause;
use crate::serve::refusal::Refusal;
use crate::server::ShapesServer;
use crate::shape::Shape;
use crate::subquery::{headers, positions_list};
use bytes::Bytes;
use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thalweg_pg::PgLsn;
use thalweg_shapes_core::encode::projection::Projection;
use thalweg_shapes_core::request::params::Subset;
use thalweg_shapes_model::columns::selected;
use thalweg_shapes_model::copy::CopyRow;
use thalweg_shapes_model::failure::Beyond;
use thalweg_shapes_model::invalid::Invalid;
use thalweg_shapes_model::predicate;
use thalweg_shapes_model::row::borrowed;
use thalweg_shapes_model::table::Table;
use thalweg_shapes_source::catalog::{self, LookupError};
use thalweg_shapes_source::error::SourceError;
use thalweg_shapes_source::session::Session;
use thalweg_shapes_source::snapshot::{Taken, copy};

/// How long a query may take, and one under a token, whose predicate is not from a trusted client.
const QUERY_MAX: Duration = Duration::from_secs(60);
const QUERY_BY_TOKEN_MAX: Duration = Duration::from_secs(5);
/// A body is counted again when it has grown by this.
const BUILDING_STEP: u64 = 256 << 10;
/// The largest answer: it is held in memory whole, so that it can still become an error.
const BODY_BYTES_MAX: usize = 256 << 20;

/// A requested subset, without the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    where_sql: Option<String>,
    params: Vec<(u32, String)>,
    order_by: Option<String>,
    limit: Option<u64>,
    offset: Option<u64>,
    rights: Rights,
}

/// The right under which a subset is requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) by_token: bool,
    /// The sender may see some rows only: the subset's clause may fail on none.
    pub(crate) is_part: bool,
    /// The same of these parts of the shape's own clause.
    pub(crate) narrowing: Vec<Clause>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) body: Bytes,
}

impl Owned {
    pub(crate) fn of(subset: &Subset<'_>, rights: Rights) -> Self {
        Self {
            where_sql: subset.where_sql.clone().map(Cow::into_owned),
            params: (1..).zip(subset.params.iter().map(|value| value.clone().into_owned())).collect(),
            order_by: subset.order_by.clone().map(Cow::into_owned),
            limit: subset.limit,
            offset: subset.offset,
            rights,
        }
    }
}

/// Fetches a subset of a shape's rows.
pub(crate) fn run(
    server: &ShapesServer,
    session: &mut Session,
    shape: &Shape,
    subset: &Owned,
) -> Result<Done, Refusal> {
    let definition = &shape.definition();
    let failed = |failure| Refusal::from(&failure);
    let table = match catalog::lookup(session, &server.config.publication(), &definition.table) {
        Ok(Some(found)) if found.table.oid == shape.family.table => found.table,
        // The shape is of a table that is gone. It is about to be dropped.
        Ok(_) | Err(LookupError::Unsupported(_)) => return Err(Refusal::MustRefetch(None)),
        Err(LookupError::Source(error)) => return Err(failed(failures::unavailable(error))),
    };
    let selected = selected(&table, definition, true).map_err(Refusal::Invalid)?;
    server.check_narrowing(session, &table, &subset.rights.narrowing).map_err(failed)?;
    let dependence = server.dependence(session, definition, &table).map_err(|_| Refusal::MustRefetch(None))?;
    let shape_where = match &definition.where_sql {
        None => None,
        Some(_) if dependence.is_some() => dependence.as_ref().map(|dependence| dependence.condition.sql()),
        // It was right when the shape was made, so the table has changed.
        Some(sql) => {
            let parsed = predicate::parse(sql, &definition.params, &table);
            Some(parsed.map_err(|_| Refusal::MustRefetch(None))?.sql())
        }
    };
    let queryable = definition.queryable.as_deref();
    let order = match &subset.order_by {
        None => Vec::new(),
        Some(text) => parse_order(text, &table, queryable)?,
    };
    let subset_where = match &subset.where_sql {
        None => None,
        Some(sql) => {
            let parsed = predicate::parse(sql, &subset.params, &visible(&table, queryable));
            let parsed = parsed.map_err(|error| Invalid::subset("where", error.to_string()))?;
            match parsed.may_fail() {
                Some(what) if subset.rights.is_part => return Err(Beyond::MayFail { what, table: table.name }.into()),
                _ => Some(parsed.sql()),
            }
        }
    };
    let query = Query {
        shape_where: shape_where.as_deref(),
        subset_where: subset_where.as_deref(),
        order: &order,
        limit: subset.limit,
        offset: subset.offset,
    };
    let limit = if subset.rights.by_token { QUERY_BY_TOKEN_MAX } else { QUERY_MAX };
    let projection = Projection::new(&table, &selected, definition.replica);
    let Some(dependence) = &dependence else {
        return rows(
            server,
            session,
            &table,
            &query.sql(&table, &projection.select_list()),
            limit,
            |line: &CopyRow, mark: &[u8], body: &mut Vec<u8>| {
                projection.snapshot_row_with(line, mark, body);
            },
        );
    };
    let columns = dependence.columns(&selected);
    let condition = &dependence.condition;
    let list = positions_list(&table, &columns, condition);
    let sql = query.sql(&table, &list);
    rows(server, session, &table, &sql, limit, |line: &CopyRow, mark: &[u8], body: &mut Vec<u8>| {
        let (cells, mut headers) = headers(&table, &columns, condition, &shape.handle.to_string(), line);
        headers.extend_from_slice(mark);
        projection.table_row_with(&borrowed(&cells)[..], &headers, body);
    })
}

/// Counts a body as it grows.
struct Building<'a> {
    server: &'a ShapesServer,
    bytes: u64,
}

impl Building<'_> {
    /// The body has so many bytes; whether there is memory for more.
    fn grow(&mut self, bytes: usize) -> bool {
        let more = (bytes as u64).saturating_sub(self.bytes);
        if more < BUILDING_STEP {
            return true;
        }
        self.bytes += more;
        self.server.changes.building.fetch_add(more, Ordering::Relaxed);
        !self.server.changes.is_memory_short()
    }
}

impl Drop for Building<'_> {
    fn drop(&mut self) {
        self.server.changes.building.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// `render` gets a row and the headers that all rows have.
fn rows(
    server: &ShapesServer,
    session: &mut Session,
    table: &Table,
    sql: &str,
    limit: Duration,
    render: impl Fn(&CopyRow, &[u8], &mut Vec<u8>),
) -> Result<Done, Refusal> {
    let mark = RandomState::new().hash_one(sql) as u32 >> 1;
    let header = mark_header(mark);
    let mut building = Building { server, bytes: 0 };
    let (mut body, mut line, mut wrong) = (Vec::new(), CopyRow::default(), None);
    let copied = copy(session, table, sql, Some(limit), |taken| {
        match taken {
            Taken::Snapshot(snapshot) => push_begin(&mut body, snapshot, mark),
            Taken::Row(text) => match line.decode(text) {
                Ok(()) => render(&line, &header, &mut body),
                Err(error) => wrong = Some(Refusal::Snapshot(error.to_string())),
            },
        }
        if body.len() > BODY_BYTES_MAX {
            let message = format!("the subset has more than {BODY_BYTES_MAX} bytes; ask for less");
            wrong = Some(Invalid::subset("limit", message).into());
        } else if !building.grow(body.len()) {
            wrong = Some(Refusal::unsent());
        }
        if wrong.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match (copied, wrong) {
        (_, Some(refusal)) => Err(refusal),
        (Ok(snapshot), None) => {
            server.watermarks.fetched(PgLsn(snapshot.lsn));
            push_end(&mut body);
            Ok(Done { body: server.changes.store.logs().hold(body.into()) })
        }
        // A constant that is none of its type is found out by Postgres.
        (Err(SourceError::Invalid(error)), None) => Err(Invalid::subset("where", error.to_string()).into()),
        (Err(error), None) => Err(Refusal::from(&failures::unavailable(error))),
    }
}

/// The table as a subset's predicate may see it: other columns are unknown to it.
fn visible<'a>(table: &'a Table, queryable: Option<&[String]>) -> Cow<'a, Table> {
    match queryable {
        None => Cow::Borrowed(table),
        Some(names) => {
            let mut table = table.clone();
            table.columns.retain(|column| names.contains(&column.name));
            Cow::Owned(table)
        }
    }
}
