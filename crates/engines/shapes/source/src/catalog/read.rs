//! Decodes the JSON of `tables.sql`.

use super::Found;
use super::standing::{Class, Identity, Persistence, Relation, Standing};
use crate::error::SourceError;
use serde::Deserialize;
use thalweg_shapes_model::table::{Column, ColumnType, Generated, Kind, Made, Mark, Table, TableName};

#[derive(Deserialize)]
struct Row {
    relation: Related,
    publishes_generated: bool,
    publishes_all: bool,
    publication: String,
    parts: Vec<Related>,
    ancestors: Vec<u32>,
    columns: Vec<Attribute>,
}

#[derive(Deserialize)]
struct Related {
    oid: u32,
    schema: String,
    name: String,
    kind: Class,
    persistence: Persistence,
    identity: Identity,
    system: bool,
    owned: bool,
    readable: bool,
    partition: bool,
    made_as_part: bool,
    member: bool,
    published: bool,
    cut: bool,
    as_root: bool,
    file: u32,
    columns: Option<i64>,
    entries: Option<String>,
}

impl Related {
    fn mark(&self) -> Mark {
        Mark {
            oid: self.oid,
            file: self.file,
            columns: self.columns.unwrap_or_default(),
            entries: self.entries.clone().unwrap_or_default(),
        }
    }
}

#[derive(Deserialize)]
struct Attribute {
    name: String,
    number: i16,
    not_null: bool,
    generated: String,
    key: Option<u32>,
    oid: u32,
    #[serde(rename = "type")]
    ty: String,
    modifier: i32,
    dimensions: u32,
    element: u32,
    labels: Vec<String>,
    made: Option<MadeType>,
}

#[derive(Deserialize)]
struct MadeType {
    schema: String,
    name: String,
    checked: bool,
    parts: Option<String>,
}

/// One row of the answer.
pub(super) fn found(json: &str) -> Result<Found, SourceError> {
    let row: Row = serde_json::from_str(json).map_err(|error| SourceError::Catalog(error.to_string()))?;
    let mut marks: Vec<Mark> = std::iter::once(&row.relation).chain(&row.parts).map(Related::mark).collect();
    marks.sort_unstable_by_key(|mark| mark.oid);
    let standing = Standing {
        relation: relation(row.relation),
        parts: row.parts.into_iter().map(relation).collect(),
        publishes_generated: row.publishes_generated,
        publishes_all: row.publishes_all,
        publication: row.publication,
    };
    let table = Table {
        oid: standing.relation.oid,
        name: standing.relation.name.clone(),
        kind: if standing.relation.class == Class::Partitioned { Kind::Partitioned } else { Kind::Ordinary },
        columns: row.columns.into_iter().map(column).collect(),
        ancestors: row.ancestors,
        parts: standing.parts.iter().map(|part| part.oid).collect(),
        marks,
    };
    Ok(Found { table, standing })
}

fn relation(row: Related) -> Relation {
    Relation {
        oid: row.oid,
        name: TableName { schema: row.schema, name: row.name },
        class: row.kind,
        persistence: row.persistence,
        identity: row.identity,
        system: row.system,
        owned: row.owned,
        readable: row.readable,
        partition: row.partition,
        made_as_part: row.made_as_part,
        member: row.member,
        published: row.published,
        cut: row.cut,
        as_root: row.as_root,
    }
}

fn column(row: Attribute) -> Column {
    Column {
        name: row.name,
        ty: ColumnType {
            oid: row.oid,
            name: row.ty,
            modifier: row.modifier,
            dimensions: row.dimensions,
            element: row.element,
            labels: row.labels,
            made: row.made.map(|made| Made {
                name: TableName { schema: made.schema, name: made.name },
                checked: made.checked,
                parts: made.parts.unwrap_or_default(),
            }),
        },
        not_null: row.not_null,
        number: row.number,
        key: row.key,
        generated: match row.generated.as_str() {
            "" => None,
            "v" => Some(Generated::Virtual),
            _ => Some(Generated::Stored),
        },
    }
}
