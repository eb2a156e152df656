//! Raw parameters: from the query, overlaid by a JSON body, before any validation.

use super::query::{decoded, pairs};
use serde_json::{Map, Value};
use std::borrow::Cow;
use thalweg_shapes_model::invalid::{Field, Invalid};

/// The largest body of a POST.
pub const BODY_BYTES_MAX: usize = 8_000_000;
/// The most parameters of a where clause: more than a statement of Postgres can have.
const PARAMS_MAX: usize = 65_535;

/// The error of a body that holds no parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// 413.
    TooLarge,
    /// 400: not JSON, and why.
    NotJson(String),
    /// 400: JSON, but no object.
    NotObject,
}

/// One parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum RawParam<'a> {
    #[default]
    Absent,
    Text(Cow<'a, str>),
    Bool(bool),
    /// A JSON number.
    Number(String),
    /// Names in a list.
    List(Vec<Cow<'a, str>>),
    /// A value that no parameter may have.
    Wrong,
}

/// Values for `$1`, `$2`, …, by their raw keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum RawValues<'a> {
    #[default]
    Absent,
    Map(Vec<(Cow<'a, str>, Cow<'a, str>)>),
    /// One text, which subsets may have: a JSON object.
    Text(Cow<'a, str>),
    Wrong,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawSubset<'a> {
    pub where_sql: RawParam<'a>,
    pub params: RawValues<'a>,
    pub order_by: RawParam<'a>,
    pub limit: RawParam<'a>,
    pub offset: RawParam<'a>,
}

#[derive(Debug, Default)]
pub(crate) struct RawParams<'a> {
    pub table: RawParam<'a>,
    pub offset: RawParam<'a>,
    pub handle: RawParam<'a>,
    pub live: RawParam<'a>,
    pub(crate) live_sse: RawParam<'a>,
    pub(crate) experimental_live_sse: RawParam<'a>,
    pub cursor: RawParam<'a>,
    pub where_sql: RawParam<'a>,
    pub params: RawValues<'a>,
    pub columns: RawParam<'a>,
    pub queryable_columns: RawParam<'a>,
    pub replica: RawParam<'a>,
    pub log: RawParam<'a>,
    pub(crate) compaction: RawParam<'a>,
    /// `Some` if any parameter of a subset was sent, known or not.
    pub subset: Option<Box<RawSubset<'a>>>,
    /// `subset` itself has a value that is no object.
    pub(crate) subset_wrong: bool,
}

impl<'a> RawParams<'a> {
    /// Reads the parameters of a query; ignores unknown ones, and takes the last of repeated ones.
    pub(crate) fn of_query(query: &'a str) -> Self {
        let mut all = Self::default();
        for (name, value) in pairs(query) {
            all.put(&name, value);
        }
        all
    }

    fn put(&mut self, name: &str, value: &'a str) {
        if let Some(name) = name.strip_prefix("subset__") {
            self.put_subset(name, value);
        } else if let Some((name, rest)) = name.strip_prefix("subset[").and_then(|rest| rest.split_once(']')) {
            let name = format!("{name}{rest}");
            self.put_subset(&name, value);
        } else if let Some((name, key)) = bracketed(name) {
            match (name, key) {
                ("params", key) => self.params.put(key, value),
                (name, "") if name == "columns" || name == "queryable_columns" => {
                    if let Some(place) = self.place(name) {
                        place.push(value);
                    }
                }
                (name, _) => {
                    if let Some(place) = self.place(name) {
                        *place = RawParam::Wrong;
                    }
                }
            }
        } else if name == "params" {
            self.params = RawValues::of_text(value);
        } else if let Some(place) = self.place(name) {
            *place = RawParam::of_text(value);
        } else if name == "subset" && !value.is_empty() {
            self.subset_wrong = true;
        }
    }

