//! The `electric-schema` header: the types with which clients parse texts.

use std::fmt::Write as _;
use thalweg_shapes_model::json::ascii_string;
use thalweg_shapes_model::table::{Column, Table};

/// The fields of an interval that a column keeps, from large to small, by bits of the type's modifier (Postgres,
/// `datetime.h` and `timestamp.h`).
const INTERVAL_FIELDS: [(&str, u32); 6] =
    [("YEAR", 1 << 2), ("MONTH", 1 << 1), ("DAY", 1 << 3), ("HOUR", 1 << 10), ("MINUTE", 1 << 11), ("SECOND", 1 << 12)];
const INTERVAL_ALL: u32 = 0x7fff;
const INTERVAL_ANY_PRECISION: u32 = 0xffff;

/// `{"id":{"type":"int8","pk_index":0,"not_null":true},…}` for the columns at these places, in ASCII, as headers
/// require.
#[must_use]
pub fn header(table: &Table, selected: &[usize]) -> String {
    let mut out = String::from("{");
    for column in selected.iter().filter_map(|at| table.columns.get(*at)) {
        if out.len() > 1 {
            out.push(',');
        }
        push_column(&mut out, column);
    }
    out.push('}');
    out
}

fn push_column(out: &mut String, column: &Column) {
    let ty = &column.ty;
    let _ = write!(out, "{}:{{\"type\":{}", ascii_string(&column.name), ascii_string(&ty.name));
    if ty.element != 0 || ty.dimensions > 0 {
        // `CREATE TABLE AS` leaves the number of an array's dimensions out.
        let _ = write!(out, ",\"dims\":{}", ty.dimensions.max(1));
    }
    if let Some(place) = column.key {
        let _ = write!(out, ",\"pk_index\":{place}");
    }
    if column.not_null {
        out.push_str(",\"not_null\":true");
    }
    // -1: no modifier.
    if let Ok(modifier) = u32::try_from(ty.modifier) {
        push_modifier(out, &ty.name, modifier);
    }
    out.push('}');
}

/// A type's modifier, in the notation of that type.
fn push_modifier(out: &mut String, ty: &str, modifier: u32) {
    // Types of a variable length count a header of four bytes.
    let inner = modifier.wrapping_sub(4);
    let _ = match ty {
        "varchar" | "text" => write!(out, ",\"max_length\":{inner}"),
        "bpchar" => write!(out, ",\"length\":{inner}"),
        "bit" | "varbit" => write!(out, ",\"length\":{modifier}"),
        "time" | "timetz" | "timestamp" | "timestamptz" => write!(out, ",\"precision\":{modifier}"),
        "numeric" => {
            // Eleven bits with a sign.
            let scale = ((inner & 0x7ff) ^ 1024) as i32 - 1024;
            write!(out, ",\"precision\":{},\"scale\":{scale}", inner >> 16)
        }
        "interval" => {
            push_interval(out, modifier >> 16, modifier & 0xffff);
            Ok(())
        }
        _ => write!(out, ",\"type_mod\":{modifier}"),
    };
}

fn push_interval(out: &mut String, range: u32, precision: u32) {
    if range != INTERVAL_ALL {
        let mut fields = INTERVAL_FIELDS.iter().filter(|(_, bit)| range & bit != 0).map(|(name, _)| *name);
        let _ = match (fields.next(), fields.next_back()) {
            (Some(first), Some(last)) => write!(out, ",\"fields\":\"{first} TO {last}\""),
            (Some(only), None) => write!(out, ",\"fields\":\"{only}\""),
            (None, _) => Ok(()),
        };
    }
    if precision != INTERVAL_ANY_PRECISION {
        let _ = write!(out, ",\"precision\":{precision}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_shapes_model::table::{ColumnType, sample};

    fn column(name: &str, ty: &str, modifier: i32) -> Column {
        let plain = sample::column(name, (1, ty), None);
        Column { ty: ColumnType { modifier, ..plain.ty }, ..plain }
    }

    fn of(columns: Vec<Column>, selected: &[usize]) -> String {
        header(&sample::table("t", columns), selected)
    }

    fn one(ty: &str, modifier: i32) -> String {
        let all = of(vec![column("c", ty, modifier)], &[0]);
        let part = all.strip_prefix(&format!("{{\"c\":{{\"type\":\"{ty}\"")).and_then(|rest| rest.strip_suffix("}}"));
        part.unwrap().to_owned()
    }

    #[test]
    fn columns_have_their_type_their_place_in_the_key_and_whether_they_may_be_null() {
        let mut id = column("id", "int8", -1);
        (id.key, id.not_null) = (Some(0), true);
        let columns = vec![id, column("value", "text", -1)];
        assert_eq!(
            of(columns.clone(), &[0, 1]),
            r#"{"id":{"type":"int8","pk_index":0,"not_null":true},"value":{"type":"text"}}"#
        );
        assert_eq!(of(columns.clone(), &[1, 7]), r#"{"value":{"type":"text"}}"#);
        assert_eq!(of(columns, &[]), "{}");
    }

    #[test]
    fn arrays_have_dimensions() {
        let mut array = column("a", "int4", -1);
        (array.ty.element, array.ty.dimensions) = (23, 2);
        assert_eq!(of(vec![array.clone()], &[0]), r#"{"a":{"type":"int4","dims":2}}"#);
        array.ty.dimensions = 0;
        assert_eq!(of(vec![array], &[0]), r#"{"a":{"type":"int4","dims":1}}"#);
    }

    #[test]
    fn modifiers_are_told_in_the_words_of_their_types() {
        for (ty, modifier, expected) in [
            ("varchar", 259, r#","max_length":255"#),
            ("bpchar", 14, r#","length":10"#),
            ("bit", 8, r#","length":8"#),
            ("varbit", -1, ""),
            ("timestamptz", 3, r#","precision":3"#),
            ("time", 0, r#","precision":0"#),
            ("numeric", (10 << 16 | 2) + 4, r#","precision":10,"scale":2"#),
            ("numeric", (3 << 16 | 2046) + 4, r#","precision":3,"scale":-2"#),
            ("numeric", -1, ""),
            ("interval", -1, ""),
            ("interval", (0x7fff << 16) | 3, r#","precision":3"#),
            ("interval", (4 << 16) | 0xffff, r#","fields":"YEAR""#),
            ("interval", (0x1c08 << 16) | 2, r#","fields":"DAY TO SECOND","precision":2"#),
            ("geography", 7, r#","type_mod":7"#),
            ("geography", -1, ""),
        ] {
            assert_eq!(one(ty, modifier), expected, "{ty} {modifier}");
        }
    }

    #[test]
    fn names_are_ascii_in_a_header() {
        assert_eq!(of(vec![column("ä\"", "text", -1)], &[0]), r#"{"\u00e4\"":{"type":"text"}}"#);
    }
}
