//! Bytes as `docs/format/shapes.md` has them.

use super::note::{LogState, ShapeNote};
use super::references::{Group, References};
use crate::state::snapshot::PgSnapshot;
use thalweg_base::Lsn;
use thalweg_log::Attachment;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Number 7, the table 16500, an identity, `public.t`, `id > $1` with `5`, the column `id`, and what follows.
fn shape(end: &[u8]) -> Vec<u8> {
    let flags = 1 | 2;
    let identity = *b"0123456789abcdef";
    [&[3, 7, 0xf4, 0x80, 1][..], &identity, &[flags], b"\x06public\x01t", b"\x01\x02id", b"\x07id > $1\x01\x015", end]
        .concat()
}

#[test]
fn of_a_shape_and_its_notes() {
    let mut state = LogState::create(&shape(&[0, 0]), Lsn::ZERO).unwrap();
    assert_eq!(hex(&state.note()), hex(&shape(&[0, 0])));
    let snapshot = PgSnapshot { xmin: 5, xmax: 9, xip: vec![5, 7], lsn: 300 };
    let notes = [ShapeNote::SnapshotTaken(snapshot), ShapeNote::ChunkEnd(200), ShapeNote::Complete];
    let bytes = notes.each_ref().map(ShapeNote::encode);
    assert_eq!(bytes.each_ref().map(|note| hex(note)), ["010509ac02020507", "02c801", "03"]);
    bytes.iter().for_each(|note| state.apply(note, Lsn::ZERO).unwrap());
    assert_eq!(hex(&state.note()), hex(&shape(&[3, 5, 9, 0xac, 2, 2, 5, 7, 1, 0xc8, 1])));
    let stored = state.shape().unwrap();
    assert_eq!((stored.number, stored.table, &*stored.chunks), (7, 16_500, &[200][..]));
    assert_eq!((stored.identity.0, stored.complete), (*b"0123456789abcdef", true));
    assert_eq!((stored.definition.where_sql.as_deref(), stored.definition.params.len()), (Some("id > $1"), 1));
}

#[test]
fn of_references() {
    let group = |at, len, op, shapes: &[u64]| Group { at, len, op, shapes: shapes.into() };
    let groups = vec![group(10, 20, 0, &[7, 9]), group(30, 5, 2, &[7, 9]), group(40, 1, 4, &[300])];
    let references = References { groups, ..References::new(300, 5) };
    assert_eq!(hex(&references.encode()), "ac020503".to_owned() + "0a1400020702" + "00050200" + "05010401ac02");
    assert_eq!(References::decode(&references.encode()), Ok(references));
    let waiting = References { began: vec![7, 300], ended: vec![9], ..References::new(300, 5) };
    assert_eq!(hex(&waiting.encode()), "ac020500".to_owned() + "0207a502" + "0109");
    assert_eq!(References::decode(&waiting.encode()), Ok(waiting));
}
