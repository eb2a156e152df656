use super::*;
use crate::PgLsn;
use proptest::prelude::*;

fn tuple() -> impl Strategy<Value = TupleWriter> {
    let value =
        prop_oneof![Just((0, Vec::new())), Just((1, Vec::new())), (2..4, prop::collection::vec(any::<u8>(), 0..20)),];
    prop::collection::vec(value, 0..6).prop_map(|values| {
        values
            .iter()
            .map(|(kind, bytes)| match kind {
                0 => Value::Null,
                1 => Value::UnchangedToast,
                2 => Value::Text(bytes),
                _ => Value::Binary(bytes),
            })
            .collect()
    })
}

/// Everything that messages are made of.
#[derive(Clone, Debug)]
struct Parts {
    xid: Option<u32>,
    a: u32,
    b: u64,
    c: i64,
    flag: (bool, bool),
    name: String,
    other: String,
    bytes: Vec<u8>,
    old: TupleWriter,
    new: TupleWriter,
    columns: Vec<(bool, String, u32, i32)>,
    oids: Vec<u32>,
}

fn parts() -> impl Strategy<Value = Parts> {
    let numbers = (any::<Option<u32>>(), any::<u32>(), any::<u64>(), any::<i64>(), any::<(bool, bool)>());
    let texts = ("[^\0]{0,12}", "[^\0]{1,12}", any::<Vec<u8>>());
    let columns = prop::collection::vec((any::<bool>(), "[^\0]{0,8}", any::<u32>(), any::<i32>()), 0..5);
    (numbers, texts, tuple(), tuple(), columns, prop::collection::vec(any::<u32>(), 0..4)).prop_map(
        |((xid, a, b, c, flag), (name, other, bytes), old, new, columns, oids)| Parts {
            xid,
            a,
            b,
            c,
            flag,
            name,
            other,
            bytes,
            old,
            new,
            columns,
            oids,
        },
    )
}

