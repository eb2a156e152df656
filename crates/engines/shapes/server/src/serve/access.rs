//! Access to parts of tables: the grants of a token, and requests narrowed by them.
//!
//! A grant is a table, perhaps a where clause, perhaps a list of columns. A request under it gets the shape `(grant)
//! AND (request)` with columns of the grant: an ordinary shape, found by its query key like any other, so everything
//! that is shared between clients is shared between clients with the same rights, and nothing else is.
//! [`Grant::narrow`] is the one place where the two meet.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::str::FromStr;
use thalweg_filter::Uses;
use thalweg_shapes_core::request::params::{Shape, Subset};
use thalweg_shapes_core::request::query::pairs;
use thalweg_shapes_model::failure::Beyond;
use thalweg_shapes_model::identifier;
use thalweg_shapes_model::invalid::Invalid;
use thalweg_shapes_model::table::TableName;

/// Tables of one token, at most: a token is read with each request.
const GRANTS_MAX: usize = 64;

/// The part of one table that a token may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Grant {
    table: TableName,
    /// Only rows for which it is true.
    where_sql: Option<String>,
    /// Values of `$1`, `$2`, …
    params: Vec<String>,
    /// Only these; sorted, each once.
    columns: Option<Vec<String>>,
    /// The parts of `where_sql` that the holder of another token wrote when it requested this one.
    narrowing: Vec<Clause>,
}

/// A where clause by itself, that stands beside a grant's own clause: its writer may not see all rows that Postgres
/// evaluates it for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clause {
    pub(crate) sql: String,
    /// Values of `$1`, `$2`, …
    pub(crate) params: Vec<(u32, String)>,
}

/// A request, narrowed by a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Left<'a> {
    pub(crate) shape: Shape<'a>,
    /// The parts of its clause that may narrow the grant's rows and tell nothing of others. By the types of their
    /// columns they may still fail on some rows; code that knows the table must refuse that.
    pub(crate) narrowing: Vec<Clause>,
}

/// A grant as it stands in files and tokens.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    table: String,
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    where_sql: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    params: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    columns: Option<Vec<String>>,
}

/// Grants of different tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Grant>", into = "Vec<Grant>")]
pub struct Grants(Vec<Grant>);

/// The grants of a request's sender, and their expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    pub grants: Grants,
    /// Milliseconds since the Unix epoch: nothing is sent from then on.
    pub expires_ms: Option<u64>,
}

/// A refusal that was decided in front of the engine, to be sent in the engine's form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    pub status: u16,
    pub code: &'static str,
    pub message: String,
}

/// Why a request under a grant is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Narrowed {
    Beyond(Beyond),
    Invalid(Invalid),
}

impl From<Beyond> for Narrowed {
    fn from(beyond: Beyond) -> Self {
        Self::Beyond(beyond)
    }
}

impl Grant {
    #[must_use]
    pub fn table(&self) -> &TableName {
        &self.table
    }

    fn is_whole(&self) -> bool {
        self.where_sql.is_none() && self.columns.is_none()
    }

    fn has_column(&self, name: &str) -> bool {
        self.columns.as_ref().is_none_or(|columns| columns.iter().any(|column| column == name))
    }

    fn column(&self, name: &str) -> Result<(), Beyond> {
        match self.has_column(name) {
            true => Ok(()),
            false => Err(Beyond::Column { column: name.to_owned(), table: self.table.clone() }),
        }
    }

