//! Which blank stands under which number when a journal is opened.
//!
//! A blank that is found there may be of a process that died before it had made the file's name and length durable, or that failed to;
//! so each gets its name anew and is synced. Blanks are numbered without a hole, also if this is cut short at any moment: the row is taken
//! down from its end, and built up from its beginning.

use crate::format::{FOLDER, segment_path, spare_path};
use crate::options::Options;
use crate::recovery::Found;
use std::io;
use thalweg_disk::Disk;

/// Puts at most `wanted` of the files, which hold no frame that is needed, under `first` and the numbers that follow, durably, and
/// removes the others. Files of another size than a segment cannot be used.
pub(crate) fn arrange(
    disk: &dyn Disk,
    options: &Options,
    first: u64,
    mut files: Vec<Found>,
    wanted: usize,
) -> io::Result<Vec<Found>> {
    files.sort_by_key(|found| std::cmp::Reverse(found.number));
    let Some(last) = files.first().map(|found| found.number) else { return Ok(files) };
    for (found, unused) in files.iter_mut().filter(|found| !found.is_spare()).zip(last + 1..) {
        let spare = spare_path(unused);
        disk.rename(&found.path, &spare)?;
        found.path = spare;
    }
    let (mut usable, mut others): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|found| found.len == options.segment_bytes);
    others.extend(usable.split_off(wanted.min(usable.len())));
    for (found, number) in usable.iter_mut().zip(first..) {
        let path = segment_path(number);
        disk.rename(&found.path, &path)?;
        found.file.sync()?;
        (found.number, found.path) = (number, path);
    }
    others.iter().try_for_each(|found| disk.remove(&found.path))?;
    disk.sync_dir(FOLDER)?;
    Ok(usable)
}
