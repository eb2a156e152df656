//! Whether a definition can be a shape.

use crate::failures::{invalid, not_published, unavailable};
use crate::serve::access::Clause;
use crate::server::ShapesServer;
use crate::subquery::Dependence;
use std::sync::Arc;
use thalweg_filter::ParseError;
use thalweg_shapes_model::columns::selected;
use thalweg_shapes_model::definition::{Definition, Identity};
use thalweg_shapes_model::failure::{Beyond, Failure};
use thalweg_shapes_model::predicate::{self, Predicate};
use thalweg_shapes_model::table::Table;
use thalweg_shapes_source::catalog::{Found, LookupError};
use thalweg_shapes_source::session::Session;
use thalweg_shapes_source::validate::{self, ValidateError};

/// A definition that Postgres has agreed to.
pub(super) struct Checked {
    pub(super) table: Arc<Table>,
    /// Places of the columns, ascending.
    pub(super) selected: Vec<usize>,
    pub(super) predicate: Option<Arc<Predicate>>,
    /// The predicate, if it has subqueries.
    pub(super) dependence: Option<Dependence>,
    pub(super) identity: Identity,
}

impl ShapesServer {
    pub(super) fn check(
        &self,
        session: &mut Session,
        found: &Found,
        definition: &Definition,
    ) -> Result<Checked, Failure> {
        let table = self.catalog.templates.table(&found.table);
        let selected = selected(&table, definition, session.server_version().major >= 18).map_err(Failure::Invalid)?;
        self.source.publisher.generated(&table, &selected, &found.standing).map_err(not_published)?;
        let dependence = match &definition.where_sql {
            Some(sql) if predicate::may_have_subqueries(sql) => {
                let read = self.read_dependence(session, definition, &table);
                asked(session, &table, sql, &definition.params, read)?
            }
            _ => None,
        };
        let predicate = match &definition.where_sql {
            None => None,
            Some(_) if dependence.is_some() => None,
            Some(sql) => Some(Arc::new(self.predicate(session, &table, sql, &definition.params)?)),
        };
        let names: Vec<&str> = selected.iter().map(|at| table.columns[*at].name.as_str()).collect();
        // Two definitions that say the same select the same: one shape serves both.
        let identity = serde_json::to_vec(&(
            table.oid,
            table.name.to_string(),
            match &dependence {
                Some(dependence) => Some(dependence.condition.canonical()),
                None => predicate.as_ref().map(|predicate| predicate.canonical()),
            },
            &names,
            definition.replica,
            definition.log,
            &definition.queryable,
        ));
        let identity = Identity::of(&identity.unwrap_or_default());
        Ok(Checked { table, selected, predicate, dependence, identity })
    }

    /// Refuses clauses beside a grant's own that may fail on some row of the table. Each is read by itself: places in
    /// errors are its own.
    pub(crate) fn check_narrowing(
        &self,
        session: &mut Session,
        table: &Table,
        clauses: &[Clause],
    ) -> Result<(), Failure> {
        for Clause { sql, params } in clauses {
            let definition = Definition {
                where_sql: Some(sql.clone()),
                params: params.clone(),
                ..Definition::of_table(&table.name.schema, &table.name.name)
            };
            let dependence = match predicate::may_have_subqueries(sql) {
                true => {
                    let read = self.read_dependence(session, &definition, table);
                    asked(session, table, sql, params, read)?
                }
                false => None,
            };
            let may_fail = match dependence {
                Some(dependence) => dependence.condition.may_fail(),
                None => self.predicate(session, table, sql, params)?.may_fail(),
            };
            if let Some(what) = may_fail {
                return Err(Failure::Beyond(Beyond::MayFail { what, table: table.name.clone() }));
            }
        }
        Ok(())
    }

    /// The dependence of the definition's predicate on other tables, if it has subqueries.
    pub(crate) fn dependence(
        &self,
        session: &mut Session,
        definition: &Definition,
        table: &Table,
    ) -> Result<Option<Dependence>, Failure> {
        Ok(self.read_dependence(session, definition, table)?)
    }

    fn read_dependence(
        &self,
        session: &mut Session,
        definition: &Definition,
        table: &Table,
    ) -> Result<Option<Dependence>, Unread> {
        let Some(sql) = &definition.where_sql else { return Ok(None) };
        if !predicate::may_have_subqueries(sql) {
            return Ok(None);
        }
        let named = predicate::inner_tables(sql, &definition.params)?;
        if named.is_empty() {
            return Ok(None);
        }
        let mut tables = Vec::with_capacity(named.len());
        for name in named {
            let none = |error: String| Unread { failure: invalid("where", error), oversized: false };
            match self.source.tables.find(session, &name) {
                Ok(Some(found)) => tables.push(Arc::new(found.table.clone())),
                Ok(None) => return Err(none(format!("relation \"{}\" does not exist", name.spelled()))),
                Err(LookupError::Unsupported(error)) => return Err(none(error.to_string())),
                Err(LookupError::Source(error)) => {
                    return Err(Unread { failure: unavailable(error), oversized: true });
                }
            }
        }
        let condition = Arc::new(predicate::condition(sql, &definition.params, table, &tables)?);
        let tables = tables.into_iter().map(|table| (table.oid, table)).collect();
        Ok(Some(Dependence { condition, tables }))
    }

    /// Parses a predicate, here and in Postgres, whose messages for invalid SQL are better than ours. Postgres does not
    /// get a predicate that parses here and that differs in constants only from one that it has accepted.
    fn predicate(
        &self,
        session: &mut Session,
        table: &Table,
        sql: &str,
        params: &[(u32, String)],
    ) -> Result<Predicate, Failure> {
        let parsed = predicate::parse(sql, params, table).map_err(Unread::from);
        if parsed.is_ok() && self.catalog.templates.knows(table, sql) {
            return Ok(parsed?);
        }
        let parsed = asked(session, table, sql, params, parsed)?;
        self.catalog.templates.learn(table, sql);
        Ok(parsed)
    }
}

/// A predicate that cannot be used.
struct Unread {
    failure: Failure,
    /// Postgres is not to read it either.
    oversized: bool,
}

impl From<ParseError> for Unread {
    fn from(error: ParseError) -> Self {
        Self { oversized: error.oversized, failure: invalid("where", error) }
    }
}

impl From<Unread> for Failure {
    fn from(unread: Unread) -> Self {
        unread.failure
    }
}

/// Has Postgres parse a predicate whose parse here gave `read`. An error of Postgres takes precedence over one in
/// `read`. A predicate beyond this server's bounds is not sent: it may exhaust Postgres, whose parser has no such
/// bounds.
fn asked<T>(
    session: &mut Session,
    table: &Table,
    sql: &str,
    params: &[(u32, String)],
    read: Result<T, Unread>,
) -> Result<T, Failure> {
    if !read.as_ref().is_err_and(|unread| unread.oversized) {
        ask(session, table, sql, params)?;
    }
    Ok(read?)
}

/// Has Postgres read a predicate.
fn ask(session: &mut Session, table: &Table, sql: &str, params: &[(u32, String)]) -> Result<(), Failure> {
    match validate::filter(session, table, sql, params) {
        Ok(_) => Ok(()),
        Err(ValidateError::Invalid(message)) => Err(invalid("where", message)),
        Err(ValidateError::Source(error)) => Err(unavailable(error)),
    }
}
