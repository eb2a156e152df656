//! Answers that are damaged on purpose, to see that the oracle notices. Each client is damaged once, at the first
//! chance.

use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Damage {
    /// A change is missing.
    DropChange,
    /// A value of a row is another one.
    SwapValue,
    /// An insert comes twice.
    DoubleInsert,
    /// A row of the initial data is missing.
    DropRow,
    /// A delete is missing.
    DropDelete,
    /// A row has a NULL where it had a value.
    Nullify,
    /// The server claims to be further than it is: the last change is held back.
    EarlyClaim,
}

pub(crate) const ALL: [Damage; 7] = [
    Damage::DropChange,
    Damage::SwapValue,
    Damage::DoubleInsert,
    Damage::DropRow,
    Damage::DropDelete,
    Damage::Nullify,
    Damage::EarlyClaim,
];

impl Damage {
    /// Spoils the messages of an answer; false if there was nothing to spoil.
    pub(crate) fn spoil(self, messages: &mut Vec<Value>) -> bool {
        let is = |m: &Value, operation: &str| m["headers"]["operation"] == operation;
        let logged = |m: &Value| m["headers"]["lsn"].is_string();
        let found = match self {
            Damage::DropChange => messages.iter().position(|m| logged(m) && !is(m, "delete")),
            Damage::EarlyClaim => messages.iter().rposition(logged),
            Damage::DropDelete => {
                messages.iter().position(|m| is(m, "delete") && m["headers"]["key_change_to"].is_null())
            }
            Damage::DropRow => messages.iter().position(|m| is(m, "insert") && !logged(m)),
            Damage::DoubleInsert => messages.iter().position(|m| is(m, "insert") && logged(m)),
            Damage::SwapValue | Damage::Nullify => {
                messages.iter().rposition(|m| !is(m, "delete") && spoilable(m).is_some())
            }
        };
        let Some(at) = found else { return false };
        match self {
            Damage::DoubleInsert => messages.insert(at, messages[at].clone()),
            Damage::SwapValue | Damage::Nullify => {
                let Some(name) = spoilable(&messages[at]) else { return false };
                messages[at]["value"][&name] = if self == Damage::Nullify { Value::Null } else { json!("damaged") };
            }
            _ => {
                messages.remove(at);
            }
        }
        true
    }
}

fn spoilable(message: &Value) -> Option<String> {
    let value = message["value"].as_object()?;
    value
        .iter()
        .find(|(name, value)| *name != "id" && *name != "part" && value.is_string())
        .map(|(name, _)| name.clone())
}
