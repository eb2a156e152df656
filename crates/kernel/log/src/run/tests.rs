//! The promises of runs, asked of whole objects.
#![allow(clippy::unwrap_used, reason = "a test that fails should say where")]

mod corruption;
mod golden;
mod lookup;
mod measure;
mod merging;
mod model;
mod writing;

/// An object of each form, and of the earlier one an index block, and its footer without magic and checksum.
pub(crate) fn samples() -> Vec<Vec<u8>> {
    let storage = model::memory();
    let extents = [model::reference(3, 21, 9, 300, &[4, 4]), model::reference(9, 0, 9, 300, &[4, 4, 7])];
    let meta = model::write(&storage, 1, 1 << 20, &extents).remove(0);
    let container = storage.read(thalweg_base::ObjectId(1), 0..meta.bytes()).wait().unwrap().to_vec();
    let object = super::earlier::write(thalweg_base::ObjectId(1), &extents);
    let footer = object.len() - super::earlier::FOOTER_BYTES as usize;
    vec![container, object[..40].to_vec(), object[footer + 8..object.len() - 4].to_vec(), object]
}
