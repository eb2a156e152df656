//! Sections of indexes that are there for tests alone.

use thalweg_base::{DecodeError, Decoder, Encoder, Lsn, ObjectId};
use thalweg_unit::{IndexId, Section};

/// A section that names objects, and counts its edits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names<const INDEX: u8> {
    pub(crate) edits: u64,
    pub(crate) objects: Vec<(ObjectId, u64)>,
}

impl<const INDEX: u8> Section for Names<INDEX> {
    const INDEX: IndexId = IndexId(INDEX);

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_varint(self.edits);
        for (object, len) in &self.objects {
            out.put_varint(object.0);
            out.put_varint(*len);
        }
        out
    }

    fn decode(_: Lsn, body: &[u8]) -> Result<Self, DecodeError> {
        let mut d = Decoder::new(body);
        let mut names = Self { edits: d.varint()?, objects: Vec::new() };
        while !d.is_empty() {
            names.objects.push((ObjectId(d.varint()?), d.varint()?));
        }
        Ok(names)
    }

    fn floor(&self) -> Lsn {
        Lsn(self.edits)
    }

    fn objects(&self) -> Vec<(ObjectId, u64)> {
        self.objects.clone()
    }
}

pub(crate) type One = Names<1>;
pub(crate) type Two = Names<2>;