    fn put_subset(&mut self, name: &str, value: &'a str) {
        let subset = self.subset.get_or_insert_default();
        match bracketed(name) {
            Some(("params", key)) => subset.params.put(key, value),
            Some((name, _)) => {
                if let Some(place) = subset.place(name) {
                    *place = RawParam::Wrong;
                }
            }
            None if name == "params" => subset.params = RawValues::of_text(value),
            None => {
                if let Some(place) = subset.place(name) {
                    *place = RawParam::of_text(value);
                }
            }
        }
    }

    fn place(&mut self, name: &str) -> Option<&mut RawParam<'a>> {
        Some(match name {
            "table" => &mut self.table,
            "offset" => &mut self.offset,
            "handle" => &mut self.handle,
            "live" => &mut self.live,
            "live_sse" => &mut self.live_sse,
            "experimental_live_sse" => &mut self.experimental_live_sse,
            "cursor" => &mut self.cursor,
            "where" => &mut self.where_sql,
            "columns" => &mut self.columns,
            "queryable_columns" => &mut self.queryable_columns,
            "replica" => &mut self.replica,
            "log" => &mut self.log,
            "experimental_compaction" => &mut self.compaction,
            _ => return None,
        })
    }

    /// Overlays the query with the body of a POST. Without a member `subset`, members with the names of a subset's are
    /// the subset's.
    pub(crate) fn merge(&mut self, body: &[u8]) -> Result<(), BodyError> {
        if body.is_empty() {
            return Ok(());
        }
        if body.len() > BODY_BYTES_MAX {
            return Err(BodyError::TooLarge);
        }
        let body = match serde_json::from_slice::<Value>(body) {
            Ok(Value::Object(body)) => body,
            Ok(_) => return Err(BodyError::NotObject),
            Err(error) => return Err(BodyError::NotJson(error.to_string())),
        };
        let nested = matches!(body.get("subset"), Some(Value::Object(_)));
        for (name, value) in body {
            match (name.as_str(), value) {
                ("subset", Value::Object(members)) => self.merge_subset(members),
                ("subset", Value::Null) => {}
                ("subset", _) => self.subset_wrong = true,
                ("where" | "order_by" | "limit" | "offset" | "params" | "where_expr" | "order_by_expr", value)
                    if !nested =>
                {
                    self.merge_subset(Map::from_iter([(name, value)]));
                }
                ("params", value) => self.params = RawValues::of_json(value),
                // Cache busters belong to the address.
                ("cursor", _) => {}
                (name, value) => {
                    if let Some(place) = self.place(name) {
                        *place = RawParam::of_json(value);
                    }
                }
            }
        }
        Ok(())
    }

    fn merge_subset(&mut self, members: Map<String, Value>) {
        let subset = self.subset.get_or_insert_default();
        for (name, value) in members {
            if name == "params" {
                subset.params = RawValues::of_json(value);
            } else if let Some(place) = subset.place(&name) {
                *place = RawParam::of_json(value);
            }
        }
    }
}

impl<'a> RawSubset<'a> {
    fn place(&mut self, name: &str) -> Option<&mut RawParam<'a>> {
        Some(match name {
            "where" => &mut self.where_sql,
            "order_by" => &mut self.order_by,
            "limit" => &mut self.limit,
            "offset" => &mut self.offset,
            _ => return None,
        })
    }
}

impl<'a> RawParam<'a> {
    fn of_text(value: &'a str) -> Self {
        decoded(value).map_or(RawParam::Wrong, RawParam::Text)
    }

    fn of_json(value: Value) -> Self {
        let text = |text: String| if text.contains('\0') { None } else { Some(Cow::Owned(text)) };
        match value {
            Value::Null => RawParam::Absent,
            Value::Bool(value) => RawParam::Bool(value),
            Value::Number(number) => RawParam::Number(number.to_string()),
            Value::String(value) => text(value).map_or(RawParam::Wrong, RawParam::Text),
            Value::Array(list) => list
                .into_iter()
                .map(|item| if let Value::String(item) = item { text(item) } else { None })
                .collect::<Option<Vec<_>>>()
                .map_or(RawParam::Wrong, RawParam::List),
            Value::Object(_) => RawParam::Wrong,
        }
    }

