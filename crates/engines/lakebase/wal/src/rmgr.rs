//! Resource managers: the parts of Postgres that write records and replay them.

/// A resource manager by its number (`rmgrlist.h`, the same in Postgres 15 to 18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rmgr(pub u8);

impl Rmgr {
    /// Checkpoints, page images and settings.
    pub const XLOG: Self = Self(0);
    /// Ends of transactions.
    pub const TRANSACTION: Self = Self(1);
    /// Files of relations.
    pub const STORAGE: Self = Self(2);
    /// Pages of `pg_xact`.
    pub const CLOG: Self = Self(3);
    /// Databases.
    pub const DATABASE: Self = Self(4);
    /// Tablespaces.
    pub const TABLESPACE: Self = Self(5);
    /// Pages of `pg_multixact`.
    pub const MULTIXACT: Self = Self(6);
    /// Files of mapped catalogs.
    pub const RELMAP: Self = Self(7);
    /// What hot standbys must know.
    pub const STANDBY: Self = Self(8);
    /// Heaps, second part.
    pub const HEAP2: Self = Self(9);
    /// Heaps.
    pub const HEAP: Self = Self(10);
    /// B-trees.
    pub const BTREE: Self = Self(11);
    /// Pages of `pg_commit_ts`.
    pub const COMMIT_TS: Self = Self(18);
    /// Progress of logical replication.
    pub const REPLICATION_ORIGIN: Self = Self(19);
    /// Changes of pages by extensions (`generic_xlog.c`).
    pub const GENERIC: Self = Self(20);
    /// Messages for logical decoding.
    pub const LOGICAL_MESSAGE: Self = Self(21);

    /// The name that `pg_waldump` has for it, if it is one of Postgres's own.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        const NAMES: [&str; 22] = [
            "XLOG",
            "Transaction",
            "Storage",
            "CLOG",
            "Database",
            "Tablespace",
            "MultiXact",
            "RelMap",
            "Standby",
            "Heap2",
            "Heap",
            "Btree",
            "Hash",
            "Gin",
            "Gist",
            "Sequence",
            "SPGist",
            "BRIN",
            "CommitTs",
            "ReplicationOrigin",
            "Generic",
            "LogicalMessage",
        ];
        NAMES.get(usize::from(self.0)).copied()
    }

    /// Whether records may name it: one of Postgres's own, or one of an extension, from 128 on.
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.name().is_some() || self.0 >= 128
    }
}
