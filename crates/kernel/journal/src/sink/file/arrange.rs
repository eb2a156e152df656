//! Renumbers the blanks when a journal is opened.
//!
//! The process that made a blank may have died before the file's name and length were durable, or its sync may have
//! failed. So each blank is renamed and synced again. Blanks are numbered without a hole, also if a crash ends the
//! renumbering at any moment: it takes names away from the last number down, and gives them from the first number up.

use crate::format::{FOLDER, SegmentHeader, segment_path, spare_path};
use crate::options::Options;
use crate::sink::file::recovery::Found;
use std::io;
use thalweg_disk::Disk;

/// Puts at most `wanted` of the files, which hold no frame that is needed, under `first` and the numbers that follow,
/// durably, and removes the others, the largest first. Files that are no segment's size cannot be used.
pub(crate) fn arrange(
    disk: &dyn Disk,
    options: &Options,
    first: u64,
    mut files: Vec<Found>,
    wanted: usize,
    live: &[SegmentHeader],
) -> io::Result<Vec<Found>> {
    files.sort_by_key(|found| std::cmp::Reverse(found.number));
    let Some(last) = files.first().map(|found| found.number) else { return Ok(files) };
    for (found, unused) in files.iter_mut().filter(|found| !found.is_spare()).zip(last + 1..) {
        let spare = spare_path(unused);
        disk.rename(&found.path, &spare)?;
        found.path = spare;
    }
    let (usable, mut others): (Vec<_>, Vec<_>) = files.into_iter().partition(|found| options.is_size(found.len));
    // A folder whose sync has failed may show one file under two names. Every use of a file has a header of its own, so
    // the same header tells.
    let mut known = live.to_vec();
    let is_another = |found: &Found| match found.header() {
        Some(header) if known.contains(&header) => false,
        header => {
            known.extend(header);
            true
        }
    };
    let (mut usable, same): (Vec<_>, Vec<_>) = usable.into_iter().partition(is_another);
    others.extend(same);
    // None may be shorter than the one behind it.
    usable.sort_by_key(|found| std::cmp::Reverse(found.len));
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
