//! List objects: their bytes, and reading them. `docs/format/objects.md`.

use super::{Named, Page};
use crate::root::RunObject;
use crate::run::RunError;
use std::sync::Arc;
use thalweg_base::{DecodeError, Decoder, Encoder, ObjectId, crc};
use thalweg_storage::Storage;

const MAGIC: [u8; 8] = *b"THWGLIST";
const FORMAT: u32 = 1;
const CRC_BYTES: usize = 4;

pub(super) fn encode_page(id: ObjectId, objects: &[RunObject]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.put_u32(FORMAT);
    out.put_u32(0);
    out.put_u64(id.0);
    out.put_u64(objects.len() as u64);
    objects.iter().for_each(|object| object.encode(&mut out));
    let sum = crc(&out);
    out.put_u32(sum);
    out
}

pub(super) fn read_page(storage: &Arc<dyn Storage>, named: &Named) -> Result<Page, RunError> {
    let Named { id, bytes, objects } = *named;
    let len = storage.len(id)?;
    if len != bytes {
        return Err(RunError::corrupt(id, 0, format!("the list has {len} bytes, and had {bytes} when it was written")));
    }
    let page = decode_page(id, &storage.read(id, 0..bytes).wait()?)?;
    if page.objects.len() as u64 != objects {
        return Err(RunError::corrupt(id, 0, "it is whole, but not the list that the manifest names"));
    }
    Ok(page)
}

/// Reads a page back from the device, and compares its list with the one that was written. Returns its length in bytes.
pub(crate) fn verify_page(storage: &Arc<dyn Storage>, page: &Page) -> Result<u64, RunError> {
    let named = Named { id: page.id, bytes: page.bytes, objects: page.objects.len() as u64 };
    if read_page(storage, &named)? != *page {
        return Err(RunError::corrupt(page.id, 0, "it is whole, but lists other objects"));
    }
    Ok(page.bytes)
}

pub(crate) fn decode_page(id: ObjectId, bytes: &[u8]) -> Result<Page, RunError> {
    let damaged = |what: &str| RunError::corrupt(id, 0, what);
    let wrong = |error: DecodeError| RunError::corrupt(id, 0, error);
    let Some((content, sum)) = bytes.split_last_chunk::<CRC_BYTES>().filter(|(content, _)| content.starts_with(&MAGIC))
    else {
        return Err(damaged("the list has no magic"));
    };
    let mut d = Decoder::new(&content[MAGIC.len()..]);
    let format = d.u32().map_err(wrong)?;
    if format > FORMAT {
        return Err(RunError::Newer { object: id, found: format, known: FORMAT });
    }
    if crc(content) != u32::from_le_bytes(*sum) {
        return Err(damaged("the list's checksum differs"));
    }
    let flags = d.u32().map_err(wrong)?;
    let named = ObjectId(d.u64().map_err(wrong)?);
    if format != FORMAT || flags != 0 || named != id {
        return Err(damaged("it is the list of another object"));
    }
    let mut objects = Vec::new();
    for _ in 0..d.u64().map_err(wrong)? {
        objects.push(RunObject::decode(&mut d).map_err(wrong)?);
    }
    d.end().map_err(wrong)?;
    Ok(Page { id, bytes: bytes.len() as u64, objects: objects.into() })
}
