//! Damage to the newest journal segment of a closed data folder.

use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};

const HEADER_BYTES: usize = 4096;

/// The segment with the largest number whose header agrees with its name: it has the latest frames.
pub(crate) fn newest_segment(data: &Path) -> anyhow::Result<Option<PathBuf>> {
    let mut newest = None;
    for entry in fs::read_dir(data.join("journal"))? {
        let path = entry?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u64>().ok());
        let Some(number) = number.filter(|_| path.extension().is_some_and(|extension| extension == "seg")) else {
            continue;
        };
        let bytes = fs::read(&path)?;
        let told = bytes.get(16..24).and_then(|number| number.try_into().ok()).map(u64::from_le_bytes);
        if bytes.starts_with(b"THALWEGJ") && told == Some(number) {
            newest = newest.max(Some((number, path)));
        }
    }
    Ok(newest.map(|(_, path)| path))
}

/// The damage done.
pub(crate) fn damage(segment: &Path, rng: &mut oorandom::Rand64) -> anyhow::Result<String> {
    let name = segment.display();
    match rng.rand_range(0..4) {
        0 => {
            fs::remove_file(segment)?;
            Ok(format!("{name} is removed"))
        }
        1 => {
            fs::write(segment, [])?;
            Ok(format!("{name} is emptied"))
        }
        _ => {
            let mut bytes = fs::read(segment)?;
            let end = bytes.iter().rposition(|byte| *byte != 0).context("a segment of zeros")?;
            let from = end.saturating_sub(200).max(HEADER_BYTES.min(end));
            let at = usize::try_from(rng.rand_range(from as u64..end as u64 + 1))?;
            bytes[at] ^= 1 << rng.rand_range(0..8);
            fs::write(segment, bytes)?;
            Ok(format!("bit at byte {at} of {name}, which ends at {end}, is flipped"))
        }
    }
}

/// Copies a folder with everything in it.
pub(crate) fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir(to).with_context(|| format!("cannot make {}", to.display()))?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
