//! A Postgres in memory: rows with transactions, a log of their writes, a catalog, a publication and slots. It may
//! crash, be promoted, be set back to an earlier state, or be replaced.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use thalweg_filter::{Condition, Filter, Key, Membership, Position};
use thalweg_shapes_core::subquery::seen::Seen;
use thalweg_shapes_model::definition::Definition;
use thalweg_shapes_model::predicate;
use thalweg_shapes_model::row::{Cells, borrowed};
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_model::table::sample::{self, INT4, column};
use thalweg_shapes_model::table::{Mark, Table};

/// A row of three numbers; the first is its key.
pub(super) type Row = [Option<i32>; 3];

/// The rows of a table by their keys.
pub(super) type Rows = BTreeMap<i32, Row>;

pub(super) const TABLES: [(&str, [&str; 3]); 3] =
    [("t", ["id", "a", "b"]), ("p", ["id", "v", "g"]), ("q", ["id", "v", "g"])];

/// The effect of a transaction on a table, by the table's place in [`TABLES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Row {
        table: usize,
        old: Option<Row>,
        new: Option<Row>,
    },
    Truncate {
        table: usize,
    },
    /// It was dropped, and another one of the same name is made. The stream does not tell.
    Recreate {
        table: usize,
    },
    /// All rows were rewritten with other values (`ALTER TABLE … USING`). The stream does not tell.
    Rewrite {
        table: usize,
    },
}

impl Change {
    pub(super) fn table(&self) -> usize {
        match self {
            Self::Row { table, .. } | Self::Truncate { table } | Self::Recreate { table } | Self::Rewrite { table } => {
                *table
            }
        }
    }

    pub(super) fn apply(&self, rows: &mut [Rows]) {
        match self {
            Self::Row { table, old, new } => {
                if let Some(key) = old.and_then(|old| old[0]) {
                    rows[*table].remove(&key);
                }
                if let Some((key, new)) = new.and_then(|new| Some((new[0]?, new))) {
                    rows[*table].insert(key, new);
                }
            }
            Self::Truncate { table } | Self::Recreate { table } => rows[*table].clear(),
            Self::Rewrite { table } => rows[*table].values_mut().for_each(|row| row[2] = row[2].map(|b| (b + 1) % 5)),
        }
    }
}

/// A change in the log: whether the publication had its table when it was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logged {
    pub(super) change: Change,
    /// The oid of the table at that time.
    pub(super) oid: u32,
    pub(super) is_published: bool,
}

/// A transaction that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) xid: u64,
    pub(super) changes: Vec<Logged>,
    /// Its changes are sent before it commits.
    pub(super) is_streamed: bool,
    /// It holds an exclusive lock on a table.
    pub(super) locks: Option<usize>,
}

/// A transaction whose commit is in the log.
#[derive(Clone, Debug)]
pub(super) struct Committed {
    pub(super) xid: u64,
    pub(super) changes: Arc<[Logged]>,
    /// The position of its commit record, and the first position after it.
    pub(super) lsn: u64,
    pub(super) end: u64,
    pub(super) time: i64,
    pub(super) is_streamed: bool,
    /// Snapshots show it.
    pub(super) is_visible: bool,
    /// It waits for a standby.
    pub(super) hangs: bool,
    /// The rows after it and all before it.
    pub(super) rows: Arc<[Rows]>,
}

/// A table in the catalog.
#[derive(Clone, Debug)]
pub(super) struct Cataloged {
    pub(super) table: Arc<Table>,
    pub(super) is_full: bool,
    /// Changes with every entry into the publication.
    pub(super) entry: Option<u32>,
    /// Changes with every alteration.
    pub(super) version: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) confirmed: u64,
    pub(super) is_active: bool,
}

/// Everything that lies in the files of a server.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) system: u64,
    pub(super) timeline: u32,
    pub(super) branches: Vec<(u32, u64)>,
    /// Where the log ends, and where it is on the disk.
    pub(super) inserted: u64,
    pub(super) flushed: u64,
    pub(super) next_xid: u64,
    pub(super) committed: Vec<Committed>,
    pub(super) open: Vec<Open>,
    pub(super) tables: Vec<Cataloged>,
    /// The rows that snapshots show.
    pub(super) visible: Vec<Rows>,
    /// The oid and the version of the publication.
    pub(super) publication: Option<(u32, u32)>,
    pub(super) slot: Option<Slot>,
    next_oid: u32,
}

