//! The bytes of one object of a journal: `docs/format/bucket.md`.

use bytes::Bytes;
use thalweg_base::{Decoder, Encoder, Lsn, crc};
use thalweg_journal::Term;

const MAGIC: [u8; 8] = *b"THWGJOUR";
const FORMAT: u32 = 1;
/// That of carried batches, which older programs do not know.
const FORMAT_OF_CARRIED: u32 = 2;
/// Magic, format, kind, sequence number, floor, term, salt, position, length, two checksums.
pub(crate) const HEAD_BYTES: usize = 72;

/// What an object of a journal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A batch at a position.
    Batch(Lsn),
    /// Objects of earlier terms behind this one say nothing.
    Fence,
    /// Batches at this position and behind it, in objects before this one, are not part of the journal.
    Cut(Lsn),
    /// A batch at a position, which an earlier term wrote under a lower number. The body begins with that term.
    Carried(Lsn),
}

impl What {
    /// The version of its form.
    fn format(self) -> u32 {
        if matches!(self, Self::Carried(_)) { FORMAT_OF_CARRIED } else { FORMAT }
    }
}

/// The length in bytes of the term in front of a batch that was carried.
const CARRIED_TERM: u64 = 16;

/// The head of one object of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The number in the object's key.
    pub(crate) number: u64,
    /// No object with a lower number is needed, but for fences.
    pub(crate) floor: u64,
    /// The opening that wrote it.
    pub(crate) term: Term,
    pub(crate) what: What,
    /// The length of the body in bytes.
    pub(crate) len: u64,
    /// The checksum of the body.
    pub(crate) sum: u32,
}

/// One object of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) head: Head,
    /// The bytes of a batch.
    pub(crate) body: Bytes,
}

impl Record {
    pub(crate) fn new(number: u64, floor: u64, term: Term, what: What, body: Bytes) -> Self {
        Self { head: Head { number, floor, term, what, len: body.len() as u64, sum: crc(&body) }, body }
    }

    /// A batch of `origin`, under a new number.
    pub(crate) fn carried(number: u64, floor: u64, term: Term, at: Lsn, origin: Term, batch: &[u8]) -> Self {
        let mut body = Vec::with_capacity(CARRIED_TERM as usize + batch.len());
        body.put_u64(origin.number);
        body.put_u64(origin.salt);
        body.extend_from_slice(batch);
        Self::new(number, floor, term, What::Carried(at), body.into())
    }

    /// The batch, its position, and the term that has sealed it. `None`: the record has none.
    pub(crate) fn into_batch(self) -> Option<(Lsn, Term, Bytes)> {
        match self.head.what {
            What::Batch(at) => Some((at, self.head.term, self.body)),
            What::Carried(at) => {
                let mut origin = Decoder::new(&self.body);
                let origin = Term { number: origin.u64().ok()?, salt: origin.u64().ok()? };
                Some((at, origin, self.body.slice(CARRIED_TERM as usize..)))
            }
            What::Fence | What::Cut(_) => None,
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        let Head { number, floor, term, what, len, sum } = self.head;
        let mut out = Vec::with_capacity(HEAD_BYTES + self.body.len());
        let (kind, position) = match what {
            What::Batch(at) => (1, at),
            What::Fence => (2, Lsn::ZERO),
            What::Cut(from) => (3, from),
            What::Carried(at) => (4, at),
        };
        out.extend_from_slice(&MAGIC);
        out.put_u32(what.format());
        out.put_u32(kind);
        out.put_u64(number);
        out.put_u64(floor);
        out.put_u64(term.number);
        out.put_u64(term.salt);
        out.put_u64(position.0);
        out.put_u64(len);
        out.put_u32(sum);
        let sum = crc(&out);
        out.put_u32(sum);
        out.extend_from_slice(&self.body);
        out.into()
    }

    /// The record of an object's bytes, or what is wrong with them.
    pub(crate) fn decode(stored: &Bytes) -> Result<Self, String> {
        let head = Head::decode(stored)?;
        let body = stored.slice(HEAD_BYTES..);
        if head.len != body.len() as u64 || head.sum != crc(&body) {
            return Err("its body is another one than its head says".to_owned());
        }
        Ok(Self { head, body })
    }
}

impl Head {
    /// The head at the beginning of an object's bytes, or what is wrong with it.
    pub(crate) fn decode(stored: &[u8]) -> Result<Self, String> {
        let wrong = |what: &str| Err(what.to_owned());
        let Some(head) = stored.get(..HEAD_BYTES) else { return wrong("it is shorter than its head") };
        let Some(fields) = head.strip_prefix(&MAGIC) else { return wrong("it does not start with its magic") };
        let mut fields = Decoder::new(fields);
        let mut read = || -> Result<_, thalweg_base::DecodeError> {
            let (format, kind) = (fields.u32()?, fields.u32()?);
            let numbers = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
            Ok((format, kind, numbers, fields.u32()?, fields.u32()?))
        };
        let Ok((format, kind, numbers, sum, head_sum)) = read() else { return wrong("it is cut in its head") };
        if format > FORMAT_OF_CARRIED {
            return Err(format!("it has format {format}, and this program reads formats up to {FORMAT_OF_CARRIED}"));
        }
        let [number, floor, term, salt, position, len] = numbers;
        let what = match kind {
            1 => What::Batch(Lsn(position)),
            2 => What::Fence,
            3 => What::Cut(Lsn(position)),
            4 => What::Carried(Lsn(position)),
            _ => return wrong("its kind is unknown"),
        };
        if crc(&head[..HEAD_BYTES - 4]) != head_sum {
            return wrong("its checksum differs");
        }
        let is_len_sound = match what {
            What::Batch(_) => len > 0,
            What::Carried(_) => len > CARRIED_TERM,
            What::Fence | What::Cut(_) => len == 0,
        };
        let is_sound =
            format == what.format() && floor <= number && is_len_sound && (what != What::Fence || position == 0);
        if !is_sound {
            return wrong("its head contradicts itself");
        }
        Ok(Self { number, floor, term: Term { number: term, salt }, what, len, sum })
    }

