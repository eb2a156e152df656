//! Rows, by the places of their columns.

/// A row with access to its values by column.
pub trait Row {
    /// `None`: NULL, or no such column.
    fn cell(&self, at: usize) -> Option<&[u8]>;
}

impl Row for [Option<&[u8]>] {
    #[inline]
    fn cell(&self, at: usize) -> Option<&[u8]> {
        self.get(at).copied().flatten()
    }
}

impl<const N: usize> Row for [Option<&[u8]>; N] {
    #[inline]
    fn cell(&self, at: usize) -> Option<&[u8]> {
        self.as_slice().cell(at)
    }
}

/// A row's own copy of its values, by the table's columns; columns that no reader needs may be missing.
pub type Cells = Box<[Option<Box<[u8]>>]>;

/// A row with borrowed values.
pub type RowRef<'a> = Vec<Option<&'a [u8]>>;

/// The row with borrowed values.
#[must_use]
pub fn borrowed(cells: &Cells) -> RowRef<'_> {
    cells.iter().map(|cell| cell.as_deref()).collect()
}

/// One change of one row, which shapes with subqueries keep until the end of its transaction.
#[derive(Clone, Debug)]
pub struct RowChange {
    /// The table's oid.
    pub table: u32,
    /// The place in the transaction.
    pub op: u32,
    /// `None`: an insert.
    pub old: Option<Cells>,
    /// `None`: a delete.
    pub new: Option<Cells>,
}

impl RowChange {
    /// Whether it has no row: it stands for changes that were too many to keep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.old.is_none() && self.new.is_none()
    }
}
