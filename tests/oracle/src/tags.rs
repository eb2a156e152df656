//! Which rows of a shape with sub-queries stay: each row names its reasons, and events take reasons away or bring them
//! back.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(crate) struct Tags {
    /// Positions that each alternative of the condition needs; the same for all rows, known from the first.
    alternatives: Option<Vec<Vec<usize>>>,
    rows: BTreeMap<String, Reasons>,
}

struct Reasons {
    tags: BTreeSet<(usize, String)>,
    active: Option<Vec<bool>>,
}

fn list<'a>(headers: &'a Value, name: &str) -> impl Iterator<Item = &'a str> {
    headers[name].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn positions<'a>(tags: impl Iterator<Item = &'a str>) -> BTreeSet<(usize, String)> {
    tags.flat_map(|tag| tag.split('/').enumerate())
        .filter(|(_, hash)| !hash.is_empty())
        .map(|(at, hash)| (at, hash.to_owned()))
        .collect()
}

impl Tags {
    /// An insert (`fresh`) or an update of a row.
    pub(crate) fn row(&mut self, key: &str, headers: &Value, fresh: bool) {
        let new = positions(list(headers, "tags"));
        let mut tags = match self.rows.remove(key) {
            Some(known) if !fresh => known.tags,
            _ => BTreeSet::new(),
        };
        for gone in positions(list(headers, "removed_tags")) {
            tags.remove(&gone);
        }
        tags.extend(new);
        if self.alternatives.is_none() && !tags.is_empty() {
            let one =
                |tag: &str| tag.split('/').enumerate().filter(|(_, hash)| !hash.is_empty()).map(|(at, _)| at).collect();
            self.alternatives = Some(list(headers, "tags").map(one).collect());
        }
        if tags.is_empty() {
            return;
        }
        let active = headers["active_conditions"].as_array().map(|all| all.iter().map(|v| v == true).collect());
        self.rows.insert(key.to_owned(), Reasons { tags, active });
    }

    pub(crate) fn forget(&mut self, key: &str) {
        self.rows.remove(key);
    }

    /// A `move-in` or `move-out` event; the keys of rows that it removes.
    pub(crate) fn event(&mut self, headers: &Value) -> Vec<String> {
        let into = headers["event"] == "move-in";
        let mut touched = BTreeSet::new();
        for pattern in headers["patterns"].as_array().into_iter().flatten() {
            let (Some(at), Some(hash)) = (pattern["pos"].as_u64(), pattern["value"].as_str()) else { continue };
            let reason = (at as usize, hash.to_owned());
            for (key, row) in &mut self.rows {
                if !row.tags.contains(&reason) {
                    continue;
                }
                match &mut row.active {
                    Some(active) => {
                        if let Some(slot) = active.get_mut(reason.0) {
                            *slot = into;
                        }
                    }
                    None if !into => {
                        row.tags.remove(&reason);
                    }
                    None => {}
                }
                touched.insert(key.clone());
            }
        }
        if into {
            return Vec::new();
        }
        let alternatives = self.alternatives.clone().unwrap_or_default();
        touched.retain(|key| {
            let row = &self.rows[key];
            let stays = match &row.active {
                Some(active) => alternatives.iter().any(|one| one.iter().all(|at| active.get(*at) == Some(&true))),
                None => !row.tags.is_empty(),
            };
            !stays
        });
        for key in &touched {
            self.rows.remove(key);
        }
        touched.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_stays_while_one_alternative_holds() {
        let mut tags = Tags::default();
        tags.row("k", &json!({"tags": ["a/", "/1"], "active_conditions": [true, true]}), true);
        assert!(tags.event(&json!({"event": "move-out", "patterns": [{"pos": 0, "value": "a"}]})).is_empty());
        tags.row("k", &json!({"tags": ["a/", "/1"], "active_conditions": [false, false]}), false);
        assert!(tags.event(&json!({"event": "move-in", "patterns": [{"pos": 0, "value": "a"}]})).is_empty());
        assert_eq!(tags.event(&json!({"event": "move-out", "patterns": [{"pos": 0, "value": "a"}]})), ["k"]);
        assert!(tags.event(&json!({"event": "move-out", "patterns": [{"pos": 0, "value": "a"}]})).is_empty());
    }

    #[test]
    fn without_conditions_the_last_tag_counts() {
        let mut tags = Tags::default();
        tags.row("k", &json!({"tags": ["a"]}), true);
        tags.row("k", &json!({"tags": ["b"], "removed_tags": ["a"]}), false);
        assert!(tags.event(&json!({"event": "move-out", "patterns": [{"pos": 0, "value": "a"}]})).is_empty());
        assert_eq!(tags.event(&json!({"event": "move-out", "patterns": [{"pos": 0, "value": "b"}]})), ["k"]);
    }
}
