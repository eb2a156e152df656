//! The body of an answer with a subset.

use thalweg_shapes_core::encode::message::push_visibility;
use thalweg_shapes_model::snapshot::PgSnapshot;

/// `{"metadata":{…}, "data": [`. `mark` names the snapshot among the client's: below 2^31.
pub(crate) fn push_begin(out: &mut Vec<u8>, snapshot: &PgSnapshot, mark: u32) {
    let mut number = itoa::Buffer::new();
    out.extend_from_slice(b"{\"metadata\":{\"snapshot_mark\":");
    out.extend_from_slice(number.format(mark).as_bytes());
    out.extend_from_slice(b",\"database_lsn\":\"");
    out.extend_from_slice(number.format(snapshot.lsn).as_bytes());
    out.push(b'"');
    push_visibility(out, snapshot);
    out.extend_from_slice(b"}, \"data\": [");
}

/// What [`snapshot_row_with`](thalweg_shapes_core::encode::projection::Projection::snapshot_row_with) adds to each row.
#[must_use]
pub(crate) fn mark_header(mark: u32) -> Vec<u8> {
    format!(",\"snapshot_mark\":{mark}").into_bytes()
}

/// After the last row.
pub(crate) fn push_end(out: &mut Vec<u8>) {
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.extend_from_slice(b"]}");
}