    /// Appends to a list.
    fn push(&mut self, value: &'a str) {
        let Ok(value) = decoded(value) else {
            *self = RawParam::Wrong;
            return;
        };
        match self {
            RawParam::List(list) => list.push(value),
            RawParam::Wrong => {}
            _ => *self = RawParam::List(vec![value]),
        }
    }

    /// A text; blank text counts as none.
    pub(crate) fn text(self, field: Field, invalid: &mut Invalid) -> Option<Cow<'a, str>> {
        match self {
            RawParam::Absent => None,
            RawParam::Text(text) if text.trim_start().is_empty() => None,
            RawParam::Text(text) => Some(text),
            _ => wrong(field, invalid),
        }
    }

    /// `false` is false; any other value is true.
    pub(crate) fn flag(&self) -> Option<bool> {
        match self {
            RawParam::Absent => None,
            RawParam::Text(text) => Some(text != "false"),
            RawParam::Bool(value) => Some(*value),
            _ => Some(true),
        }
    }

    pub(crate) fn boolean(self, field: Field, invalid: &mut Invalid) -> Option<bool> {
        match &self {
            RawParam::Bool(value) => Some(*value),
            RawParam::Text(text) => match text.as_ref() {
                "true" | "1" => Some(true),
                "false" | "0" => Some(false),
                text if text.trim_start().is_empty() => None,
                _ => wrong(field, invalid),
            },
            RawParam::Absent => None,
            _ => wrong(field, invalid),
        }
    }

    pub(crate) fn integer(self, field: Field, invalid: &mut Invalid) -> Option<i64> {
        let text = match &self {
            RawParam::Absent => return None,
            RawParam::Number(number) => number.as_str(),
            RawParam::Text(text) if text.trim_start().is_empty() => return None,
            RawParam::Text(text) => text.as_ref(),
            _ => return wrong(field, invalid),
        };
        text.parse().ok().or_else(|| wrong(field, invalid))
    }
}

impl<'a> RawValues<'a> {
    fn of_text(value: &'a str) -> Self {
        match decoded(value) {
            Ok(text) if text.trim_start().is_empty() => RawValues::Absent,
            Ok(text) => RawValues::Text(text),
            Err(_) => RawValues::Wrong,
        }
    }

    pub(crate) fn of_json(value: Value) -> Self {
        match value {
            Value::Null => RawValues::Absent,
            Value::String(text) if !text.contains('\0') => RawValues::Text(Cow::Owned(text)),
            Value::Object(members) => members
                .into_iter()
                .map(|(key, value)| {
                    let value = match value {
                        Value::String(text) if !text.contains('\0') => text,
                        Value::Number(number) => number.to_string(),
                        Value::Bool(value) => value.to_string(),
                        // Parameters are texts, and no text is NULL.
                        _ => return None,
                    };
                    Some((Cow::Owned(key), Cow::Owned(value)))
                })
                .collect::<Option<Vec<_>>>()
                .map_or(RawValues::Wrong, RawValues::Map),
            _ => RawValues::Wrong,
        }
    }

    fn put(&mut self, key: &str, value: &'a str) {
        let Ok(value) = decoded(value) else {
            *self = RawValues::Wrong;
            return;
        };
        match self {
            RawValues::Map(map) if map.len() >= PARAMS_MAX => *self = RawValues::Wrong,
            RawValues::Map(map) => map.push((Cow::Owned(key.to_owned()), value)),
            RawValues::Wrong => {}
            _ => *self = RawValues::Map(vec![(Cow::Owned(key.to_owned()), value)]),
        }
    }
}

pub fn wrong<T>(field: Field, invalid: &mut Invalid) -> Option<T> {
    invalid.add(field, "is invalid");
    None
}

/// `name[key]`, in parts.
fn bracketed(name: &str) -> Option<(&str, &str)> {
    let (name, rest) = name.split_once('[')?;
    Some((name, rest.strip_suffix(']')?))
}
