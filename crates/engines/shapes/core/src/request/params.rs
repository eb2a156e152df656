//! Requests for shapes: raw parameters become a valid request, or a list of complaints.
//!
//! The names, rules and messages are those of Electric's HTTP API. Nothing here asks the database: a new definition is
//! checked against the catalog when its shape is made.

use super::raw_params::{BodyError, RawParam, RawParams, RawSubset, RawValues, wrong};
use std::borrow::Cow;
use thalweg_shapes_model::definition::{Condition, Definition, LogMode, Replica};
use thalweg_shapes_model::family::Family;
use thalweg_shapes_model::identifier;
use thalweg_shapes_model::invalid::{Field, Invalid};
use thalweg_shapes_model::offset::From;
use thalweg_shapes_model::predicate;
use thalweg_shapes_model::table::TableName;

/// The reason why a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    Invalid(Invalid),
    Body(BodyError),
}

impl std::convert::From<Invalid> for RequestError {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl std::convert::From<BodyError> for RequestError {
    fn from(error: BodyError) -> Self {
        Self::Body(error)
    }
}

/// The definition of a shape as a request states it; borrowed from the query where nothing was encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape<'a> {
    pub schema: Cow<'a, str>,
    pub table: Cow<'a, str>,
    pub where_sql: Option<Cow<'a, str>>,
    /// Values of `$1`, `$2`, …, without gaps.
    pub params: Vec<Cow<'a, str>>,
    /// Sorted, each once; `None`: all.
    pub columns: Option<Vec<Cow<'a, str>>>,
    /// Columns that subsets may use; sorted, without duplicates; `None`: all.
    pub queryable: Option<Vec<Cow<'a, str>>>,
    pub replica: Replica,
    pub log: LogMode,
}

/// A request for a subset of a shape's current rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subset<'a> {
    pub where_sql: Option<Cow<'a, str>>,
    /// Values of `$1`, `$2`, …, without gaps.
    pub params: Vec<Cow<'a, str>>,
    /// The clause as the request wrote it.
    pub order_by: Option<Cow<'a, str>>,
    /// At least 1.
    pub limit: Option<u64>,
    pub offset: Option<u64>,
}

/// GET, HEAD or POST of a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeRequest<'a> {
    pub shape: Shape<'a>,
    pub offset: From,
    /// `None` for offsets that need no handle, whatever the client sent.
    pub handle: Option<Cow<'a, str>>,
    pub live: bool,
    /// True only with `live`.
    pub sse: bool,
    pub cursor: Option<Cow<'a, str>>,
    pub subset: Option<Box<Subset<'a>>>,
    pub(crate) compaction: bool,
}

/// DELETE of a shape: by definition, by handle, or by both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteRequest<'a> {
    pub shape: Option<Shape<'a>>,
    pub handle: Option<Cow<'a, str>>,
}

/// Checks of single parameters.
struct Cast<'a> {
    table: Option<Cow<'a, str>>,
    offset: Option<Cow<'a, str>>,
    handle: Option<Cow<'a, str>>,
    where_sql: Option<Cow<'a, str>>,
    params: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    columns: Option<Vec<Cow<'a, str>>>,
    queryable: Option<Vec<Cow<'a, str>>>,
    replica: Replica,
    log: LogMode,
    compaction: bool,
}

impl<'a> ShapeRequest<'a> {
    /// `body`: that of a POST, `None` for other methods.
    pub fn parse(query: &'a str, body: Option<&[u8]>) -> Result<Self, RequestError> {
        let mut raw = RawParams::of_query(query);
        if let Some(body) = body {
            raw.merge(body)?;
        }
        Ok(Self::check(raw)?)
    }

