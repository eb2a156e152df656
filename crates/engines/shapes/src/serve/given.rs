//! Parameters as they were sent, before anything is asked of them: from the query, and over it from a JSON body.

use super::invalid::{Field, Invalid};
use super::query::{decoded, pairs};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// The largest body of a POST.
pub(crate) const BODY_BYTES_MAX: usize = 8_000_000;
/// More than any statement of Postgres can have.
const PARAMS_MAX: usize = 65_535;

/// A body that is no set of parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// 413.
    TooLarge,
    /// 400: not JSON, and why.
    NotJson(String),
    /// 400: JSON, but no object.
    NotObject,
}

/// One parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Given<'a> {
    #[default]
    Absent,
    Text(Cow<'a, str>),
    Bool(bool),
    /// A JSON number.
    Number(String),
    /// Names in a list.
    List(Vec<Cow<'a, str>>),
    /// No value that any parameter may have.
    Wrong,
}

/// Values for `$1`, `$2`, … by what stands for the number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum GivenParams<'a> {
    #[default]
    Absent,
    Map(Vec<(Cow<'a, str>, Cow<'a, str>)>),
    /// One text, which subsets may have: a JSON object.
    Text(Cow<'a, str>),
    Wrong,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GivenSubset<'a> {
    pub(crate) where_sql: Given<'a>,
    pub(crate) params: GivenParams<'a>,
    pub(crate) order_by: Given<'a>,
    pub(crate) limit: Given<'a>,
    pub(crate) offset: Given<'a>,
}

#[derive(Debug, Default)]
pub(crate) struct GivenAll<'a> {
    pub(crate) table: Given<'a>,
    pub(crate) offset: Given<'a>,
    pub(crate) handle: Given<'a>,
    pub(crate) live: Given<'a>,
    pub(crate) live_sse: Given<'a>,
    pub(crate) experimental_live_sse: Given<'a>,
    pub(crate) cursor: Given<'a>,
    pub(crate) where_sql: Given<'a>,
    pub(crate) params: GivenParams<'a>,
    pub(crate) columns: Given<'a>,
    pub(crate) queryable_columns: Given<'a>,
    pub(crate) replica: Given<'a>,
    pub(crate) log: Given<'a>,
    pub(crate) compaction: Given<'a>,
    /// `Some` as soon as any parameter of a subset is there, known or not.
    pub(crate) subset: Option<Box<GivenSubset<'a>>>,
    /// `subset` itself has a value that is no object.
    pub(crate) subset_wrong: bool,
}

impl<'a> GivenAll<'a> {
    /// The parameters of a query; what is not known is passed over, and of what stands twice the last one counts.
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
                        *place = Given::Wrong;
                    }
                }
            }
        } else if name == "params" {
            self.params = GivenParams::of_text(value);
        } else if let Some(place) = self.place(name) {
            *place = Given::of_text(value);
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
                    *place = Given::Wrong;
                }
            }
            None if name == "params" => subset.params = GivenParams::of_text(value),
            None => {
                if let Some(place) = subset.place(name) {
                    *place = Given::of_text(value);
                }
            }
        }
    }

    fn place(&mut self, name: &str) -> Option<&mut Given<'a>> {
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

    /// Lays the body of a POST over the query. Without a member `subset`, members that a subset has are those of a subset.
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
                ("params", value) => self.params = GivenParams::of_json(value),
                // How a request is told from the one before is a matter of its address.
                ("cursor", _) => {}
                (name, value) => {
                    if let Some(place) = self.place(name) {
                        *place = Given::of_json(value);
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
                subset.params = GivenParams::of_json(value);
            } else if let Some(place) = subset.place(&name) {
                *place = Given::of_json(value);
            }
        }
    }
}

impl<'a> GivenSubset<'a> {
    fn place(&mut self, name: &str) -> Option<&mut Given<'a>> {
        Some(match name {
            "where" => &mut self.where_sql,
            "order_by" => &mut self.order_by,
            "limit" => &mut self.limit,
            "offset" => &mut self.offset,
            _ => return None,
        })
    }
}

impl<'a> Given<'a> {
    fn of_text(value: &'a str) -> Self {
        decoded(value).map_or(Given::Wrong, Given::Text)
    }

