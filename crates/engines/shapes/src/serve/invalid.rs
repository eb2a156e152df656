//! What is wrong with a request, told field by field.

use serde_json::{Map, Value};

/// A field of the request. Those of a subset stand under `subset` in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Shape(&'static str),
    Subset(&'static str),
}

/// One or more complaints: 400.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Invalid(Vec<(Field, String)>);

impl Invalid {
    /// A complaint about a parameter of the shape.
    pub(crate) fn shape(field: &'static str, message: impl Into<String>) -> Self {
        Self(vec![(Field::Shape(field), message.into())])
    }

    /// A complaint about a parameter of a subset.
    pub(crate) fn subset(field: &'static str, message: impl Into<String>) -> Self {
        Self(vec![(Field::Subset(field), message.into())])
    }

    pub(crate) fn add(&mut self, field: Field, message: impl Into<String>) {
        self.0.push((field, message.into()));
    }

    pub(crate) fn has(&self, field: Field) -> bool {
        self.0.iter().any(|(known, _)| *known == field)
    }

    /// `Ok` if there is nothing to complain about.
    pub(crate) fn or_ok(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }

    /// `{"message":"Invalid request","errors":{field:[…],"subset":{field:[…]}}}`.
    pub(crate) fn body(&self) -> Vec<u8> {
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
