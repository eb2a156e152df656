//! Whether a definition can be a shape.

use super::failure::{invalid, not_published, unavailable};
use crate::definition::{Definition, Identity};
use crate::engine::Engine;
use crate::predicate::{self, Predicate};
use crate::serve::columns::selected;
use crate::shape::Failure;
use crate::source::catalog::{Found, LookupError};
use crate::source::session::Session;
use crate::source::validate::{self, ValidateError};
use crate::subquery::Dependence;
use crate::table::Table;
use std::sync::Arc;

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

impl Engine {
    pub(super) fn check(
        &self,
        session: &mut Session,
        found: &Found,
        definition: &Definition,
    ) -> Result<Checked, Failure> {
        let table = self.templates.table(&found.table);
        let selected = selected(&table, definition, session.server_version().major >= 18).map_err(Failure::Invalid)?;
        self.publisher.generated(&table, &selected, &found.standing).map_err(not_published)?;
        let dependence = match &definition.where_sql {
            Some(sql) if predicate::may_have_subqueries(sql) => {
                ask(session, &table, sql, &definition.params)?;
                self.dependence(session, definition, &table)?
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

    /// What the definition's predicate asks of other tables, if it has subqueries.
    pub(crate) fn dependence(
        &self,
        session: &mut Session,
        definition: &Definition,
        table: &Table,
    ) -> Result<Option<Dependence>, Failure> {
        let Some(sql) = &definition.where_sql else { return Ok(None) };
        if !predicate::may_have_subqueries(sql) {
            return Ok(None);
        }
        let named = predicate::inner_tables(sql, &definition.params).map_err(|error| invalid("where", error))?;
        if named.is_empty() {
            return Ok(None);
        }
        let mut tables = Vec::with_capacity(named.len());
        for name in named {
            match self.tables.find(session, &name) {
                Ok(Some(found)) => tables.push(Arc::new(found.table.clone())),
                Ok(None) => return Err(invalid("where", format!("relation \"{}\" does not exist", name.spelled()))),
                Err(LookupError::Unsupported(error)) => return Err(invalid("where", error)),
                Err(LookupError::Source(error)) => return Err(unavailable(error)),
            }
        }
        let condition = predicate::condition(sql, &definition.params, table, &tables);
        let condition = Arc::new(condition.map_err(|error| invalid("where", error))?);
        let tables = tables.into_iter().map(|table| (table.oid, table)).collect();
        Ok(Some(Dependence { condition, tables }))
    }

    /// Postgres reads it first, as its words for what is no SQL are better than ours; unless it has read one that differs from this one
    /// in constants only, and we understand it.
    fn predicate(
        &self,
        session: &mut Session,
        table: &Table,
        sql: &str,
        params: &[(u32, String)],
    ) -> Result<Predicate, Failure> {
        let parsed = predicate::parse(sql, params, table);
        if parsed.is_err() || !self.templates.knows(table, sql) {
            ask(session, table, sql, params)?;
        }
        let parsed = parsed.map_err(|error| invalid("where", error))?;
        self.templates.learn(table, sql);
        Ok(parsed)
    }
}

/// Has Postgres read a predicate.
fn ask(session: &mut Session, table: &Table, sql: &str, params: &[(u32, String)]) -> Result<(), Failure> {
    match validate::filter(session, table, sql, params) {
        Ok(_) => Ok(()),
        Err(ValidateError::Invalid(message)) => Err(invalid("where", message)),
        Err(ValidateError::Source(error)) => Err(unavailable(error)),
    }
}
