//! Every decoder of this crate on any bytes: for fuzzing.

use crate::effect::Effect;
use crate::framing::{Framed, WalFramer};
use crate::image::PAGE_BYTES;
use crate::record::Record;
use crate::version::PgVersion;
use bytes::Bytes;
use thalweg_pg::PgLsn;

const SEGMENT_BYTES: u32 = 1 << 20;

/// Any bytes as a log, as a record, and as what a record holds. Panics if a decoder does, or if it matters in which pieces
/// the log comes.
pub fn fuzz_wal(data: &[u8]) {
    let Some((first, log)) = data.split_first() else { return };
    let start = PgLsn(u64::from(*first) * 8);
    assert_eq!(framed(start, [log]), framed(start, log.chunks(usize::from(*first) + 1)), "in pieces");
    record(&Bytes::copy_from_slice(log));
    // With the length that it says it has, and blocks and data as they are.
    if let Some(body) = log.get(4..) {
        record(&[&(log.len() as u32).to_le_bytes(), body].concat().into());
    }
}

fn framed<'a>(start: PgLsn, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Framed>, Option<String>) {
    let mut framer = WalFramer::new(start, SEGMENT_BYTES, None);
    let mut records = Vec::new();
    for piece in pieces {
        framer.feed(piece);
        loop {
            match framer.next_record() {
                Ok(Some(framed)) => records.push(framed),
                Ok(None) => break,
                Err(why) => return (records, Some(why.to_string())),
            }
        }
    }
    (records, None)
}

fn record(bytes: &Bytes) {
    let Ok(record) = Record::decode(bytes) else { return };
    for version in PgVersion::ALL {
        let _ = Effect::of(&record, version);
    }
    for image in record.blocks.iter().filter_map(|block| block.image.as_ref()) {
        let _ = image.restore(&mut [0; PAGE_BYTES]);
    }
}
