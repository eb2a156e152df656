//! No input makes the crate panic, and damage is told.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use proptest::prelude::*;
use thalweg_lakebase_wal::{Effect, PAGE_BYTES, PgVersion, Record, WalError, WalFramer, fuzz_wal};
use thalweg_pg::PgLsn;

const SEGMENT_BYTES: u32 = 1 << 20;

fn crc(pieces: [&[u8]; 2]) -> u32 {
    pieces.iter().fold(thalweg_base::Crc::new(), |crc, piece| crc.bytes(piece)).finish()
}

/// A record with a right checksum.
fn record(previous: u64, rmgr: u8, info: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&(24 + body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&7_u32.to_le_bytes());
    bytes.extend_from_slice(&previous.to_le_bytes());
    bytes.extend_from_slice(&[info, rmgr, 0, 0]);
    let sum = crc([body, &bytes]);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// A log of these bodies, from the beginning of a segment on.
fn log(bodies: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let header = |out: &mut Vec<u8>, rest: usize| {
        let is_first = out.len().is_multiple_of(SEGMENT_BYTES as usize);
        let flags = u16::from(rest > 0) | if is_first { 2 } else { 0 };
        let at = out.len() as u64;
        out.extend_from_slice(&PgVersion::V17.page_magic().to_le_bytes());
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&1_u32.to_le_bytes());
        out.extend_from_slice(&at.to_le_bytes());
        out.extend_from_slice(&(rest as u32).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        if is_first {
            out.extend_from_slice(&42_u64.to_le_bytes());
            out.extend_from_slice(&SEGMENT_BYTES.to_le_bytes());
            out.extend_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
        }
    };
    let mut previous = 0;
    for body in bodies {
        if out.len().is_multiple_of(PAGE_BYTES) {
            header(&mut out, 0);
        }
        let bytes = record(previous, 10, 0, body);
        previous = out.len() as u64;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            if out.len().is_multiple_of(PAGE_BYTES) {
                header(&mut out, rest.len());
            }
            let room = PAGE_BYTES - out.len() % PAGE_BYTES;
            let (now, later) = rest.split_at(rest.len().min(room));
            out.extend_from_slice(now);
            rest = later;
        }
        out.resize(out.len().next_multiple_of(8), 0);
    }
    out
}

fn bodies(bytes: &[u8]) -> Result<Vec<Vec<u8>>, WalError> {
    let mut framer = WalFramer::new(PgLsn(0), SEGMENT_BYTES, Some(42));
    framer.feed(bytes);
    let mut found = Vec::new();
    while let Some(framed) = framer.next_record()? {
        found.push(framed.bytes[24..].to_vec());
    }
    Ok(found)
}

proptest! {
    #[test]
    fn what_is_framed_is_what_was_written(all in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20_000), 1..60)) {
        prop_assert_eq!(bodies(&log(&all)).unwrap(), all);
    }

    #[test]
    fn a_changed_bit_is_told_or_ends_the_log(
        all in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..3_000), 1..20), at in any::<prop::sample::Index>(), bit in 0..8_u8
    ) {
        let mut changed = log(&all);
        let at = at.index(changed.len());
        changed[at] ^= 1 << bit;
        // Padding, and fields of a page's header that say nothing, may change; nothing that is framed does.
        if let Ok(found) = bodies(&changed) {
            prop_assert!(found.len() <= all.len() && found[..] == all[..found.len()]);
        }
    }

    #[test]
    fn records_of_any_bytes_decode_or_are_refused(rmgr in 0..22_u8, info in any::<u8>(), body in prop::collection::vec(any::<u8>(), 0..400)) {
        let bytes = Bytes::from(record(0, rmgr, info, &body));
        if let Ok(record) = Record::decode(&bytes) {
            let parts: usize = record.blocks.iter().map(|block| block.data.len() + block.image.as_ref().map_or(0, |image| image.stored_bytes())).sum();
            prop_assert!(parts + record.main_data.len() <= body.len());
            let mut page = [0; PAGE_BYTES];
            record.blocks.iter().filter_map(|block| block.image.as_ref()).for_each(|image| { let _ = image.restore(&mut page); });
        }
    }

    /// As the fuzz target has it: a log that was changed, and any bytes.
    #[test]
    fn no_log_makes_a_decoder_panic_or_depends_on_its_pieces(
        all in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..3_000), 1..8), at in any::<prop::sample::Index>(), with: u8, split: u8, bytes: Vec<u8>
    ) {
        let mut changed = log(&all);
        let at = at.index(changed.len());
        changed[at] = with;
        fuzz_wal(&[&[0], &changed[..]].concat());
        fuzz_wal(&[&[split], &changed[..]].concat());
        fuzz_wal(&bytes);
    }

    /// Main data alone, of every kind and version.
    #[test]
    fn main_data_of_any_bytes_is_understood_or_refused(rmgr in 0..22_u8, info in any::<u8>(), data in prop::collection::vec(any::<u8>(), 0..120)) {
        let mut body = vec![255, data.len() as u8];
        body.extend_from_slice(&data);
        let record = Record::decode(&Bytes::from(record(0, rmgr, info, &body))).unwrap();
        prop_assert_eq!(&record.main_data[..], &data[..]);
        for version in PgVersion::ALL {
            drop(Effect::of(&record, version));
        }
    }
}

#[test]
fn a_log_of_another_cluster_version_or_place_is_refused() {
    let good = log(&[vec![1; 100], vec![2; 9_000]]);
    let framed = |bytes: &[u8], system| {
        let mut framer = WalFramer::new(PgLsn(0), SEGMENT_BYTES, system);
        framer.feed(bytes);
        loop {
            match framer.next_record() {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => {
                    assert_eq!(framer.next_record(), Err(error.clone()), "it goes no further");
                    return Some(error);
                }
            }
        }
    };
    assert_eq!(framed(&good, None), None);
    assert!(matches!(framed(&good, Some(41)), Some(WalError::System { expected: 41, found: 42, .. })));
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        framed(&bytes, None).unwrap_or_else(|| panic!("byte {at}"))
    };
    assert!(matches!(changed(0, 0x99), WalError::Magic { .. }));
    assert!(matches!(changed(8, 1), WalError::Address { .. }));
    assert!(matches!(changed(32, 1), WalError::Sizes { .. }));
    assert!(matches!(changed(PAGE_BYTES, 0x10), WalError::Version { .. }));
    assert!(matches!(changed(PAGE_BYTES + 2, 0), WalError::Page { .. }));
    assert!(matches!(changed(40 + 100, 9), WalError::Checksum { .. }));
    assert!(matches!(changed(40 + 17, 99), WalError::Header { .. }));
    let other = WalFramer::new(PgLsn(0), 16 << 20, None);
    assert_eq!(other.wants(), PgLsn(0));
}