    /// Narrows a request: the result selects no more than the grant, and no more than the request.
    fn narrow<'a>(&self, asked: Shape<'a>, all: &Grants) -> Result<Left<'a>, Narrowed> {
        for name in [&asked.columns, &asked.queryable].into_iter().flatten().flatten() {
            self.column(name)?;
        }
        let granted = || self.columns.as_ref().map(|names| names.iter().cloned().map(Cow::Owned).collect());
        let mut narrowing = self.narrowing.clone();
        let (where_sql, params) = match (&self.where_sql, asked.where_sql) {
            (granted, None) => (granted.clone().map(Cow::Owned), owned(&self.params)),
            (None, Some(sql)) => {
                self.check(&sql, &asked.params, all, false)?;
                (Some(sql), asked.params)
            }
            (Some(first), Some(sql)) => {
                self.check(&sql, &asked.params, all, false)?;
                let count = u32::try_from(self.params.len()).unwrap_or(u32::MAX);
                let both = thalweg_filter::both(first, count, &sql);
                let both = both.map_err(|error| Narrowed::Invalid(Invalid::shape("where", error.to_string())))?;
                narrowing.push(Clause { params: numbered(&asked.params), sql: sql.into_owned() });
                (Some(Cow::Owned(both)), owned(&self.params).into_iter().chain(asked.params).collect())
            }
        };
        let shape = Shape {
            // The columns that subsets may use: the table answers subsets, not the shape.
            queryable: asked.queryable.clone().or_else(granted),
            columns: asked.columns.or(asked.queryable).or_else(granted),
            where_sql,
            params,
            ..asked
        };
        Ok(Left { shape, narrowing })
    }

    /// Whether a clause of the client's may stand beside ours.
    fn check(&self, sql: &str, params: &[Cow<'_, str>], all: &Grants, of_subset: bool) -> Result<(), Narrowed> {
        let params = numbered(params);
        let invalid = if of_subset { Invalid::subset } else { Invalid::shape };
        let uses = thalweg_filter::uses(sql, &params);
        let Uses { columns, tables, may_fail } =
            uses.map_err(|error| Narrowed::Invalid(invalid("where", error.to_string())))?;
        columns.iter().try_for_each(|name| self.column(name))?;
        for named in tables {
            let inner = thalweg_shapes_model::predicate::name(&named);
            // Which values there are in a table is as much as its rows.
            if !all.of(&inner).is_some_and(Self::is_whole) {
                return Err(Beyond::Subquery(inner).into());
            }
        }
        match may_fail {
            Some(what) if self.where_sql.is_some() => Err(Beyond::MayFail { what, table: self.table.clone() }.into()),
            _ => Ok(()),
        }
    }
}

fn numbered(params: &[Cow<'_, str>]) -> Vec<(u32, String)> {
    (1..).zip(params.iter().map(|value| value.to_string())).collect()
}

fn owned<'a>(params: &[String]) -> Vec<Cow<'a, str>> {
    params.iter().cloned().map(Cow::Owned).collect()
}

impl Grants {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Grant> {
        self.0.iter()
    }

    fn of(&self, table: &TableName) -> Option<&Grant> {
        self.0.iter().find(|grant| grant.table == *table)
    }

    pub(crate) fn narrow<'a>(&self, asked: Shape<'a>) -> Result<Left<'a>, Narrowed> {
        let table = TableName { schema: asked.schema.clone().into_owned(), name: asked.table.clone().into_owned() };
        match self.of(&table) {
            Some(grant) => grant.narrow(asked, self),
            None => Err(Beyond::Table(table).into()),
        }
    }

    /// Checks a subset of a shape that was granted. True: the grant has some rows only, so the subset's clause may fail
    /// on none.
    pub(crate) fn check_subset(&self, shape: &Shape<'_>, subset: &Subset<'_>) -> Result<bool, Narrowed> {
        let table = TableName { schema: shape.schema.clone().into_owned(), name: shape.table.clone().into_owned() };
        let Some(grant) = self.of(&table) else { return Err(Beyond::Table(table).into()) };
        if let Some(sql) = &subset.where_sql {
            grant.check(sql, &subset.params, self, true)?;
        }
        Ok(grant.where_sql.is_some())
    }

    /// These grants, narrowed by others: the grants of a token that is requested with another token.
    pub fn under(&self, outer: &Self) -> Result<Self, Beyond> {
        let narrow = |grant: &Grant| {
            let asked = Shape {
                schema: Cow::Borrowed(&*grant.table.schema),
                table: Cow::Borrowed(&*grant.table.name),
                where_sql: grant.where_sql.as_deref().map(Cow::Borrowed),
                params: grant.params.iter().map(|value| Cow::Borrowed(&**value)).collect(),
                columns: grant.columns.as_ref().map(|names| names.iter().map(|name| Cow::Borrowed(&**name)).collect()),
                queryable: None,
                replica: thalweg_shapes_model::definition::Replica::Default,
                log: thalweg_shapes_model::definition::LogMode::Full,
            };
            let Left { shape: left, narrowing } = match outer.narrow(asked) {
                Ok(left) => left,
                Err(Narrowed::Beyond(beyond)) => return Err(beyond),
                // It could be read when it was granted.
                Err(Narrowed::Invalid(_)) => return Err(Beyond::Table(grant.table.clone())),
            };
            Ok(Grant {
                table: grant.table.clone(),
                where_sql: left.where_sql.map(Cow::into_owned),
                params: left.params.into_iter().map(Cow::into_owned).collect(),
                columns: left.columns.map(|names| names.into_iter().map(Cow::into_owned).collect()),
                narrowing,
            })
        };
        self.0.iter().map(narrow).collect::<Result<_, _>>().map(Self)
    }
}