/// A server that may be asked.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) files: Files,
    /// It accepts connections.
    pub(super) is_up: bool,
    /// Connections of earlier runs are broken.
    pub(super) run: u64,
    /// Counts the histories: positions mean something in one of them.
    pub(super) history: u64,
    /// The history that a stream was started in last.
    pub(super) followed: u64,
    /// Sessions that hold a lock on a table, against its being altered.
    pub(super) readers: BTreeMap<u64, usize>,
    pub(super) next_session: u64,
    /// The history and the run that the replication stream is of, and the LSN up to which all changes were sent.
    pub(super) streams: Option<(u64, u64)>,
    /// The last time at which the next event of the stream was requested.
    pub(super) asked: Option<std::time::Duration>,
}

fn describe(oid: u32, at: usize, version: u32, entry: Option<u32>) -> Arc<Table> {
    let (name, columns) = TABLES[at];
    let columns = columns.iter().enumerate().map(|(at, name)| column(name, INT4, (at == 0).then_some(0)));
    let entries = entry.map(|entry| entry.to_string()).unwrap_or_default();
    let mark = Mark { oid, file: version, columns: i64::from(version), entries };
    Arc::new(Table { oid, marks: vec![mark], ..sample::table(name, columns.collect()) })
}

impl Files {
    pub(super) fn new(system: u64) -> Self {
        let mut files = Self {
            system,
            timeline: 1,
            branches: Vec::new(),
            inserted: 1000,
            flushed: 1000,
            next_xid: 700 + system * 10,
            committed: Vec::new(),
            open: Vec::new(),
            tables: Vec::new(),
            visible: vec![Rows::new(); TABLES.len()],
            publication: None,
            slot: None,
            next_oid: 16_400,
        };
        for at in 0..TABLES.len() {
            let oid = files.oid();
            let table = describe(oid, at, oid, None);
            files.tables.push(Cataloged { table, is_full: false, entry: None, version: oid });
        }
        files
    }

    fn oid(&mut self) -> u32 {
        self.next_oid += 1;
        self.next_oid
    }

    pub(super) fn xid(&mut self) -> u64 {
        self.next_xid += 1;
        self.next_xid - 1
    }

    pub(super) fn table_at(&self, oid: u32) -> Option<usize> {
        self.tables.iter().position(|known| known.table.oid == oid)
    }

    fn redescribe(&mut self, at: usize) {
        let known = &mut self.tables[at];
        known.table = describe(known.table.oid, at, known.version, known.entry);
    }

    /// Whether a transaction that is not visible has written to the table.
    pub(super) fn has_writers(&self, table: usize) -> bool {
        self.writers(table).next().is_some()
    }

