//! The publication: the tables whose changes the slot sends.

use super::{Options, SetupError, literal, row};
use std::fmt::Write;
use thalweg_pg::ServerVersion;
use thalweg_pg::replication::Conn;
use thalweg_shapes_model::table::quoted;

/// The comment on a publication that goes when the engine ends: a run that was killed leaves it to the next one.
const PASSING: &str = "made by thalweg dev, which drops it when it ends";

/// A publication that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Changes if the publication is dropped and created again; the changes between are lost.
    pub oid: u32,
    /// Changes with every `ALTER PUBLICATION`.
    pub version: String,
    /// This run created the publication, or one that was killed: no other server needs it.
    pub passing: bool,
}

struct Found {
    oid: u32,
    version: String,
    owned: bool,
    whole: bool,
    generated: bool,
    passing: bool,
}

pub(super) fn prepare(conn: &mut Conn, options: &Options, version: ServerVersion) -> Result<Publication, SetupError> {
    let name = &options.publication;
    let with_generated = version.major >= 18;
    let found = match find(conn, name)? {
        Some(found) => found,
        None if options.manual => return Err(SetupError::PublicationMissing(name.clone())),
        None => {
            let with = if with_generated { " WITH (publish_generated_columns = stored)" } else { "" };
            let mut create = format!("CREATE PUBLICATION {}{with}", quoted(name));
            if options.ephemeral {
                // Both statements are one transaction.
                let _ = write!(create, "; COMMENT ON PUBLICATION {} IS {}", quoted(name), literal(PASSING));
            }
            if let Err(error) = conn.simple(&create) {
                return Err(match error.db() {
                    Some(db) if db.code == "42501" => {
                        SetupError::PublicationPrivilege { name: name.clone(), error: Box::new(db.clone()) }
                    }
                    _ => error.into(),
                });
            }
            find(conn, name)?.ok_or_else(|| SetupError::PublicationMissing(name.clone()))?
        }
    };
    if !found.whole {
        return Err(SetupError::PublicationOperations(name.clone()));
    }
    let passing = options.ephemeral && found.owned && found.passing;
    // A publication from before an upgrade of the server.
    if with_generated && !found.generated && found.owned && !options.manual {
        conn.simple(&format!("ALTER PUBLICATION {} SET (publish_generated_columns = stored)", quoted(name)))?;
        let found = find(conn, name)?.ok_or_else(|| SetupError::PublicationMissing(name.clone()))?;
        return Ok(Publication { oid: found.oid, version: found.version, passing });
    }
    Ok(Publication { oid: found.oid, version: found.version, passing })
}

fn find(conn: &mut Conn, name: &str) -> Result<Option<Found>, SetupError> {
    let answers = conn.simple(&format!(
        "SELECT p.oid, p.xmin AS version, pg_catalog.pg_has_role(p.pubowner, 'USAGE') AS owned, \
         p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate AS whole, \
         COALESCE(pg_catalog.obj_description(p.oid, 'pg_publication') OPERATOR(pg_catalog.=) {}, false) AS passing, \
         COALESCE((pg_catalog.to_jsonb(p) OPERATOR(pg_catalog.->>) 'pubgencols') OPERATOR(pg_catalog.=) 's', false) AS generated \
         FROM pg_catalog.pg_publication p WHERE p.pubname OPERATOR(pg_catalog.=) {}",
        literal(PASSING),
        literal(name)
    ))?;
    let fact = row(&answers);
    let Some(oid) = fact("oid") else { return Ok(None) };
    let oid = oid.parse().map_err(|_| SetupError::Answer("oid"))?;
    let is = |name| fact(name) == Some("t");
    let version = fact("version").unwrap_or_default().to_owned();
    Ok(Some(Found {
        oid,
        version,
        owned: is("owned"),
        whole: is("whole"),
        generated: is("generated"),
        passing: is("passing"),
    }))
}
