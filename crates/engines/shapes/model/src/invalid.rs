//! Complaints about a request, listed by field.

use serde_json::{Map, Value};

/// A field of the request. Fields of a subset are under `subset` in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// A parameter of the shape.
    Shape(&'static str),
    /// A parameter of a subset.
    Subset(&'static str),
}

/// Precedes the names of missing columns in a message.
pub const MISSING: &str = ", missing: ";

/// One or more complaints: 400.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invalid(Vec<(Field, String)>);

impl Invalid {
    /// A complaint about a parameter of the shape.
    pub fn shape(field: &'static str, message: impl Into<String>) -> Self {
        Self(vec![(Field::Shape(field), message.into())])
    }

    /// A complaint about a parameter of a subset.
    pub fn subset(field: &'static str, message: impl Into<String>) -> Self {
        Self(vec![(Field::Subset(field), message.into())])
    }

    /// Adds a complaint about a field.
    pub fn add(&mut self, field: Field, message: impl Into<String>) {
        self.0.push((field, message.into()));
    }

    /// The complaints for a client whose grant hides rows or columns: without the value that Postgres repeats when it
    /// fails on a row (SQLSTATE class 22, data exceptions), and without the names of columns outside of the grant.
    pub fn without_values(self) -> Self {
        let hide = |(field, message): (Field, String)| match message.rfind(" (22").map(|at| &message[at..]) {
            Some(code) if code.len() == " (22P02)".len() => {
                (field, format!("it cannot be evaluated for some row{code}"))
            }
            _ => match message.split_once(MISSING) {
                Some((before, _)) if matches!(field, Field::Shape("columns" | "queryable_columns")) => {
                    (field, before.to_owned())
                }
                _ => (field, message),
            },
        };
        Self(self.0.into_iter().map(hide).collect())
    }

    /// Whether there is a complaint about the field.
    pub fn has(&self, field: Field) -> bool {
        self.0.iter().any(|(known, _)| *known == field)
    }

    /// `Ok` if there are no complaints.
    pub fn or_ok(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }

    /// `{"message":"Invalid request","errors":{field:[…],"subset":{field:[…]}}}`.
    pub fn body(&self) -> Vec<u8> {
        let mut errors = Map::new();
        for (field, message) in &self.0 {
            let (group, name) = match *field {
                Field::Shape(name) => (&mut errors, name),
                Field::Subset(name) => {
                    let group = errors.entry("subset").or_insert_with(|| Value::Object(Map::new()));
                    // A complaint about the subset as a whole goes before those about its fields.
                    let Value::Object(group) = group else { continue };
                    (group, name)
                }
            };
            let list = group.entry(name).or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(list) = list {
                list.push(Value::String(message.clone()));
            }
        }
        serde_json::json!({ "message": "Invalid request", "errors": errors }).to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_value_that_a_clause_failed_on_can_be_left_out() {
        let of = |message: &str| String::from_utf8(Invalid::shape("where", message).without_values().body()).unwrap();
        let said = of("invalid input syntax for type integer: \"a secret (22)\" (22P02)");
        assert!(said.contains("for some row (22P02)") && !said.contains("secret"), "{said}");
        for kept in
            ["column \"x\" does not exist (42703)", "invalid input syntax for type integer: \"x\"", "(22P02)", " (22"]
        {
            assert!(of(kept).contains(&serde_json::to_string(kept).unwrap()), "{kept}");
        }
    }

    #[test]
    fn columns_that_a_grant_does_not_have_are_not_named() {
        for list in ["columns", "queryable_columns"] {
            let said = Invalid::shape(list, format!("must include all{MISSING}id")).without_values();
            assert_eq!(said, Invalid::shape(list, "must include all"));
        }
        let kept = Invalid::shape("where", format!("x = 'a{MISSING}b'"));
        assert_eq!(kept.clone().without_values(), kept);
    }

    #[test]
    fn complaints_are_lists_by_field_and_those_of_subsets_are_nested() {
        let mut invalid = Invalid::shape("offset", "has invalid format");
        invalid.add(Field::Subset("limit"), "is invalid");
        invalid.add(Field::Subset("order_by"), "a \"b\"");
        invalid.add(Field::Shape("offset"), "x");
        assert_eq!(
            serde_json::from_slice::<Value>(&invalid.body()).unwrap(),
            json!({
                "message": "Invalid request",
                "errors": {"offset": ["has invalid format", "x"], "subset": {"limit": ["is invalid"], "order_by": ["a \"b\""]}},
            })
        );
        assert!(Invalid::default().or_ok().is_ok() && invalid.or_ok().is_err());
    }
}