    fn check(mut raw: RawParams<'a>) -> Result<Self, Invalid> {
        let live = raw.live.flag().unwrap_or(false);
        let sse = raw.live_sse.flag().or(raw.experimental_live_sse.flag()).unwrap_or(false);
        let subset = std::mem::take(&mut raw.subset);
        let subset_wrong = raw.subset_wrong;
        let cursor = match std::mem::take(&mut raw.cursor) {
            RawParam::Text(cursor) => Some(cursor),
            _ => None,
        };
        let mut invalid = Invalid::default();
        let mut cast = Cast::new(raw, &mut invalid);
        let offset = match cast.offset.take() {
            None if !invalid.has(Field::Shape("offset")) => blank("offset", &mut invalid),
            offset => offset.unwrap_or_default(),
        };
        // Each of the following rules relies on those before it.
        invalid.or_ok()?;
        let offset: From = offset.parse().map_err(|_| Invalid::shape("offset", "has invalid format"))?;
        let mut handle = cast.handle.take();
        match offset {
            From::Start | From::Now => handle = None,
            From::After(_) if handle.is_none() => {
                return Err(Invalid::shape("handle", "can't be blank when offset != -1"));
            }
            From::After(_) => {}
        }
        match offset {
            From::Start if live => return Err(Invalid::shape("live", "can't be true when offset == -1")),
            From::Now if live => return Err(Invalid::shape("live", "can't be true when offset is 'now'")),
            _ => {}
        }
        if sse && !live {
            return Err(Invalid::shape("live_sse", "can't be true unless live is also true"));
        }
        let compaction = cast.compaction;
        let shape = cast.shape()?;
        if subset_wrong && subset.is_none() {
            return Err(Invalid::shape("subset", "is invalid"));
        }
        let subset = subset.map(|raw| Subset::check(*raw).map(Box::new)).transpose()?;
        Ok(Self { shape, offset, handle, live, sse, cursor, subset, compaction })
    }
}

impl<'a> DeleteRequest<'a> {
    pub fn parse(query: &'a str) -> Result<Self, Invalid> {
        let mut invalid = Invalid::default();
        let mut raw = RawParams::of_query(query);
        // `live` has no effect here, and must still be valid.
        std::mem::take(&mut raw.live).boolean(Field::Shape("live"), &mut invalid);
        let mut cast = Cast::new(raw, &mut invalid);
        let handle = cast.handle.take();
        if cast.table.is_none() && handle.is_none() && !invalid.has(Field::Shape("handle")) {
            invalid.add(Field::Shape("handle"), "can't be blank when shape definition is missing");
        }
        invalid.or_ok()?;
        let shape = if cast.table.is_some() { Some(cast.shape()?) } else { None };
        Ok(Self { shape, handle })
    }
}

impl<'a> Cast<'a> {
    fn new(raw: RawParams<'a>, invalid: &mut Invalid) -> Self {
        use Field::Shape as F;
        Self {
            table: raw.table.text(F("table"), invalid),
            offset: raw.offset.text(F("offset"), invalid),
            handle: raw.handle.text(F("handle"), invalid),
            where_sql: raw.where_sql.text(F("where"), invalid),
            columns: names(raw.columns, "columns", invalid),
            queryable: names(raw.queryable_columns, "queryable_columns", invalid),
            replica: match raw.replica.text(F("replica"), invalid).as_deref() {
                None | Some("default") => Replica::Default,
                Some("full") => Replica::Full,
                Some(_) => wrong(F("replica"), invalid).unwrap_or_default(),
            },
            params: match raw.params {
                RawValues::Absent => Vec::new(),
                RawValues::Map(map) => map,
                RawValues::Text(_) | RawValues::Wrong => wrong(F("params"), invalid).unwrap_or_default(),
            },
            compaction: raw.compaction.boolean(F("experimental_compaction"), invalid).unwrap_or(false),
            log: match raw.log.text(F("log"), invalid).as_deref() {
                None | Some("full") => LogMode::Full,
                Some("changes_only") => LogMode::ChangesOnly,
                Some(_) => wrong(F("log"), invalid).unwrap_or_default(),
            },
        }
    }