    fn of_json(value: Value) -> Self {
        let text = |text: String| if text.contains('\0') { None } else { Some(Cow::Owned(text)) };
        match value {
            Value::Null => Given::Absent,
            Value::Bool(value) => Given::Bool(value),
            Value::Number(number) => Given::Number(number.to_string()),
            Value::String(value) => text(value).map_or(Given::Wrong, Given::Text),
            Value::Array(list) => list
                .into_iter()
                .map(|item| if let Value::String(item) = item { text(item) } else { None })
                .collect::<Option<Vec<_>>>()
                .map_or(Given::Wrong, Given::List),
            Value::Object(_) => Given::Wrong,
        }
    }

    /// One more of a list.
    fn push(&mut self, value: &'a str) {
        let Ok(value) = decoded(value) else {
            *self = Given::Wrong;
            return;
        };
        match self {
            Given::List(list) => list.push(value),
            Given::Wrong => {}
            _ => *self = Given::List(vec![value]),
        }
    }

    /// A text; one of nothing but spaces is none.
    pub(crate) fn text(self, field: Field, invalid: &mut Invalid) -> Option<Cow<'a, str>> {
        match self {
            Given::Absent => None,
            Given::Text(text) if text.trim_start().is_empty() => None,
            Given::Text(text) => Some(text),
            _ => wrong(field, invalid),
        }
    }

    /// Any value but `false` means yes.
    pub(crate) fn flag(&self) -> Option<bool> {
        match self {
            Given::Absent => None,
            Given::Text(text) => Some(text != "false"),
            Given::Bool(value) => Some(*value),
            _ => Some(true),
        }
    }

    pub(crate) fn boolean(self, field: Field, invalid: &mut Invalid) -> Option<bool> {
        match &self {
            Given::Bool(value) => Some(*value),
            Given::Text(text) => match text.as_ref() {
                "true" | "1" => Some(true),
                "false" | "0" => Some(false),
                text if text.trim_start().is_empty() => None,
                _ => wrong(field, invalid),
            },
            Given::Absent => None,
            _ => wrong(field, invalid),
        }
    }

    pub(crate) fn integer(self, field: Field, invalid: &mut Invalid) -> Option<i64> {
        let text = match &self {
            Given::Absent => return None,
            Given::Number(number) => number.as_str(),
            Given::Text(text) if text.trim_start().is_empty() => return None,
            Given::Text(text) => text.as_ref(),
            _ => return wrong(field, invalid),
        };
        text.parse().ok().or_else(|| wrong(field, invalid))
    }
}

impl<'a> GivenParams<'a> {
    fn of_text(value: &'a str) -> Self {
        match decoded(value) {
            Ok(text) if text.trim_start().is_empty() => GivenParams::Absent,
            Ok(text) => GivenParams::Text(text),
            Err(_) => GivenParams::Wrong,
        }
    }

    pub(crate) fn of_json(value: Value) -> Self {
        match value {
            Value::Null => GivenParams::Absent,
            Value::String(text) if !text.contains('\0') => GivenParams::Text(Cow::Owned(text)),
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
                .map_or(GivenParams::Wrong, GivenParams::Map),
            _ => GivenParams::Wrong,
        }
    }

    fn put(&mut self, key: &str, value: &'a str) {
        let Ok(value) = decoded(value) else {
            *self = GivenParams::Wrong;
            return;
        };
        match self {
            GivenParams::Map(map) if map.len() >= PARAMS_MAX => *self = GivenParams::Wrong,
            GivenParams::Map(map) => map.push((Cow::Owned(key.to_owned()), value)),
            GivenParams::Wrong => {}
            _ => *self = GivenParams::Map(vec![(Cow::Owned(key.to_owned()), value)]),
        }
    }
}

pub(crate) fn wrong<T>(field: Field, invalid: &mut Invalid) -> Option<T> {
    invalid.add(field, "is invalid");
    None
}

/// `name[key]`, in parts.
fn bracketed(name: &str) -> Option<(&str, &str)> {
    let (name, rest) = name.split_once('[')?;
    Some((name, rest.strip_suffix(']')?))
}
