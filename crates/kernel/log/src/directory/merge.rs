//! Merging directory objects: of several records of a log the newest counts.

use super::DirectoryError;
use super::build::DirectoryBuilder;
use super::read::DirectoryReader;
use std::sync::Arc;
use thalweg_base::ObjectId;
use thalweg_container::{Merge, NewestWins};
use thalweg_storage::Storage;

/// Merges directory objects, oldest first, into `out`. Tombstones may be dropped only if no older object is left beside
/// the inputs: they hide its records.
pub(crate) fn merge_newest_wins(
    storage: &Arc<dyn Storage>,
    inputs: &[ObjectId],
    drop_tombstones: bool,
    out: &mut DirectoryBuilder,
) -> Result<(), DirectoryError> {
    let sources = inputs.iter().map(|input| DirectoryReader::open(storage, *input));
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    out.push_all(&mut Merge::new(sources, NewestWins::new(drop_tombstones))?)
}