/// Calls `check` with every kind of message and whether it is in a block; `what` is for failures.
fn each_message(parts: &Parts, mut check: impl FnMut(bool, Message<'_>)) {
    let Parts { xid, a, b, c, flag, name, other, bytes, .. } = parts;
    let (xid, id, lsn, commit_time) = (*xid, *a, PgLsn(*b), *c);
    let (old, new, in_block) = (parts.old.tuple(), parts.new.tuple(), parts.xid.is_some());
    let mut column_bytes = Vec::new();
    let column = |(key, name, type_oid, type_modifier): &(bool, String, u32, i32)| {
        (*key, name.clone(), *type_oid, *type_modifier)
    };
    let columns: Vec<_> = parts.columns.iter().map(column).collect();
    let columns = columns.iter().map(|(key, name, type_oid, type_modifier)| Column {
        key: *key,
        name,
        type_oid: *type_oid,
        type_modifier: *type_modifier,
    });
    Columns::write(columns.clone(), &mut column_bytes);
    let written = Columns::from_bytes(parts.columns.len() as u16, &column_bytes).unwrap();
    assert!(written.iter().eq(columns));
    let oids: Vec<u8> = parts.oids.iter().flat_map(|oid| oid.to_be_bytes()).collect();
    let relations = Relations::from_bytes(&oids);
    assert!(relations.iter().eq(parts.oids.iter().copied()));
    for (_, replica_identity) in ReplicaIdentity::ALL {
        check(in_block, Message::Relation { xid, id, namespace: other, name, replica_identity, columns: written });
    }
    check(in_block, Message::Type { xid, id, namespace: "pg_catalog", name });
    check(in_block, Message::Insert { xid, relation: id, new });
    for old in [OldTuple::None, OldTuple::Key(old), OldTuple::Full(old)] {
        check(in_block, Message::Update { xid, relation: id, old, new });
        if old != OldTuple::None {
            check(in_block, Message::Delete { xid, relation: id, old });
        }
    }
    check(in_block, Message::Truncate { xid, cascade: flag.0, restart_identity: flag.1, relations });
    check(in_block, Message::Message { xid, transactional: flag.0, lsn, prefix: name, content: bytes });
    let (flags, commit_lsn, end_lsn) = (*a as u8, lsn, PgLsn(!lsn.0));
    check(in_block, Message::Origin { commit_lsn, name });
    check(true, Message::StreamStop);
    check(false, Message::Begin { final_lsn: lsn, commit_time, xid: id });
    check(false, Message::Commit { flags, commit_lsn, end_lsn, commit_time });
    check(false, Message::StreamStart { xid: id, first_segment: flag.0 });
    check(false, Message::StreamCommit { xid: id, flags, commit_lsn, end_lsn, commit_time });
    check(false, Message::StreamAbort { xid: id, subxid: !id });
}

fn decoder(in_block: bool) -> Decoder {
    let mut decoder = Decoder::new();
    if in_block {
        decoder.decode(b"S\0\0\0\x01\x01").unwrap();
    }
    assert_eq!(decoder.in_block(), in_block);
    decoder
}

proptest! {
    #[test]
    fn every_message_survives_and_none_survives_cut(parts in parts()) {
        each_message(&parts, |in_block, message| {
            let mut bytes = Vec::new();
            encode(&message, &mut bytes);
            assert_eq!(decoder(in_block).decode(&bytes), Ok(message));
            for cut in 0..bytes.len() {
                assert!(decoder(in_block).decode(&bytes[..cut]).is_err(), "{message:?} cut at {cut}");
            }
            bytes.push(0);
            assert!(decoder(in_block).decode(&bytes).is_err(), "{message:?} with something behind it");
        });
    }

    #[test]
    fn a_changed_byte_never_panics(parts in parts(), at: prop::sample::Index, byte: u8) {
        each_message(&parts, |in_block, message| {
            let mut bytes = Vec::new();
            encode(&message, &mut bytes);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let mut framed = if in_block { b"\x06S\0\0\0\x01\x01".to_vec() } else { Vec::new() };
            framed.push(bytes.len().min(255) as u8);
            framed.extend(bytes);
            fuzz_pgoutput(&framed);
        });
    }

    #[test]
    fn garbage_never_panics(bytes: Vec<u8>) {
        fuzz_pgoutput(&bytes);
    }

    #[test]
    fn a_row_is_read_back_from_its_bytes(writer in tuple()) {
        let tuple = writer.tuple();
        prop_assert_eq!(Tuple::from_bytes(tuple.len() as u16, tuple.bytes()), Ok(tuple));
        prop_assert!(Tuple::from_bytes(tuple.len() as u16 + 1, tuple.bytes()).is_err());
    }
}

#[test]
fn golden() {
    let insert = b"I\0\0\x40\0N\0\x03t\0\0\0\x0242nt\0\0\0\x02\xc3\xa9";
    let Ok(Message::Insert { xid: None, relation: 0x4000, new }) = decoder(false).decode(insert) else { panic!() };
    let values: Vec<_> = new.values().collect();
    assert_eq!(values, [Value::Text(b"42"), Value::Null, Value::Text("é".as_bytes())]);
    let commit = b"C\0\0\0\0\0\x01\x52\x3b\xe8\0\0\0\0\x01\x52\x3c\x18\0\x02\xa0\0\0\0\0\0";
    let expected = Message::Commit {
        flags: 0,
        commit_lsn: PgLsn(0x0152_3be8),
        end_lsn: PgLsn(0x0152_3c18),
        commit_time: 0x0002_a000_0000_0000,
    };
    assert_eq!(decoder(false).decode(commit), Ok(expected));
    let streamed = b"D\0\0\0\x07\0\0\x40\0K\0\x02u\x62\0\0\0\x01\xff";
    let Ok(Message::Delete { xid: Some(7), old: OldTuple::Key(old), .. }) = decoder(true).decode(streamed) else {
        panic!()
    };
    assert_eq!(old.values().collect::<Vec<_>>(), [Value::UnchangedToast, Value::Binary(b"\xff")]);
}

#[test]
fn what_is_wrong_is_named() {
    let error = |in_block: bool, bytes: &[u8]| decoder(in_block).decode(bytes).unwrap_err();
    assert_eq!(error(false, b""), DecodeError::Short);
    assert_eq!(error(false, b"b"), DecodeError::Kind(b'b'));
    assert_eq!(error(false, b"E"), DecodeError::OutOfPlace("the end of a block"));
    assert_eq!(error(true, b"S\0\0\0\x01\x01"), DecodeError::OutOfPlace("the beginning of a block"));
    assert_eq!(error(true, b"B"), DecodeError::OutOfPlace("the beginning of a transaction"));
    assert_eq!(error(false, b"I\0\0\0\x01K\0\0"), DecodeError::Value { what: "which row it is", value: b'K' });
    assert_eq!(error(false, b"D\0\0\0\x01N\0\0"), DecodeError::Value { what: "which row it is", value: b'N' });
    assert_eq!(error(false, b"I\0\0\0\x01N\0\x01x"), DecodeError::Value { what: "the kind of a column", value: b'x' });
    assert_eq!(error(false, b"I\0\0\0\x01N\0\x01t\xff\xff\xff\xff"), DecodeError::Negative("the length of a value"));
    assert_eq!(error(false, b"I\0\0\0\x01N\0\0!"), DecodeError::Trailing(1));
    assert_eq!(error(false, b"O\0\0\0\0\0\0\0\0\xff\0"), DecodeError::NotUtf8("the name of an origin"));
    assert_eq!(error(false, b"T\x7f\xff\xff\xff\0"), DecodeError::Short);
    assert_eq!(error(false, b"T\0\0\0\0\x04"), DecodeError::Value { what: "the options of a truncation", value: 4 });
}
