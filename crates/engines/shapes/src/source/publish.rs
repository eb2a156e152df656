use super::error::SourceError;
use super::session::Session;
use crate::engine::ShapesConfig;
use crate::table::Table;
pub fn ensure(session: &mut Session, config: &ShapesConfig, table: &Table) -> Result<(), SourceError> {
    let publication = config.publication();
    let there = session.conn.query("SELECT 1 FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = $1 AND r.prrelid = $2::oid", &[Some(&publication), Some(&table.oid.to_string())])?;
    if there.rows().len() == 0 {
        session.conn.simple(&format!("ALTER PUBLICATION \"{publication}\" ADD TABLE {}", table.name))?;
    }
    let full = session
        .conn
        .query("SELECT relreplident::text FROM pg_class WHERE oid = $1::oid", &[Some(&table.oid.to_string())])?;
    if full.value() != Some("f") {
        session.conn.simple(&format!("ALTER TABLE {} REPLICA IDENTITY FULL", table.name))?;
    }
    Ok(())
}
