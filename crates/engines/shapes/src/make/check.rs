//! Whether a definition can be a shape.

use super::failure::{invalid, not_published, unavailable};
use crate::definition::Definition;
use crate::engine::Engine;
use crate::predicate::{self, Predicate};
use crate::serve::columns::selected;
use crate::shape::Failure;
use crate::source::catalog::Found;
use crate::source::session::Session;
use crate::source::validate::{self, ValidateError};
use crate::table::Table;
use std::sync::Arc;

/// A definition that Postgres has agreed to.
pub(super) struct Checked {
    pub(super) table: Arc<Table>,
    /// Places of the columns, ascending.
    pub(super) selected: Vec<usize>,
    pub(super) predicate: Option<Arc<Predicate>>,
    pub(super) identity: String,
}

impl Engine {
    pub(super) fn check(
        &self,
        session: &mut Session,
        found: &Found,
        definition: &Definition,
    ) -> Result<Checked, Failure> {
        let table = self.templates.table(&found.table);
        let selected =
            selected(&table, definition, session.conn.server_version().major >= 18).map_err(Failure::Invalid)?;
        self.publisher.generated(&table, &selected, &found.standing).map_err(not_published)?;
        let predicate = match &definition.where_sql {
            None => None,
            Some(sql) => Some(Arc::new(self.predicate(session, &table, sql, &definition.params)?)),
        };
        let names: Vec<&str> = selected.iter().map(|at| table.columns[*at].name.as_str()).collect();
        // Two definitions that say the same select the same: one shape serves both.
        let identity = serde_json::to_string(&(
            table.oid,
            table.name.to_string(),
            predicate.as_ref().map(|predicate| predicate.sql()),
            &names,
            definition.replica,
            definition.log,
            &definition.queryable,
        ));
        Ok(Checked { table, selected, predicate, identity: identity.unwrap_or_default() })
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
            validate::filter(session, table, sql, params).map_err(|error| match error {
                ValidateError::Invalid(message) => invalid("where", message),
                ValidateError::Source(error) => unavailable(error),
            })?;
        }
        let parsed = parsed.map_err(|error| invalid("where", error))?;
        self.templates.learn(table, sql);
        Ok(parsed)
    }
}