    /// The position and the length in bytes of the object's batch. `None`: it has none.
    pub(crate) fn batch(&self) -> Option<(Lsn, u64)> {
        match self.what {
            What::Batch(at) => Some((at, self.len)),
            What::Carried(at) => Some((at, self.len - CARRIED_TERM)),
            What::Fence | What::Cut(_) => None,
        }
    }
}

/// The key of an object of a journal behind the journal's folder: 20 digits, so that keys stand in order of numbers.
pub(crate) fn key(number: u64) -> String {
    format!("{number:020}")
}

/// The number in a key; `None`: it is none of a journal's.
pub(crate) fn number_of(key: &str) -> Option<u64> {
    let is_one = key.len() == 20 && key.bytes().all(|byte| byte.is_ascii_digit());
    is_one.then(|| key.parse().ok()).flatten()
}

/// A fuzz target's way in: takes `data` for a stored object, as it is and with checksums that fit.
#[doc(hidden)]
pub fn fuzz_record(data: &[u8]) {
    let mut sealed = data.to_vec();
    if sealed.len() >= HEAD_BYTES {
        let body = crc(&sealed[HEAD_BYTES..]).to_le_bytes();
        sealed[HEAD_BYTES - 8..HEAD_BYTES - 4].copy_from_slice(&body);
        let head = crc(&sealed[..HEAD_BYTES - 4]).to_le_bytes();
        sealed[HEAD_BYTES - 4..HEAD_BYTES].copy_from_slice(&head);
    }
    for stored in [Bytes::copy_from_slice(data), Bytes::from(sealed)] {
        if let Ok(record) = Record::decode(&stored) {
            assert_eq!(record.encode(), stored);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Record {
        let term = Term { number: 7, salt: 0x0102_0304_0506_0708 };
        Record::new(9, 4, term, What::Batch(Lsn(300)), Bytes::from_static(b"batch"))
    }

    #[test]
    fn the_form_is_pinned() {
        let mut expected = b"THWGJOUR\x01\0\0\0\x01\0\0\0\x09\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0".to_vec();
        expected.extend_from_slice(b"\x07\0\0\0\0\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01\x2c\x01\0\0\0\0\0\0");
        expected.extend_from_slice(b"\x05\0\0\0\0\0\0\0");
        expected.extend_from_slice(&crc(b"batch").to_le_bytes());
        let sum = crc(&expected);
        expected.extend_from_slice(&sum.to_le_bytes());
        expected.extend_from_slice(b"batch");
        assert_eq!(sample().encode(), expected);
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_refused() {
        let stored = sample().encode();
        assert_eq!(Record::decode(&stored), Ok(sample()));
        for bit in 0..stored.len() * 8 {
            let mut damaged = stored.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(&damaged.into()).is_err(), "bit {bit}");
        }
        for len in 0..stored.len() {
            assert!(Record::decode(&stored.slice(..len)).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn keys_stand_in_order_of_numbers_and_others_are_none() {
        for number in [0, 9, 10, u64::MAX] {
            assert_eq!(number_of(&key(number)), Some(number));
        }
        assert!(key(9) < key(10) && key(99) < key(u64::MAX));
        for other in ["", "1", "0000000000000000000x", "+0000000000000000001", "99999999999999999999"] {
            assert_eq!(number_of(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn records_round_trip(number: u64, floor: u64, term: u64, salt: u64, at: u64, kind in 0..4, body: Vec<u8>) {
            let (floor, term) = (floor.min(number), Term { number: term, salt });
            let batch = [&body[..], b"x"].concat();
            let record = match kind {
                0 => Record::new(number, floor, term, What::Batch(Lsn(at)), batch.clone().into()),
                1 => Record::new(number, floor, term, What::Fence, Bytes::new()),
                2 => Record::new(number, floor, term, What::Cut(Lsn(at)), Bytes::new()),
                _ => Record::carried(number, floor, Term { number: !term.number, salt: 7 }, Lsn(at), term, &batch),
            };
            let kept = matches!(kind, 0 | 3).then_some((Lsn(at), batch.len() as u64));
            prop_assert_eq!(record.head.batch(), kept);
            prop_assert_eq!(record.clone().into_batch(), kept.map(|(at, _)| (at, term, batch.into())));
            prop_assert_eq!(Head::decode(&record.encode()[..HEAD_BYTES]), Ok(record.head));
            prop_assert_eq!(Record::decode(&record.encode()), Ok(record));
        }

        #[test]
        fn any_bytes_are_read_or_refused(data: Vec<u8>, has_magic: bool) {
            let data = if has_magic { [&MAGIC[..], &[1, 0, 0, 0], &data].concat() } else { data };
            fuzz_record(&data);
        }
    }
}
