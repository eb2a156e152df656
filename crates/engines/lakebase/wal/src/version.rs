//! Major versions of Postgres, and the numbers by which their logs differ.

/// A major version whose log can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PgVersion {
    /// Postgres 15.
    V15,
    /// Postgres 16.
    V16,
    /// Postgres 17.
    V17,
    /// Postgres 18.
    V18,
}

impl PgVersion {
    /// All of them, the oldest first.
    pub const ALL: [Self; 4] = [Self::V15, Self::V16, Self::V17, Self::V18];

    /// The magic number of its pages of the log (`XLOG_PAGE_MAGIC`).
    #[must_use]
    pub const fn page_magic(self) -> u16 {
        match self {
            Self::V15 => 0xD110,
            Self::V16 => 0xD113,
            Self::V17 => 0xD116,
            Self::V18 => 0xD118,
        }
    }

    /// The version whose pages have this magic number.
    #[must_use]
    pub fn of_page_magic(magic: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.page_magic() == magic)
    }

    /// The number of the major version.
    #[must_use]
    pub const fn major(self) -> u32 {
        match self {
            Self::V15 => 15,
            Self::V16 => 16,
            Self::V17 => 17,
            Self::V18 => 18,
        }
    }
}
