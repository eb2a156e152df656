//! Reading a container back, every byte of it.

use crate::build::Written;
use crate::cache::NoCache;
use crate::codec::Codec;
use crate::error::ContainerError;
use crate::load::wait;
use crate::object::Object;
use crate::read_content::ContentRead;
use crate::scan::Scan;
use std::sync::Arc;
use thalweg_storage::Storage;

/// Content is read in pieces of this size: whole pages.
const PIECE_BYTES: u64 = 1 << 20;

/// Reads every byte of a container and checks it. Waits for the storage.
pub fn verify<C: Codec>(storage: &Arc<dyn Storage>, object: Object) -> Result<Written, ContainerError> {
    let mut scan = Scan::<C>::open(storage, object)?.thorough();
    while scan.check_block()?.is_some() {}
    let written = scan.written();
    let mut at = 0;
    while at < written.stats.content_bytes {
        let end = (at + PIECE_BYTES).min(written.stats.content_bytes);
        let mut content = ContentRead::new(object, C::ID, at..end)?;
        wait(storage, object, |fed| content.step(&NoCache, fed))?;
        at = end;
    }
    Ok(written)
}
