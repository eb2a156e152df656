//! The root of a unit: the content of its manifest.

use bytes::Bytes;
use std::collections::BTreeMap;
use thalweg_base::{DecodeError, Decoder, Encoder, Lsn, ObjectId};
use thalweg_journal::Bounds;

/// Versions below are those of roots that had one index and no epoch; the index that wrote them reads them.
pub(crate) const VERSION: u8 = 4;

/// The number of an index, to which sections belong. Numbers are part of the stored form: `docs/format/unit.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexId(pub u8);

impl IndexId {
    /// `thalweg-log`.
    pub const LOG: Self = Self(1);
}

/// The state of one index in the root.
pub trait Section: Clone + PartialEq + Send + Sync + 'static {
    /// The number under which the root and frames name the index. It never changes.
    const INDEX: IndexId;

    /// The stored form, without the floor.
    fn encode(&self) -> Vec<u8>;

    /// The section of a stored form, see [`Section::encode`].
    fn decode(floor: Lsn, body: &[u8]) -> Result<Self, DecodeError>;

    /// The index needs nothing of the journal below.
    fn floor(&self) -> Lsn;

    /// Every object that the section names, each with its length in bytes.
    fn objects(&self) -> Vec<(ObjectId, u64)>;
}

/// A section in its stored form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The journal position below which the index needs nothing.
    pub floor: Lsn,
    /// The index's own form of its state.
    pub body: Bytes,
}

/// How far the journal is durable for certain, and in which term it was open when that was noted (0: not known). A
/// journal that ends before has lost something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The journal is durable below this position.
    pub durable: Lsn,
    /// The term in which that was noted; 0 if it is not known.
    pub term: u64,
}

/// The root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// The epoch of the owner that wrote the root. The manifest has it too; a copy of the root in another manifest
    /// begins above it.
    pub epoch: u64,
    /// How far the journal is durable for certain.
    pub claim: Claim,
    /// The section of each index.
    pub sections: BTreeMap<IndexId, Stored>,
}

impl Root {
    /// The stored form: `docs/format/unit.md`.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        for n in [self.epoch, self.claim.durable.0, self.claim.term, self.sections.len() as u64] {
            out.put_varint(n);
        }
        for (index, section) in &self.sections {
            out.push(index.0);
            out.put_varint(section.floor.0);
            out.put_bytes(&section.body);
        }
        out
    }

    /// A root that a unit has written. Fails with `Unknown` for roots of the first three versions.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut d = Decoder::new(body);
        let version = d.u8()?;
        if version != VERSION {
            return Err(DecodeError::Unknown { what: "root version", got: version.into() });
        }
        let mut root = Self { epoch: d.varint()?, ..Self::default() };
        root.claim = Claim { durable: Lsn(d.varint()?), term: d.varint()? };
        for _ in 0..d.varint()? {
            let index = IndexId(d.u8()?);
            let section = Stored { floor: Lsn(d.varint()?), body: Bytes::copy_from_slice(d.bytes()?) };
            if root.sections.last_key_value().is_some_and(|(last, _)| *last >= index) {
                return Err(DecodeError::Range("index of a section"));
            }
            root.sections.insert(index, section);
        }
        d.end()?;
        Ok(root)
    }

    /// The range that the journal must hold: from the lowest floor of all indexes on.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let floor = self.sections.values().map(|section| section.floor).min().unwrap_or_default();
        Bounds { floor, known_durable: self.claim.durable, term: self.claim.term }
    }

    /// The section of an index, if it has one.
    pub fn section<S: Section>(&self) -> Result<Option<S>, DecodeError> {
        let stored = self.sections.get(&S::INDEX);
        stored.map(|stored| S::decode(stored.floor, &stored.body)).transpose()
    }

    /// Replaces the section of an index, or adds it.
    pub fn put<S: Section>(&mut self, section: &S) {
        let stored = Stored { floor: section.floor(), body: section.encode().into() };
        self.sections.insert(S::INDEX, stored);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Root {
        let section = |floor, body: &'static [u8]| Stored { floor: Lsn(floor), body: body.into() };
        Root {
            epoch: 5,
            claim: Claim { durable: Lsn(300), term: 9 },
            sections: [(IndexId(1), section(200, b"log")), (IndexId(2), section(260, b""))].into(),
        }
    }

    #[test]
    fn the_bytes_are_pinned() {
        let hex: String = sample().encode().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "0405ac02090201c801036c6f6702840200");
        assert_eq!(Root::decode(&sample().encode()), Ok(sample()));
    }

    #[test]
    fn the_journal_must_hold_what_the_slowest_index_needs() {
        assert_eq!(sample().bounds(), Bounds { floor: Lsn(200), known_durable: Lsn(300), term: 9 });
        assert_eq!(Root::default().bounds(), Bounds { floor: Lsn::ZERO, known_durable: Lsn::ZERO, term: 0 });
    }

    #[test]
    fn other_versions_and_sections_out_of_order_are_refused() {
        for version in [0, 1, 3, 5] {
            let body = [&[version], &sample().encode()[1..]].concat();
            assert!(matches!(Root::decode(&body), Err(DecodeError::Unknown { .. })), "{version}");
        }
        let twice = [4, 5, 0, 0, 2, 1, 0, 0, 1, 0, 0];
        assert!(Root::decode(&twice).is_err());
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let bytes = [&[VERSION], &bytes[..]].concat();
            if let Ok(root) = Root::decode(&bytes) {
                prop_assert_eq!(Root::decode(&root.encode()), Ok(root));
            }
        }
    }
}
