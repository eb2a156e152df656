//! Changes of pages that need no redo routine.

use crate::wire::Page;
use thalweg_lakebase_wal::{Image, ImageError, PAGE_BYTES};
use thalweg_pg::PgLsn;

/// Bytes of a page's header, before its content (`MAXALIGN(SizeOfPageHeaderData)`).
const HEADER_BYTES: usize = 24;
/// Bits of a heap block in its visibility map.
const BITS: u32 = 2;
const BITS_VISIBLE_AND_FROZEN: u8 = 0b11;
const BIT_FROZEN: u8 = 0b10;

/// How many heap blocks have their bits in one page of a visibility map.
#[must_use]
pub fn heap_blocks_per_map() -> u32 {
    ((PAGE_BYTES - HEADER_BYTES) * 8) as u32 / BITS
}

/// The position of the last change of a page (`pd_lsn`).
#[must_use]
pub fn position_of(page: &[u8; PAGE_BYTES]) -> PgLsn {
    let half = |at: usize| u64::from(u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]));
    PgLsn(half(0) << 32 | half(4))
}

/// The page of a record's image, which ends at `end`, as `XLogReadBufferForRedo` leaves it.
pub fn apply_image(image: &Image, end: PgLsn) -> Result<Page, ImageError> {
    let mut page: Page = Box::new([0; PAGE_BYTES]);
    image.restore(&mut page)?;
    // An image of a new page, all zeros, stays one (`PageIsNew`: its upper bound is zero).
    if page[14..16] != [0, 0] {
        page[..4].copy_from_slice(&((end.0 >> 32) as u32).to_le_bytes());
        page[4..8].copy_from_slice(&(end.0 as u32).to_le_bytes());
    }
    Ok(page)
}

/// Clears a heap block's bits in the page of its visibility map (`visibilitymap_clear`). The position of the page stays.
pub fn clear_visibility(map: &mut [u8; PAGE_BYTES], heap_block: u32, only_frozen: bool) {
    let bit = (heap_block % heap_blocks_per_map()) * BITS;
    let bits = if only_frozen { BIT_FROZEN } else { BITS_VISIBLE_AND_FROZEN };
    map[HEADER_BYTES + (bit / 8) as usize] &= !(bits << (bit % 8));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_one_block_go_out_and_no_others() {
        assert_eq!(heap_blocks_per_map(), 32_672);
        for block in [0, 1, 3, 4, 32_671, 32_672 + 5] {
            let mut map = [0xff; PAGE_BYTES];
            clear_visibility(&mut map, block, true);
            clear_visibility(&mut map, block, false);
            let cleared: u32 = map.iter().map(|byte| byte.count_zeros()).sum();
            assert_eq!(cleared, 2, "block {block}");
            assert_eq!(map[..HEADER_BYTES], [0xff; HEADER_BYTES]);
        }
        let mut map = [0xff; PAGE_BYTES];
        clear_visibility(&mut map, 1, true);
        assert_eq!(map[HEADER_BYTES], 0b1111_0111, "visible, and not frozen");
    }
}
