use super::error::SourceError;
use super::session::Session;
use crate::table::Table;
pub enum ValidateError {
    Invalid(String),
    Source(SourceError),
}
pub fn filter(_: &mut Session, _: &Table, _: &str, _: &[(u32, String)]) -> Result<(), ValidateError> {
    let _ = (|| ValidateError::Invalid(String::new()), |e| ValidateError::Source(e));
    Ok(())
}
