//! The directory checkpoint: rounds write it, recovery reads it.

use crate::directory::{DirectoryBuilder, DirectoryError, DirectoryMeta, DirectoryReader, merge_newest_wins};
use crate::root::DirectoryObject;
use crate::sealed::Sealed;
use std::sync::Arc;
use thalweg_base::{LogId, ObjectId};
use thalweg_storage::Storage;

/// Records of logs, sorted by id; `None` for a log that is gone.
pub(crate) type Records = Vec<(LogId, Option<Vec<u8>>)>;

/// Writes one directory object.
pub(crate) fn write(sealed: &Sealed, records: &Records) -> Result<DirectoryObject, DirectoryError> {
    build(sealed, |builder| records.iter().try_for_each(|(log, record)| builder.push(*log, record.as_deref())))
}

/// Merges neighbouring objects, oldest first, into one.
pub(crate) fn merge(
    sealed: &Sealed,
    inputs: &[DirectoryObject],
    drop_tombstones: bool,
) -> Result<DirectoryObject, DirectoryError> {
    let ids: Vec<ObjectId> = inputs.iter().map(|input| input.id).collect();
    build(sealed, |builder| merge_newest_wins(&sealed.storage, &ids, drop_tombstones, builder))
}

fn build(
    sealed: &Sealed,
    fill: impl FnOnce(&mut DirectoryBuilder) -> Result<(), DirectoryError>,
) -> Result<DirectoryObject, DirectoryError> {
    let id = sealed.unit().new_object();
    let mut builder = DirectoryBuilder::new(id, sealed.storage.create(id)?)?;
    fill(&mut builder)?;
    let DirectoryMeta { records, tombstones, bytes, .. } = builder.finish()?;
    Ok(DirectoryObject { id, records: records + tombstones, bytes })
}

/// Reads one directory object, in order of id.
pub(crate) fn read(
    storage: &Arc<dyn Storage>,
    object: &DirectoryObject,
    f: impl FnMut(LogId, Option<&[u8]>),
) -> Result<(), DirectoryError> {
    DirectoryReader::open(storage, object.id)?.for_each(f)
}