    fn shape(self) -> Result<Shape<'a>, Invalid> {
        let Some(table) = self.table else { return Err(Invalid::shape("table", "can't be blank")) };
        let (schema, table) = relation(table).map_err(|message| Invalid::shape("table", message))?;
        // Parameters need a predicate.
        let params = match self.where_sql {
            Some(_) => numbered(self.params).map_err(|message| Invalid::shape("params", message))?,
            None => Vec::new(),
        };
        // A predicate that cannot be parsed is refused later.
        let numbered: Vec<(u32, String)> = (1..).zip(params.iter().map(|value| value.to_string())).collect();
        let has_subqueries = |sql: &str| predicate::inner_tables(sql, &numbered).is_ok_and(|named| !named.is_empty());
        if self.compaction && self.where_sql.as_deref().is_some_and(has_subqueries) {
            return Err(Invalid::shape("experimental_compaction", "can't be enabled for shapes with subqueries"));
        }
        Ok(Shape {
            schema,
            table,
            where_sql: self.where_sql,
            params,
            columns: self.columns,
            queryable: self.queryable,
            replica: self.replica,
            log: self.log,
        })
    }
}

impl<'a> Subset<'a> {
    fn check(raw: RawSubset<'a>) -> Result<Self, Invalid> {
        use Field::Subset as F;
        let mut invalid = Invalid::default();
        let order_by = raw.order_by.text(F("order_by"), &mut invalid);
        let limit = raw.limit.integer(F("limit"), &mut invalid);
        let offset = raw.offset.integer(F("offset"), &mut invalid);
        let where_sql = raw.where_sql.text(F("where"), &mut invalid);
        let params = match raw.params {
            RawValues::Text(text) => match serde_json::from_str(&text) {
                Ok(value @ serde_json::Value::Object(_)) => RawValues::of_json(value),
                other => {
                    let message =
                        if other.is_ok() { "params must be a JSON object" } else { "params must be valid JSON" };
                    invalid.add(F("params"), message);
                    RawValues::Absent
                }
            },
            other => other,
        };
        let params = match params {
            RawValues::Map(map) => map,
            RawValues::Absent => Vec::new(),
            RawValues::Text(_) | RawValues::Wrong => wrong(F("params"), &mut invalid).unwrap_or_default(),
        };
        if limit.is_some_and(|limit| limit <= 0) {
            invalid.add(F("limit"), "must be greater than 0");
        }
        if offset.is_some_and(|offset| offset < 0) {
            invalid.add(F("offset"), "must be greater than or equal to 0");
        }
        if (limit.is_some() || offset.is_some()) && order_by.is_none() && !invalid.has(F("order_by")) {
            invalid.add(F("order_by"), "order_by is required when limit or offset is present");
        }
        invalid.or_ok()?;
        let params = match where_sql {
            Some(_) => numbered(params).map_err(|message| Invalid::subset("params", message))?,
            None => Vec::new(),
        };
        let [limit, offset] = [limit, offset].map(|n| n.and_then(|n| u64::try_from(n).ok()));
        Ok(Self { where_sql, params, order_by, limit, offset })
    }
}

impl Shape<'_> {
    /// The definition with owned strings.
    pub fn to_definition(&self) -> Definition {
        let owned = |names: &Option<Vec<Cow<'_, str>>>| {
            names.as_ref().map(|names| names.iter().map(|name| name.clone().into_owned()).collect())
        };
        Definition {
            table: TableName { schema: self.schema.clone().into_owned(), name: self.table.clone().into_owned() },
            where_sql: self.where_sql.clone().map(Cow::into_owned),
            params: (1..).zip(self.params.iter().map(|value| value.clone().into_owned())).collect(),
            columns: owned(&self.columns),
            queryable: owned(&self.queryable),
            replica: self.replica,
            log: self.log,
        }
    }

    /// Appends the query key: bytes that are equal for two requests exactly if their definitions are spelled the same.
    /// It finds a known shape without parsing its predicate.
    pub(crate) fn push_key(&self, out: &mut Vec<u8>) {
        let text = |out: &mut Vec<u8>, text: &str| {
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        };
        let list = |out: &mut Vec<u8>, list: &[Cow<'_, str>]| {
            out.extend_from_slice(&(list.len() as u32).to_le_bytes());
            list.iter().for_each(|item| text(out, item));
        };
        let flags = [
            self.where_sql.is_some(),
            self.columns.is_some(),
            self.queryable.is_some(),
            self.replica == Replica::Full,
            self.log == LogMode::ChangesOnly,
        ];
        out.push(flags.iter().fold(0, |bits, flag| bits << 1 | u8::from(*flag)));
        text(out, &self.schema);
        text(out, &self.table);
        if let Some(where_sql) = &self.where_sql {
            text(out, where_sql);
            list(out, &self.params);
        }
        for names in [&self.columns, &self.queryable].into_iter().flatten() {
            list(out, names);
        }
    }

    #[must_use]
    pub fn key(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        self.push_key(&mut out);
        out
    }
}

