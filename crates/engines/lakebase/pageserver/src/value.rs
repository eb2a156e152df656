//! What a record does to one page.

use thalweg_lakebase_redo::Change;
use thalweg_lakebase_wal::Image;

/// What a record does to one page.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// The page is this image.
    Image(Image),
    /// A redo routine changes it. `begins`: whatever stands there.
    Record { change: Change, begins: bool },
    /// Bits of a visibility map go out: both of this heap block, or the one of frozen tuples.
    Hide { heap_block: u32, only_frozen: bool },
    /// Both bits go out of this heap block and all behind it.
    HideFrom { heap_block: u32 },
}

impl Value {
    /// Whether the page after it depends on nothing before it.
    pub(crate) fn begins(&self) -> bool {
        match self {
            Self::Image(_) => true,
            Self::Record { begins, .. } => *begins,
            Self::Hide { .. } | Self::HideFrom { .. } => false,
        }
    }
}
