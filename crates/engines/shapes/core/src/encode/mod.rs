//! Messages as clients get them: rows and changes of a projection, control messages, and the schema header.

pub mod message;
pub mod projection;
pub mod schema;