impl TryFrom<Vec<Grant>> for Grants {
    type Error = String;

    fn try_from(grants: Vec<Grant>) -> Result<Self, String> {
        if grants.len() > GRANTS_MAX {
            return Err(format!("a token may name {GRANTS_MAX} tables at most"));
        }
        let twice = |(at, grant): (usize, &Grant)| grants[..at].iter().any(|other| other.table == grant.table);
        if let Some((_, grant)) = grants.iter().enumerate().find(|pair| twice(*pair)) {
            return Err(format!("the table {} is named twice: join the where clauses with OR", grant.table));
        }
        Ok(Self(grants))
    }
}

impl From<Grants> for Vec<Grant> {
    fn from(grants: Grants) -> Self {
        grants.0
    }
}

impl TryFrom<Written> for Grant {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let (schema, table) = identifier::parse_relation(&written.table).map_err(|why| format!("`table`: {why}"))?;
        let table = TableName { schema: schema.into_owned(), name: table.into_owned() };
        match &written.where_sql {
            None if !written.params.is_empty() => {
                return Err("`params` without a `where` for them to stand in".to_owned());
            }
            None => {}
            Some(sql) => {
                let params: Vec<(u32, String)> = (1..).zip(written.params.iter().cloned()).collect();
                thalweg_filter::uses(sql, &params).map_err(|error| format!("`where`: {error}"))?;
            }
        }
        let mut columns = written.columns;
        if let Some(names) = &mut columns {
            names.sort_unstable();
            names.dedup();
            if names.is_empty() || names[0].is_empty() {
                return Err("`columns` must name some, those of the primary key among them".to_owned());
            }
        }
        let narrowing = Vec::new();
        Ok(Self { table, where_sql: written.where_sql, params: written.params, columns, narrowing })
    }
}

impl From<Grant> for Written {
    fn from(grant: Grant) -> Self {
        Self {
            table: grant.table.to_string(),
            where_sql: grant.where_sql,
            params: grant.params,
            columns: grant.columns,
        }
    }
}

/// As in the query of a request: `table=items&where=owner=$1&params[1]=7&columns=id,title`. A space may stand as it is.
impl FromStr for Grant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A form's plus is a space, a person's is a plus: neither is guessed.
        if text.contains('+') {
            return Err("write %2B for a plus sign, and %20 or a space for a space".to_owned());
        }
        // Passed over in a request, where it is for others. Here a clause that is lost would grant more than was meant.
        let is_lost = |pair: &&str| {
            thalweg_shapes_core::request::query::decoded(pair.split('=').next().unwrap_or_default()).is_err()
        };
        if let Some(pair) = text.split('&').find(is_lost) {
            return Err(format!("`{pair}` has no name that can be read: write %25 for a percent sign and %26 for `&`"));
        }
        let mut written = Written::default();
        let (mut seen, mut params) = (Vec::new(), Vec::new());
        for (name, value) in pairs(text) {
            let value = thalweg_shapes_core::request::query::decoded(value)
                .map_err(|_| format!("the value of `{name}` is no text: write %25 for a percent sign"))?
                .into_owned();
            if seen.contains(&name) {
                return Err(format!("`{name}` stands twice"));
            }
            match &*name {
                "table" => written.table = value,
                "where" => written.where_sql = Some(value),
                "columns" => {
                    let names = identifier::parse_list(&value).map_err(|why| format!("`columns`: {why}"))?;
                    written.columns = Some(names.into_iter().map(Cow::into_owned).collect());
                }
                other => {
                    let number = other.strip_prefix("params[").and_then(|rest| rest.strip_suffix(']'));
                    let number: usize = number.and_then(|digits| digits.parse().ok()).ok_or_else(|| {
                        format!("`{other}` cannot be granted: write table, where, params[1], params[2], … and columns")
                    })?;
                    params.push((number, value));
                }
            }
            seen.push(name);
        }
        if written.table.is_empty() {
            return Err("it needs a `table`, such as table=items".to_owned());
        }
        params.sort_unstable();
        if params.iter().zip(1..).any(|((number, _), expected)| *number != expected) {
            return Err("`params` must be numbered from 1 on, without gaps".to_owned());
        }
        written.params = params.into_iter().map(|(_, value)| value).collect();
        written.try_into()
    }
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