impl<'a> Shape<'a> {
    /// The definition of a family and a condition.
    #[must_use]
    pub fn of(family: &'a Family, condition: &'a Condition) -> Self {
        let borrowed = |names: &'a Option<Vec<String>>| {
            names.as_ref().map(|names| names.iter().map(|name| name.as_str().into()).collect())
        };
        Self {
            schema: family.name.schema.as_str().into(),
            table: family.name.name.as_str().into(),
            where_sql: condition.where_sql().map(Cow::Borrowed),
            params: condition.params().map(Cow::Borrowed).collect(),
            columns: borrowed(&family.columns),
            queryable: borrowed(&family.queryable),
            replica: family.replica,
            log: family.log,
        }
    }
}

fn blank<T: Default>(field: &'static str, invalid: &mut Invalid) -> T {
    invalid.add(Field::Shape(field), "can't be blank");
    T::default()
}

/// Splits the name of a table; copies only encoded names.
fn relation(text: Cow<'_, str>) -> Result<(Cow<'_, str>, Cow<'_, str>), String> {
    match text {
        Cow::Borrowed(text) => identifier::parse_relation(text),
        Cow::Owned(text) => {
            let (schema, table) = identifier::parse_relation(&text)?;
            Ok((Cow::Owned(schema.into_owned()), Cow::Owned(table.into_owned())))
        }
    }
}

/// A list of columns: text between commas, or a list of names as they are.
fn names<'a>(raw: RawParam<'a>, field: &'static str, invalid: &mut Invalid) -> Option<Vec<Cow<'a, str>>> {
    let parsed = match raw {
        RawParam::List(mut list) if !list.is_empty() => {
            list.sort_unstable();
            list.dedup();
            if list[0].is_empty() { Err("Invalid zero-length identifier".to_owned()) } else { Ok(list) }
        }
        other => match other.text(Field::Shape(field), invalid)? {
            Cow::Borrowed(text) => identifier::parse_list(text),
            Cow::Owned(text) => identifier::parse_list(&text)
                .map(|names| names.into_iter().map(|name| Cow::Owned(name.into_owned())).collect()),
        },
    };
    parsed.map_err(|message| invalid.add(Field::Shape(field), message)).ok()
}

/// Values in the order of their numbers, which must be 1, 2, 3, …; of a repeated number the last value counts.
fn numbered<'a>(params: Vec<(Cow<'a, str>, Cow<'a, str>)>) -> Result<Vec<Cow<'a, str>>, &'static str> {
    let mut by_number = Vec::with_capacity(params.len());
    for (key, value) in params {
        let number: i64 = key.parse().map_err(|_| "Parameters can only use numbers as keys")?;
        by_number.push((number, value));
    }
    by_number.sort_by_key(|(number, _)| *number);
    // The sort is stable, so the last of equal ones is the one sent last.
    by_number.reverse();
    by_number.dedup_by_key(|(number, _)| *number);
    by_number.reverse();
    if by_number.iter().zip(1..).any(|((number, _), expected)| *number != expected) {
        return Err("Parameters must be numbered sequentially, starting from 1");
    }
    Ok(by_number.into_iter().map(|(_, value)| value).collect())
}

#[cfg(test)]
#[path = "params_tests.rs"]
mod tests;
