//! placeholder
use crate::table::Table;
pub fn header(table: &Table, selected: &[usize]) -> String {
    let mut map = serde_json::Map::new();
    for at in selected {
        let column = &table.columns[*at];
        let mut entry = serde_json::json!({"type": column.ty.name});
        if let Some(key) = column.key { entry["pk_index"] = key.into(); }
        if column.not_null { entry["not_null"] = true.into(); }
        map.insert(column.name.clone(), entry);
    }
    serde_json::Value::Object(map).to_string()
}