    pub(super) fn writers(&self, table: usize) -> impl Iterator<Item = u64> + '_ {
        let writes = move |changes: &[Logged]| changes.iter().any(|logged| logged.change.table() == table);
        let open = self.open.iter().filter(move |open| writes(&open.changes) || open.locks == Some(table));
        let hidden = self.committed.iter().filter(move |done| !done.is_visible && writes(&done.changes));
        open.map(|open| open.xid).chain(hidden.map(|done| done.xid))
    }

    pub(super) fn is_locked(&self, table: usize) -> bool {
        // A table that was truncated stays locked until snapshots show that.
        let truncates = |logged: &Logged| logged.change == Change::Truncate { table };
        let mut hidden = self.committed.iter().filter(|done| !done.is_visible);
        self.open.iter().any(|open| open.locks == Some(table)) || hidden.any(|done| done.changes.iter().any(truncates))
    }

    /// Rows that others must not write: a transaction that has written them is not visible yet.
    pub(super) fn locked_rows(&self) -> BTreeSet<(usize, i32)> {
        let open = self.open.iter().flat_map(|open| open.changes.iter());
        let hidden = self.committed.iter().filter(|done| !done.is_visible).flat_map(|done| done.changes.iter());
        let keys = |logged: &Logged| match logged.change {
            Change::Row { table, old, new } => {
                [old, new].iter().flatten().map(|row| (table, row[0].unwrap_or(0))).collect()
            }
            _ => Vec::new(),
        };
        open.chain(hidden).flat_map(keys).collect()
    }

    pub(super) fn publish(&mut self, at: usize) {
        let entry = self.oid();
        let known = &mut self.tables[at];
        known.is_full = true;
        if known.entry.is_none() {
            known.entry = Some(entry);
            if let Some((_, version)) = &mut self.publication {
                *version += 1;
            }
        }
        self.redescribe(at);
    }

    pub(super) fn unpublish(&mut self, at: usize) {
        self.tables[at].entry = None;
        if let Some((_, version)) = &mut self.publication {
            *version += 1;
        }
        self.redescribe(at);
    }

    pub(super) fn create_publication(&mut self) {
        let oid = self.oid();
        self.publication = Some((oid, oid));
    }

    /// The table is dropped, and another one of the same name is made.
    pub(super) fn recreate(&mut self, at: usize) {
        let oid = self.oid();
        self.tables[at] = Cataloged { table: describe(oid, at, oid, None), is_full: false, entry: None, version: oid };
        self.silently(Change::Recreate { table: at });
    }

    /// All rows are rewritten with other values (`ALTER TABLE … USING`).
    pub(super) fn rewrite(&mut self, at: usize) {
        self.tables[at].version = self.oid();
        self.redescribe(at);
        self.silently(Change::Rewrite { table: at });
    }

    /// A transaction of which the stream tells nothing.
    fn silently(&mut self, change: Change) {
        let (xid, time) = (self.xid(), self.inserted as i64);
        let changes = vec![Logged { change, oid: 0, is_published: false }];
        self.commit(Open { xid, changes, is_streamed: false, locks: None }, 40, time, false);
        self.flushed = self.inserted;
        self.show(self.committed.len() - 1);
    }

    /// Writes the commit record of a transaction. Snapshots do not show it before [`Files::show`].
    pub(super) fn commit(&mut self, open: Open, bytes: u64, time: i64, hangs: bool) {
        self.inserted += bytes;
        let lsn = self.inserted;
        self.inserted += 48;
        let last = self.committed.last().map(|last| last.rows.to_vec());
        let mut rows = last.unwrap_or_else(|| self.visible.clone());
        open.changes.iter().for_each(|logged| logged.change.apply(&mut rows));
        self.committed.push(Committed {
            xid: open.xid,
            changes: open.changes.into(),
            lsn,
            end: self.inserted,
            time,
            is_streamed: open.is_streamed,
            is_visible: false,
            hangs,
            rows: rows.into(),
        });
    }

    /// From now on snapshots show the transaction.
    pub(super) fn show(&mut self, at: usize) {
        let done = &mut self.committed[at];
        if !std::mem::replace(&mut done.is_visible, true) {
            let changes = Arc::clone(&done.changes);
            changes.iter().for_each(|logged| logged.change.apply(&mut self.visible));
        }
    }

    /// Recovers from a crash: open transactions have no effect, and writes that are not on the disk are lost.
    pub(super) fn recover(&mut self) {
        self.open.clear();
        let flushed = self.flushed;
        let kept = self.committed.iter().take_while(|done| done.end <= flushed).count();
        self.committed.truncate(kept);
        (0..kept).for_each(|at| self.show(at));
        self.inserted = self.inserted.min(flushed).max(self.committed.last().map_or(0, |last| last.end));
        self.flushed = self.inserted;
        self.visible = self.rows_at(u64::MAX);
        if let Some(slot) = &mut self.slot {
            slot.is_active = false;
        }
        // A start writes a checkpoint.
        self.inserted += 120;
        self.flushed = self.inserted;
        self.next_xid += 3;
    }

    /// The transactions that snapshots take to be in progress.
    pub(super) fn running(&self) -> BTreeSet<u64> {
        let hidden = self.committed.iter().filter(|done| !done.is_visible).map(|done| done.xid);
        self.open.iter().map(|open| open.xid).chain(hidden).collect()
    }

    pub(super) fn snapshot(&self) -> PgSnapshot {
        let xip: Vec<u64> = self.running().into_iter().collect();
        let xmax = self.next_xid;
        PgSnapshot { xmin: xip.first().copied().unwrap_or(xmax), xmax, xip, lsn: self.inserted }
    }

    // ---- the expected rows

    fn is_member(&self, of: &[Rows], membership: &Membership, key: &Key) -> bool {
        let query = &membership.query;
        let at = named(&query.table.sql);
        let selected = of[at].values().map(cells).filter(|cells| self.selects(of, &query.filter, cells));
        let mut values = selected.map(|cells| query.value(&borrowed(&cells)));
        if membership.negated {
            !values.any(|value| value.may_equal(key))
        } else {
            values.any(|value| !value.has_null() && value == *key)
        }
    }

    fn selects(&self, of: &[Rows], filter: &Filter, cells: &Cells) -> bool {
        match filter {
            Filter::All => true,
            Filter::Row(predicate) => predicate.holds(&borrowed(cells)).unwrap_or(false),
            Filter::Nested(condition) => self.holds(of, condition, cells),
        }
    }

    pub(super) fn holds(&self, of: &[Rows], condition: &Condition, cells: &Cells) -> bool {
        let is_member = |_, membership: &Membership, key: &Key| self.is_member(of, membership, key);
        Seen::new(condition, &borrowed(cells), &is_member).is_ok_and(|seen| seen.holds)
    }

    /// Which rows a definition selects.
    fn meaning(&self, table: usize, sql: Option<&str>) -> Clause {
        let Some(sql) = sql else { return Clause::All };
        let tables: Vec<Arc<Table>> = self.tables.iter().map(|known| Arc::clone(&known.table)).collect();
        if predicate::may_have_subqueries(sql) {
            Clause::Nested(Arc::new(predicate::condition(sql, &[], &tables[table], &tables).expect("a condition")))
        } else {
            Clause::Row(Arc::new(predicate::parse(sql, &[], &tables[table]).expect("a predicate")))
        }
    }

    pub(super) fn satisfies(&self, of: &[Rows], clause: &Clause, row: &Row) -> bool {
        match clause {
            Clause::All => true,
            Clause::Row(predicate) => predicate.holds(&borrowed(&cells(row))).unwrap_or(false),
            Clause::Nested(condition) => self.holds(of, condition, &cells(row)),
            Clause::Position(condition, at) => {
                let is_member = |_, membership: &Membership, key: &Key| self.is_member(of, membership, key);
                Seen::new(condition, &borrowed(&cells(row)), &is_member).is_ok_and(|seen| seen.truths[*at])
            }
        }
    }

    /// The rows that a definition selects of these.
    pub(super) fn selected(&self, of: &[Rows], definition: &Definition) -> Rows {
        let at = place(&definition.table.name);
        let clause = self.meaning(at, definition.where_sql.as_deref());
        of[at].iter().filter(|(_, row)| self.satisfies(of, &clause, row)).map(|(key, row)| (*key, *row)).collect()
    }

    /// The rows of all tables once everything up to `lsn` has committed.
    pub(super) fn rows_at(&self, lsn: u64) -> Vec<Rows> {
        let count = self.committed.partition_point(|done| done.lsn <= lsn);
        count.checked_sub(1).map_or_else(|| vec![Rows::new(); TABLES.len()], |at| self.committed[at].rows.to_vec())
    }
}

/// Which rows a piece of SQL selects.
#[derive(Clone)]
pub(super) enum Clause {
    All,
    Row(Arc<predicate::Predicate>),
    Nested(Arc<Condition>),
    /// One position of a condition.
    Position(Arc<Condition>, usize),
}

/// The meaning of the SQL that the server writes for the definitions of the simulation, by table.
pub(super) struct Dictionary(HashMap<(usize, String), Clause>);

impl Dictionary {
    pub(super) fn of(definitions: impl IntoIterator<Item = (usize, &'static str)>) -> Self {
        let files = Files::new(0);
        let mut all = Self(HashMap::new());
        for (table, sql) in definitions {
            match files.meaning(table, Some(sql)) {
                Clause::Row(predicate) => drop(all.0.insert((table, predicate.sql()), Clause::Row(predicate))),
                Clause::Nested(condition) => all.learn(table, &condition),
                Clause::All | Clause::Position(..) => {}
            }
        }
        all
    }

    fn learn(&mut self, table: usize, condition: &Arc<Condition>) {
        self.0.insert((table, condition.sql()), Clause::Nested(Arc::clone(condition)));
        for (at, position) in condition.positions().iter().enumerate() {
            self.0.insert((table, position.sql()), Clause::Position(Arc::clone(condition), at));
            let Position::In(membership) = position else { continue };
            let query = &membership.query;
            let inner = named(&query.table.sql);
            match &query.filter {
                Filter::All => {}
                Filter::Row(predicate) => {
                    let predicate = Arc::clone(predicate);
                    self.0.insert((inner, predicate.sql()), Clause::Row(predicate));
                }
                Filter::Nested(condition) => self.learn(inner, condition),
            }
        }
    }

    /// `None`: it is no clause of a definition, such as one that selects rows that come because of a subquery's values.
    pub(super) fn clause(&self, table: usize, sql: &str) -> Option<Clause> {
        self.0.get(&(table, sql.to_owned())).cloned()
    }
}

/// The place of a table, named as SQL has it.
fn named(sql: &str) -> usize {
    let is = |(name, _): &(&str, _)| sql == format!("\"public\".\"{name}\"");
    TABLES.iter().position(is).expect("a table of the simulation")
}

/// The place of a table in [`TABLES`].
pub(super) fn place(name: &str) -> usize {
    TABLES.iter().position(|(known, _)| *known == name).expect("a table of the simulation")
}

pub(super) fn cells(row: &Row) -> Cells {
    row.iter().map(|number| number.map(|number| number.to_string().into_bytes().into())).collect()
}

impl Cluster {
    pub(super) fn new(system: u64) -> Self {
        Self {
            files: Files::new(system),
            is_up: true,
            run: 0,
            history: 0,
            followed: 0,
            readers: BTreeMap::new(),
            next_session: 0,
            streams: None,
            asked: None,
        }
    }

    /// The server ends and starts: connections break.
    pub(super) fn restart(&mut self) {
        self.run += 1;
        self.readers.clear();
        self.streams = None;
        self.files.recover();
    }
}
