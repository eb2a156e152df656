//! The graph without a Postgres: tables in memory, a stream of transactions that lags behind them, rows that are asked
//! for and come late, and transactions that become visible in another order than they commit in. Whatever the order,
//! clients end with the rows that their conditions select.

use super::dependence::{identity, inner_node, outer_node};
use super::graph::{Ask, Ended, Graph, MoveInRequest, Turn, Verdict};
use super::waiting::ANOTHER_ORDER;
use crate::compact::merged;
use crate::read::split;
use crate::shape::{Phase, Shape, State, sample_of};
use crate::state::transaction::Transaction;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use thalweg_base::Lsn;
use thalweg_filter::{Condition, Filter, Key, Membership, Position, Query};
use thalweg_shapes_core::encode::projection::Projection;
use thalweg_shapes_core::route::ids::RouteId;
use thalweg_shapes_core::state::entries::Entry;
use thalweg_shapes_core::subquery::seen::Seen;
use thalweg_shapes_model::definition::{Definition, Replica};
use thalweg_shapes_model::predicate;
use thalweg_shapes_model::row::{Cells, RowChange, borrowed};
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_model::table::Table;
use thalweg_shapes_model::table::sample::{self, INT4, column};

const CHUNK: u64 = 1 << 20;

pub(super) fn table(oid: u32, name: &str, columns: &[&str]) -> Arc<Table> {
    let columns = columns.iter().enumerate().map(|(at, name)| column(name, INT4, (at == 0).then_some(0)));
    Arc::new(Table { oid, ..sample::table(name, columns.collect()) })
}

/// Tables, each by its key.
type Rows = Vec<BTreeMap<i32, Numbers>>;

/// A row of three numbers; the first is its key.
type Numbers = [Option<i32>; 3];

fn cells(numbers: &Numbers) -> Cells {
    numbers.iter().map(|n| n.map(|n| n.to_string().into_bytes().into())).collect()
}

/// One write of a transaction: a table, a row before and a row after.
type Write = (usize, Option<Numbers>, Option<Numbers>);

#[derive(Clone)]
struct Written {
    xid: u32,
    lsn: u64,
    writes: Vec<Write>,
}

impl Written {
    /// Tables with keys of rows.
    fn touched(&self) -> impl Iterator<Item = (usize, i32)> + '_ {
        let rows = self.writes.iter().flat_map(|(table, old, new)| old.iter().chain(new).map(|row| (*table, row)));
        rows.filter_map(|(table, row)| Some((table, row[0]?)))
    }
}

/// A client that has every message, and its state at the beginning.
struct Follower {
    shape: Arc<Shape>,
    table: usize,
    condition: Arc<Condition>,
    base: Vec<u8>,
    dropped: bool,
    /// The last transaction when it began.
    began: u64,
    /// A client that reads all the time, and the number of entries that it has read.
    reader: Client,
    read: usize,
    /// The rows that it is to have after each transaction.
    truths: Vec<(u64, Selected)>,
}

/// Rows by their keys.
type Selected = BTreeMap<i32, Numbers>;

struct World {
    tables: Vec<Arc<Table>>,
    /// As Postgres has them.
    rows: Rows,
    /// As they were after each transaction.
    past: Vec<(u64, Rows)>,
    /// All transactions that commit at or before this LSN were applied.
    processed: u64,
    /// The end of the journal; shapes whose entries wait until the disk is there. With `slow_disk` the test moves the
    /// disk on.
    written: u64,
    holding: Vec<Arc<Shape>>,
    slow_disk: bool,
    graph: Graph,
    stream: VecDeque<Written>,
    committed: u32,
    changes: Vec<u8>,
    followers: Vec<Follower>,
    shapes: BTreeMap<u64, Arc<Shape>>,
    /// Move-ins that are not requested yet; with `eager` they are requested at once.
    wanted: Vec<MoveInRequest>,
    eager: bool,
    /// A transaction that commits, and that no snapshot shows yet; whether the stream has brought it.
    hidden: Option<Written>,
    hidden_was_applied: bool,
    /// Rows that were fetched and have not arrived yet.
    coming: Vec<(u64, u64, Vec<Cells>)>,
    dropped: Vec<Ended>,
    asks: Vec<Ask>,
}

impl World {
    fn new(one_by_one: bool) -> Self {
        let tables =
            vec![table(1, "t", &["id", "a", "b"]), table(2, "p", &["id", "v", "g"]), table(3, "q", &["id", "v", "g"])];
        let mut graph = Graph::default();
        graph.finders.one_by_one = one_by_one;
        Self {
            rows: vec![BTreeMap::new(); tables.len()],
            tables,
            past: Vec::new(),
            processed: 0,
            written: 0,
            holding: Vec::new(),
            slow_disk: false,
            graph,
            stream: VecDeque::new(),
            committed: 10,
            changes: Vec::new(),
            followers: Vec::new(),
            shapes: BTreeMap::new(),
            wanted: Vec::new(),
            eager: true,
            hidden: None,
            hidden_was_applied: false,
            coming: Vec::new(),
            dropped: Vec::new(),
            asks: Vec::new(),
        }
    }

    fn shape(&mut self) -> Arc<Shape> {
        let mut state = State::default();
        state.phase = Phase::Live;
        state.snapshot_taken(Arc::new("1:1:".parse().unwrap()), CHUNK);
        let number = self.shapes.len() as u64 + 1;
        let shape = Arc::new(sample_of(number, &Definition::of_table("public", "t"), state));
        self.shapes.insert(number, Arc::clone(&shape));
        shape
    }

    fn sets(&mut self, condition: &Condition) -> Vec<Option<u64>> {
        let positions = condition.positions().iter().map(|position| match position {
            Position::Row(_) => None,
            Position::In(membership) => Some(self.inner(&membership.query)),
        });
        positions.collect()
    }

    fn inner(&mut self, query: &Arc<Query>) -> u64 {
        if let Some((number, _)) = self.graph.inner(&identity(query)) {
            return number;
        }
        let sets = match &query.filter {
            Filter::Nested(condition) => self.sets(condition),
            Filter::All | Filter::Row(_) => Vec::new(),
        };
        let shape = self.shape();
        let at = self.tables.iter().position(|table| table.oid == query.table.oid).unwrap();
        let node = inner_node(&shape, RouteId(shape.number as u32), &self.tables[at], query, sets, self.contained());
        self.graph.insert(node);
        let visible = self.visible();
        let rows = visible[at].values().map(cells).filter(|c| self.selects(&visible, &query.filter, c)).collect();
        self.graph.loaded(shape.number, rows).unwrap();
        shape.number
    }

    /// The transactions in the first rows of a shape that are still to come.
    fn contained(&self) -> Option<PgSnapshot> {
        (!self.stream.is_empty() || self.hidden.is_some()).then(|| self.snapshot())
    }

    /// Whether a client can begin: the snapshot has all applied transactions, and no inner shape of the condition waits
    /// for rows.
    fn may_follow(&mut self, table: usize, sql: &str) -> bool {
        if self.hidden.is_some() && self.hidden_was_applied {
            return false;
        }
        let condition = predicate::condition(sql, &[], &self.tables[table], &self.tables).unwrap();
        let sets = self.sets(&condition);
        self.graph.is_settled(&sets)
    }

    /// A client of the rows of a table for which a condition holds.
    fn follow(&mut self, table: usize, sql: &str, replica: Replica) -> usize {
        let condition = Arc::new(predicate::condition(sql, &[], &self.tables[table], &self.tables).unwrap());
        let sets = self.sets(&condition);
        let shape = self.shape();
        let projection = Projection::new(&self.tables[table], &[0, 1, 2], replica);
        let mut base = Vec::new();
        let visible = self.visible();
        for cells in visible[table].values().map(cells) {
            let is_member = |_, membership: &Membership, key: &Key| self.is_member(&visible, membership, key);
            let seen = Seen::new(&condition, &borrowed(&cells), &is_member).unwrap();
            if seen.holds {
                let mut headers = Vec::new();
                seen.push_headers(&condition, &shape.handle.to_string(), None, &mut headers);
                projection.table_row_with(&borrowed(&cells)[..], &headers, &mut base);
            }
        }
        let (route_id, of) = (RouteId(shape.number as u32), Arc::clone(&condition));
        let contained = self.contained();
        self.graph.insert(outer_node(&shape, route_id, &self.tables[table], projection, of, sets, contained));
        let (mut reader, began) = (Client::default(), u64::from(self.committed) * 10);
        reader.take(&base);
        let (dropped, read, truths) = (false, 0, Vec::new());
        self.followers.push(Follower { shape, table, condition, base, dropped, began, reader, read, truths });
        self.followers.len() - 1
    }

    // ---- the expected rows

    fn selects(&self, of: &Rows, filter: &Filter, cells: &Cells) -> bool {
        match filter {
            Filter::All => true,
            Filter::Row(predicate) => predicate.holds(&borrowed(cells)).unwrap(),
            Filter::Nested(condition) => self.holds(of, condition, cells),
        }
    }

    fn holds(&self, of: &Rows, condition: &Condition, cells: &Cells) -> bool {
        Seen::new(condition, &borrowed(cells), &|_, membership, key| self.is_member(of, membership, key)).unwrap().holds
    }

    /// By SQL's rules, of all values of the inner query.
    fn is_member(&self, of: &Rows, membership: &Membership, key: &Key) -> bool {
        let query = &membership.query;
        let at = self.tables.iter().position(|table| table.oid == query.table.oid).unwrap();
        let selected = of[at].values().map(cells).filter(|cells| self.selects(of, &query.filter, cells));
        let mut values = selected.map(|cells| query.value(&borrowed(&cells)));
        if membership.negated {
            !values.any(|value| value.may_equal(key))
        } else {
            values.any(|value| !value.has_null() && value == *key)
        }
    }

    fn truth(&self, follower: usize) -> BTreeSet<i32> {
        let Follower { table, condition, .. } = &self.followers[follower];
        let holds = |row: &Numbers| self.holds(&self.rows, condition, &cells(row));
        self.rows[*table].iter().filter(|(_, row)| holds(row)).map(|(key, _)| *key).collect()
    }

    // ---- events

    /// Postgres commits; the stream has it.
    fn commit(&mut self, writes: Vec<Write>) {
        self.committed += 1;
        for (table, old, new) in &writes {
            if let Some(old) = old {
                assert_eq!(self.rows[*table].remove(&old[0].unwrap()), Some(*old));
            }
            if let Some(new) = new {
                assert_eq!(self.rows[*table].insert(new[0].unwrap(), *new), None);
            }
        }
        let (xid, lsn) = (self.committed, u64::from(self.committed) * 10);
        self.past.push((lsn, self.rows.clone()));
        self.stream.push_back(Written { xid, lsn, writes });
    }

    /// The same, but no snapshot shows it before [`World::show`]; later transactions touch other rows.
    fn commit_hidden(&mut self, writes: Vec<Write>) {
        assert!(self.hidden.is_none());
        self.commit(writes);
        (self.hidden, self.hidden_was_applied) = (self.stream.back().cloned(), false);
    }

    fn show(&mut self) {
        self.hidden = None;
    }

    /// The rows that a snapshot shows now.
    fn visible(&self) -> Rows {
        let mut rows = self.rows.clone();
        for (table, old, new) in self.hidden.iter().flat_map(|hidden| hidden.writes.iter().rev()) {
            new.iter().for_each(|new| assert!(rows[*table].remove(&new[0].unwrap()).is_some()));
            old.iter().for_each(|old| assert!(rows[*table].insert(old[0].unwrap(), *old).is_none()));
        }
        rows
    }

    fn snapshot(&self) -> PgSnapshot {
        let next = u64::from(self.committed) + 1;
        let xip: Vec<u64> = self.hidden.iter().map(|hidden| u64::from(hidden.xid)).collect();
        let lsn = u64::from(self.committed) * 10 + 5;
        PgSnapshot { xmin: xip.first().copied().unwrap_or(next), xmax: next, xip, lsn }
    }

    /// One row becomes another (or comes, or goes).
    fn put(&mut self, table: usize, key: i32, row: Option<[Option<i32>; 2]>) -> Write {
        let old = self.rows[table].get(&key).copied();
        (table, old, row.map(|[a, b]| [Some(key), a, b]))
    }

    /// The same, as a transaction that is applied at once.
    fn write(&mut self, table: usize, key: i32, row: Option<[Option<i32>; 2]>) {
        let write = self.put(table, key, row);
        self.commit(vec![write]);
        self.apply();
    }

    /// The stream brings the next transaction.
    fn apply(&mut self) -> bool {
        let Some(Written { xid, lsn, writes }) = self.stream.pop_front() else { return false };
        self.hidden_was_applied |= self.hidden.as_ref().is_some_and(|hidden| hidden.xid == xid);
        let verdict = self.graph.pass(Some(xid), lsn);
        self.carry_out(verdict);
        let mut transaction = Transaction::new(xid, lsn, 1 << 20);
        let mut changes = Vec::new();
        for (table, old, new) in &writes {
            let (old, new) = (old.as_ref().map(cells), new.as_ref().map(cells));
            changes.push(Arc::new(RowChange { table: self.tables[*table].oid, op: transaction.op(), old, new }));
        }
        let mut verdict = self.graph.transaction(&changes, &mut transaction);
        self.drop_ended(&mut verdict);
        let (bodies, _) = transaction.place(self.changes.len() as u64);
        self.changes.extend_from_slice(&bodies);
        for placed in transaction.placed() {
            let entry = Entry { lsn, at: placed.at, op: placed.op, len: placed.len };
            for route_id in placed.route_ids.iter() {
                self.shapes[&u64::from(route_id.0)].lock().push(xid, entry, CHUNK);
            }
        }
        self.processed = lsn;
        self.check_claims();
        self.carry_out(verdict);
        self.processed = lsn + 4;
        let verdict = self.graph.pass(None, lsn + 5);
        self.carry_out(verdict);
        self.check_claims();
        true
    }

    fn drop_ended(&mut self, verdict: &mut Verdict) {
        for (shape, why) in std::mem::take(&mut verdict.drop) {
            self.dropped.push(why);
            self.drop(&shape);
        }
    }

    fn carry_out(&mut self, mut verdict: Verdict) {
        self.drop_ended(&mut verdict);
        self.wanted.extend(verdict.ask);
        while self.eager && !self.wanted.is_empty() {
            self.ask(0);
        }
    }

    /// Asks for rows that are wanted, or puts it off.
    fn ask(&mut self, at: usize) {
        let wanted = self.wanted.remove(at);
        // A snapshot that has not all that was applied is thrown away.
        let missed = self.hidden.is_some() && self.hidden_was_applied;
        match self.graph.turn(wanted.shape, wanted.pending) {
            Turn::Ask(ask) if !missed => {
                self.graph.asked([&ask], &self.snapshot());
                let at = self.tables.iter().position(|table| table.oid == ask.table.oid).unwrap();
                let rows = if ask.filter.is_some() { self.visible()[at].values().map(cells).collect() } else { vec![] };
                self.coming.push((ask.shape, ask.pending, rows));
                self.asks.push(ask);
            }
            Turn::Ask(ask) => {
                assert!(self.graph.unask(ask.shape, ask.pending), "nothing was passed without a snapshot");
                self.wanted.push(wanted);
            }
            Turn::Later => self.wanted.push(wanted),
            Turn::Gone => {}
        }
    }

    fn drop(&mut self, shape: &Shape) {
        for follower in &mut self.followers {
            follower.dropped |= follower.shape.number == shape.number;
        }
        for other in self.graph.remove(shape.number) {
            self.drop(&other);
        }
    }

    /// Rows that were fetched are here.
    fn arrive(&mut self, at: usize) {
        let (shape, pending, rows) = self.coming.remove(at);
        self.graph.arrived(shape, pending, rows);
        self.publish();
    }

    fn publish(&mut self) {
        while let Some(mut published) = self.graph.publish(1 << 20) {
            self.drop_ended(&mut published.verdict);
            let transaction = &mut published.transaction;
            let (bodies, _) = transaction.place(self.changes.len() as u64);
            self.changes.extend_from_slice(&bodies);
            let (mut rows, mut others) = (Vec::new(), Vec::new());
            for placed in transaction.placed() {
                let entry = Entry { lsn: transaction.lsn, at: placed.at, op: placed.op, len: placed.len };
                for route_id in placed.route_ids.iter() {
                    if *route_id == published.route_id {
                        rows.push((transaction.xid, Entry { lsn: published.boundary, ..entry }));
                    } else {
                        others.push((*route_id, entry));
                    }
                }
            }
            self.check_claims();
            self.written += 1;
            let end = Lsn(self.written);
            published.shape.lock().open_barrier(published.pending, &rows, end);
            self.holding.push(Arc::clone(&published.shape));
            for (route_id, entry) in others {
                self.check_claims();
                let other = &self.shapes[&u64::from(route_id.0)];
                other.lock().hold_until(end);
                other.lock().push(transaction.xid, entry, CHUNK);
                self.holding.push(Arc::clone(other));
            }
            self.check_claims();
            self.graph.published(published.shape.number);
            self.check_claims();
            self.carry_out(published.verdict);
            // While the database is idle, no message repeats its position.
            let verdict = self.graph.pass(None, self.processed + 1);
            self.carry_out(verdict);
        }
        if !self.slow_disk {
            self.sync();
        }
    }

    /// The disk is where the journal is.
    fn sync(&mut self) {
        for shape in std::mem::take(&mut self.holding) {
            shape.lock().release(Lsn(self.written), CHUNK);
            self.check_claims();
        }
    }

    /// Lets all pending rows and transactions arrive.
    fn settle(&mut self) {
        self.show();
        loop {
            self.publish();
            self.sync();
            if !self.wanted.is_empty() {
                self.ask(0);
            } else if !self.coming.is_empty() {
                self.arrive(0);
            } else if !self.apply() {
                // The stream is at its end, and says so.
                let verdict = self.graph.pass(None, u64::from(self.committed) * 10 + 5);
                self.processed = u64::from(self.committed) * 10 + 4;
                self.carry_out(verdict);
                self.publish();
                self.sync();
                if self.coming.is_empty() && self.wanted.is_empty() {
                    break;
                }
            }
        }
        assert!(!self.graph.is_listening() && self.graph.held().is_empty());
    }

    // ---- the clients' rows

    fn log(&self, follower: usize) -> Vec<u8> {
        self.log_from(follower, 0)
    }

    fn log_from(&self, follower: usize, entry: usize) -> Vec<u8> {
        let state = self.followers[follower].shape.lock();
        let entries = state.entries.iter().skip(entry);
        entries.flat_map(|entry| self.changes[entry.at as usize..][..entry.len as usize].to_vec()).collect()
    }

    fn client(&self, follower: usize) -> Client {
        let mut client = Client::default();
        client.take(&self.followers[follower].base);
        client.take(&self.log(follower));
        client
    }

    /// The messages of a log, shortened: operations with their keys, events with how many patterns they have.
    fn told(&self, follower: usize) -> Vec<String> {
        let message = |message: &[u8]| {
            let message: Value = serde_json::from_slice(message).unwrap();
            let headers = &message["headers"];
            match (headers["event"].as_str(), headers["control"].as_str()) {
                (Some(event), _) => format!("{event} {}", headers["patterns"].as_array().unwrap().len()),
                (_, Some(control)) => control.to_owned(),
                _ => format!("{} {}", headers["operation"].as_str().unwrap(), message["value"]["id"].as_str().unwrap()),
            }
        };
        split(&self.log(follower)).map(message).collect()
    }

    /// No client is told of an LSN beyond the end of the shape's log: if the shape's rows have been the same from there
    /// on, its clients have them.
    fn check_claims(&mut self) {
        for at in 0..self.followers.len() {
            let Follower { shape, table, condition, dropped, began, truths, .. } = &self.followers[at];
            // A shape is not shown before it is known that its rows are a state between two transactions.
            if *dropped || self.graph.is_grown(shape.number) != Some(true) {
                continue;
            }
            let told = shape.lock().complete(self.processed);
            let from = truths.last().map_or(0, |(lsn, _)| *lsn);
            let new = self.past.iter().filter(|(lsn, _)| *lsn > from).map(|(lsn, rows)| {
                let selected = rows[*table].iter().filter(|(_, row)| self.holds(rows, condition, &cells(row)));
                (*lsn, selected.map(|(key, row)| (*key, *row)).collect())
            });
            let (new, began): (Vec<(u64, Selected)>, u64) = (new.collect(), *began);
            let new_bytes = self.log_from(at, self.followers[at].read);
            let follower = &mut self.followers[at];
            follower.truths.extend(new);
            follower.read = follower.shape.lock().entries.iter().count();
            follower.reader.take(&new_bytes);
            let first = follower.truths.partition_point(|(lsn, _)| *lsn <= told);
            let Some((_, truth)) = first.checked_sub(1).map(|at| &follower.truths[at]) else { continue };
            // A client may be inside of a transaction that the shape does not claim to have yet.
            let ahead = follower.shape.lock().tail().lsn > told;
            if ahead || told < began || follower.truths[first..].iter().any(|(_, later)| later != truth) {
                continue;
            }
            let sql = follower.condition.sql();
            let (numbers, truth) = (follower.reader.numbers(&self.tables[follower.table]), truth.clone());
            assert_eq!(numbers, truth, "{sql} at {told} of {}: {:?}", self.processed, self.told(at));
        }
    }

    fn check(&self, follower: usize) {
        if self.followers[follower].dropped {
            return;
        }
        let client = self.client(follower);
        let sql = self.followers[follower].condition.sql();
        assert_eq!(client.keys(), self.truth(follower), "{sql}: {:?}", self.told(follower));
        let table = self.followers[follower].table;
        for row in client.rows.values() {
            let numbers = |name: &str| row.value[name].as_str().map(|text| text.parse::<i32>().unwrap());
            let names: Vec<&str> = self.tables[table].columns.iter().map(|column| column.name.as_str()).collect();
            let key = numbers(names[0]).unwrap();
            assert_eq!(names.iter().map(|name| numbers(name)).collect::<Vec<_>>(), self.rows[table][&key], "{sql}");
        }
        // A client that begins with merged rows has the same rows, for the same reasons.
        for parts in [1, 3] {
            let mut late = Client::default();
            late.take(&merged(&self.followers[follower].base, &self.log(follower), parts).unwrap());
            assert_eq!(late.rows, client.rows, "{sql}");
        }
    }
}

/// A client's handling of messages.
#[derive(Default)]
struct Client {
    rows: BTreeMap<String, Row>,
}

#[derive(Debug, PartialEq)]
struct Row {
    value: Map<String, Value>,
    tags: Vec<String>,
    active: Vec<bool>,
}

impl Client {
    fn keys(&self) -> BTreeSet<i32> {
        self.rows.values().map(|row| row.value["id"].as_str().unwrap().parse().unwrap()).collect()
    }

    fn numbers(&self, table: &Table) -> Selected {
        let rows = self.rows.values().map(|row| {
            let number = |at: usize| row.value[&*table.columns[at].name].as_str().map(|text| text.parse().unwrap());
            let numbers: Numbers = [number(0), number(1), number(2)];
            (numbers[0].unwrap(), numbers)
        });
        rows.collect()
    }

    fn take(&mut self, messages: &[u8]) {
        for message in split(messages) {
            self.message(&serde_json::from_slice(message).unwrap());
        }
    }

    fn message(&mut self, message: &Value) {
        let headers = &message["headers"];
        if let Some(event) = headers["event"].as_str() {
            for pattern in headers["patterns"].as_array().unwrap() {
                let (at, value) = (pattern["pos"].as_u64().unwrap() as usize, pattern["value"].as_str().unwrap());
                for row in self.rows.values_mut() {
                    if row.tags.iter().any(|tag| tag.split('/').nth(at) == Some(value)) {
                        row.active[at] = event == "move-in";
                    }
                }
            }
            if event == "move-out" {
                self.rows.retain(|_, row| row.stays());
            }
            return;
        }
        let Some(key) = message["key"].as_str() else { return };
        let list = |name: &str| headers[name].as_array().into_iter().flatten();
        let tags = list("tags").map(|tag| tag.as_str().unwrap().to_owned()).collect();
        let active = list("active_conditions").map(|on| on.as_bool().unwrap()).collect();
        let value = message["value"].as_object().unwrap().clone();
        match headers["operation"].as_str().unwrap() {
            "insert" => {
                let row = Row { value, tags, active };
                assert!(row.stays(), "a row comes without a reason: {message}");
                assert!(self.rows.insert(key.to_owned(), row).is_none(), "it is there already: {message}");
            }
            "update" => {
                let known = self.rows.get_mut(key).unwrap_or_else(|| panic!("it is not there: {message}"));
                for gone in list("removed_tags") {
                    assert!(known.tags.iter().any(|tag| tag == gone.as_str().unwrap()), "{message}");
                }
                known.value.extend(value);
                (known.tags, known.active) = (tags, active);
            }
            _ => assert!(self.rows.remove(key).is_some(), "it is not there: {message}"),
        }
    }
}

impl Row {
    fn stays(&self) -> bool {
        let route_ids =
            |tag: &String| tag.split('/').enumerate().all(|(at, route_id)| route_id.is_empty() || self.active[at]);
        self.tags.iter().any(route_ids)
    }
}

const T: usize = 0;
const P: usize = 1;
const Q: usize = 2;

/// Two rows of t ask for 1 and for 2; p has 1.
fn world() -> World {
    let mut world = World::new(false);
    world.write(P, 1, Some([Some(1), Some(1)]));
    world.write(T, 1, Some([Some(1), None]));
    world.write(T, 2, Some([Some(2), None]));
    world
}

const IN: &str = "a IN (SELECT v FROM p WHERE g = 1)";

#[test]
fn a_value_that_goes_is_told_at_once_and_one_that_comes_is_asked_for() {
    let mut world = world();
    let shape = world.follow(T, IN, Replica::Default);
    world.write(P, 1, Some([Some(1), Some(9)]));
    assert_eq!((world.told(shape), world.asks.len()), (vec!["move-out 1".to_owned()], 0));
    world.write(P, 2, Some([Some(2), Some(1)]));
    assert_eq!((world.told(shape).len(), world.asks.len()), (1, 1));
    let filter = world.asks[0].filter.clone().unwrap();
    assert!(filter.contains("ANY (ARRAY['2'::pg_catalog.int4])"), "{filter}");
    let complete = |world: &World| world.followers[shape].shape.lock().complete(10_000);
    assert_eq!(complete(&world), u64::from(world.committed) * 10 - 1, "it says that something is missing");
    world.arrive(0);
    assert_eq!(world.told(shape)[1..], ["move-in 1", "insert 2", "snapshot-end"]);
    assert_eq!(complete(&world), 10_000);
    world.check(shape);
}

#[test]
fn what_happens_to_rows_that_are_late_comes_after_them() {
    let mut world = world();
    let shape = world.follow(T, IN, Replica::Default);
    world.write(P, 2, Some([Some(2), Some(1)]));
    world.write(T, 2, Some([Some(2), Some(7)]));
    world.write(T, 3, Some([Some(1), None]));
    assert!(world.told(shape).is_empty() && !world.graph.held().is_empty());
    world.arrive(0);
    assert_eq!(world.told(shape), ["move-in 1", "insert 2", "snapshot-end", "update 2", "insert 3"]);
    world.check(shape);
}

#[test]
fn until_the_stream_is_where_the_rows_are_from_their_values_do_not_count() {
    let mut world = world();
    let shape = world.follow(T, IN, Replica::Default);
    let first = world.put(P, 2, Some([Some(2), Some(1)]));
    world.commit(vec![first]);
    let second = world.put(T, 2, Some([Some(2), Some(7)]));
    world.commit(vec![second]);
    world.apply();
    world.arrive(0);
    assert!(world.told(shape).is_empty(), "the rows have a transaction that was not applied yet");
    world.settle();
    assert_eq!(world.told(shape), ["move-in 1", "insert 2", "snapshot-end"]);
    world.check(shape);
}

#[test]
fn a_value_that_comes_and_goes_in_one_transaction_is_nobodys_business() {
    let mut world = world();
    let shape = world.follow(T, IN, Replica::Default);
    let row = |g| Some([Some(5), Some(2), Some(g)]);
    world.commit(vec![(P, None, row(1)), (P, row(1), row(0))]);
    world.apply();
    world.commit(vec![(P, Some([Some(1), Some(1), Some(1)]), None), (P, None, Some([Some(8), Some(1), Some(1)]))]);
    world.apply();
    assert_eq!((world.told(shape), world.asks.len()), (vec![], 0));
    world.check(shape);
}

#[test]
fn a_value_that_goes_before_its_rows_are_here_is_not_told() {
    let mut world = world();
    let shape = world.follow(T, IN, Replica::Default);
    let come = world.put(P, 2, Some([Some(2), Some(1)]));
    world.commit(vec![come]);
    let go = world.put(P, 2, None);
    world.commit(vec![go]);
    world.settle();
    assert!(world.told(shape).is_empty());
    world.check(shape);
}

#[test]
fn negation_turns_coming_and_going_around_and_nulls_end_it() {
    let mut world = world();
    let shape = world.follow(T, "a NOT IN (SELECT v FROM p WHERE g = 1)", Replica::Default);
    assert_eq!(world.client(shape).keys(), [2].into());
    world.write(P, 2, Some([Some(2), Some(1)]));
    assert_eq!(world.told(shape), ["move-out 1"]);
    world.write(P, 1, None);
    assert_eq!(world.asks.len(), 1);
    world.settle();
    assert_eq!(world.told(shape)[1..], ["move-in 1", "insert 1", "snapshot-end"]);
    world.check(shape);
    world.write(P, 3, Some([None, Some(1)]));
    assert_eq!(world.dropped, ["nulls came to the inner query of a NOT IN, or went".into()]);
    assert!(world.graph.is_empty(), "its inner query is nobody's any more");
}

#[test]
fn rows_that_have_a_later_transaction_and_not_an_earlier_one_are_read_anew() {
    // 12 is not in the snapshot, although 13 and 14 are, which commit after it.
    for (xip, dropped) in [(vec![12], 1), (vec![], 0)] {
        let mut world = world();
        world.committed = 11;
        let shape = world.follow(T, IN, Replica::Default);
        let number = world.followers[shape].shape.number;
        world.graph.nodes.get_mut(&number).unwrap().contained = Some(PgSnapshot { xmin: 12, xmax: 15, xip, lsn: 147 });
        world.graph.young.insert(number);
        for key in 20..23 {
            world.write(T, key, Some([None, None]));
        }
        assert_eq!((world.dropped.len(), world.graph.young.len()), (dropped, 1 - dropped));
        world.write(T, 23, Some([None, None]));
        assert!(world.graph.young.is_empty(), "nothing that the rows have comes any more");
    }
}

#[test]
fn beside_a_null_no_value_that_goes_is_a_reason_to_stay() {
    let mut world = world();
    world.write(Q, 1, Some([None, Some(1)]));
    world.write(Q, 2, Some([Some(1), Some(1)]));
    let shape = world.follow(T, &format!("{IN} OR a NOT IN (SELECT v FROM q)"), Replica::Default);
    world.write(Q, 2, None);
    world.settle();
    world.write(P, 1, None);
    assert_eq!(world.told(shape), ["move-out 1"]);
    world.check(shape);
}

#[test]
fn a_row_that_changes_its_key_goes_and_comes() {
    let mut world = world();
    let shape = world.follow(T, IN, Replica::Default);
    world.commit(vec![(T, Some([Some(1), Some(1), None]), Some([Some(4), Some(1), None]))]);
    world.apply();
    assert_eq!(world.told(shape), ["delete 1", "insert 4"]);
    // The same of a row that gives a value: no message follows.
    world.commit(vec![(P, Some([Some(1), Some(1), Some(1)]), Some([Some(9), Some(1), Some(1)]))]);
    world.apply();
    assert_eq!((world.told(shape).len(), world.asks.len()), (2, 0));
    world.check(shape);
}

#[test]
fn one_of_two_subqueries_can_go() {
    let mut world = world();
    world.write(Q, 1, Some([Some(1), Some(0)]));
    let both = world.follow(T, &format!("{IN} OR a IN (SELECT v FROM q)"), Replica::Default);
    let all = world.follow(T, &format!("{IN} AND a IN (SELECT v FROM q)"), Replica::Default);
    world.write(P, 1, None);
    assert_eq!((world.told(both), world.told(all)), (vec!["move-out 1".into()], vec!["move-out 1".into()]));
    assert_eq!((world.client(both).keys(), world.client(all).keys()), ([1].into(), [].into()));
    world.write(Q, 1, None);
    world.write(P, 1, Some([Some(1), Some(1)]));
    world.settle();
    for shape in [both, all] {
        world.check(shape);
    }
}

#[test]
fn shapes_that_ask_the_same_share_a_set_and_the_last_one_takes_it_with_it() {
    let mut world = world();
    let shapes = [IN, "b = 1 OR a IN (SELECT v FROM p WHERE g = 1)"].map(|sql| world.follow(T, sql, Replica::Default));
    assert_eq!(world.shapes.len(), 3);
    let shape = |world: &World, at: usize| Arc::clone(&world.followers[shapes[at]].shape);
    assert!(world.graph.remove(shape(&world, 0).number).is_empty(), "the set is asked for");
    let others = world.graph.remove(shape(&world, 1).number);
    assert_eq!(others.len(), 1);
    assert!(world.graph.remove(others[0].number).is_empty() && world.graph.is_empty());
    // A shape that asks for a set depends on it.
    world.follow(T, IN, Replica::Default);
    let (inner, _) = world.graph.inner(&identity(&query(&world, IN))).unwrap();
    assert_eq!(world.graph.remove(inner).len(), 1);
}

fn query(world: &World, sql: &str) -> Arc<Query> {
    let condition = predicate::condition(sql, &[], &world.tables[T], &world.tables).unwrap();
    let (_, membership) = condition.memberships().next().unwrap();
    Arc::clone(&membership.query)
}

#[test]
fn values_that_change_while_an_inner_shape_is_read_make_it_anew() {
    let mut world = world();
    let sql = "a IN (SELECT v FROM p WHERE g IN (SELECT v FROM q))";
    let query = query(&world, sql);
    let Filter::Nested(condition) = &query.filter else { panic!("it is nested") };
    let sets = world.sets(condition);
    let shape = world.shape();
    world.graph.insert(inner_node(&shape, RouteId(shape.number as u32), &world.tables[P], &query, sets, None));
    world.write(P, 5, Some([Some(1), Some(2)]));
    assert!(world.dropped.is_empty());
    world.write(Q, 1, Some([Some(2), None]));
    assert_eq!(world.dropped, ["began while the values that it asks for changed".into()]);
}

#[test]
fn what_is_written_while_an_inner_shape_is_read_is_in_its_log() {
    let mut world = world();
    let query = query(&world, IN);
    let shape = world.shape();
    world.graph.insert(inner_node(&shape, RouteId(shape.number as u32), &world.tables[P], &query, Vec::new(), None));
    let rows: Vec<Cells> = world.rows[P].values().map(cells).collect();
    world.write(P, 2, Some([Some(2), Some(1)]));
    world.write(P, 3, Some([Some(3), Some(9)]));
    world.write(P, 1, None);
    world.graph.loaded(shape.number, rows).unwrap();
    let entries = shape.lock().entries.iter().map(|entry| (entry.at as usize, entry.len as usize)).collect::<Vec<_>>();
    let told: Vec<u8> = entries.iter().flat_map(|(at, len)| world.changes[*at..at + len].to_vec()).collect();
    let operations = split(&told).map(|message| {
        let message: Value = serde_json::from_slice(message).unwrap();
        (message["headers"]["operation"].to_string(), message["value"]["id"].to_string())
    });
    let expected = [("\"insert\"", "\"2\""), ("\"delete\"", "\"1\"")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(operations.collect::<Vec<_>>(), expected, "a start has nothing else to go by");
    assert!(world.graph.inner(&identity(&query)).is_some());
}

#[test]
fn values_that_come_before_rows_are_asked_for_are_asked_for_together() {
    let mut world = world();
    world.eager = false;
    let shape = world.follow(T, IN, Replica::Default);
    for key in 2..6 {
        world.write(T, key, Some([Some(key), None]));
        world.write(P, key, Some([Some(key), Some(1)]));
    }
    world.write(P, 4, None);
    assert_eq!(world.wanted.len(), 1);
    world.ask(0);
    world.write(P, 4, Some([Some(4), Some(1)]));
    assert_eq!(world.wanted.len(), 1, "what was asked for is not added to");
    world.settle();
    let told = world.told(shape);
    assert_eq!((world.asks.len(), told.iter().filter(|message| message.starts_with("insert")).count()), (2, 4));
    world.check(shape);
}

#[test]
fn values_that_all_go_before_rows_are_asked_for_leave_nothing_to_ask() {
    let mut world = world();
    world.eager = false;
    let shape = world.follow(T, IN, Replica::Default);
    world.write(P, 2, Some([Some(2), Some(1)]));
    world.write(P, 2, None);
    world.settle();
    assert!(world.asks[0].filter.is_none() && world.told(shape).is_empty());
    world.check(shape);
}

/// 8 commits before 9 and becomes visible after it; rows of a snapshot in between have 9 and not 8.
fn disordered(world: &mut World) {
    let delete = world.put(T, 1, None);
    world.commit_hidden(vec![delete]);
    let other = [world.put(P, 9, Some([Some(2), Some(1)])), world.put(T, 2, None)];
    world.commit(other.to_vec());
}

#[test]
fn rows_that_came_are_told_when_the_stream_has_brought_all_that_they_may_have() {
    let mut world = world();
    world.eager = false;
    let shape = world.follow(T, IN, Replica::Default);
    world.write(P, 2, Some([Some(2), Some(1)]));
    disordered(&mut world);
    world.ask(0);
    world.apply();
    world.arrive(0);
    assert!(
        world.told(shape).is_empty(),
        "the rows are not told beside what was applied before a transaction that they have"
    );
    world.settle();
    assert!(world.followers[shape].dropped && world.told(shape).is_empty(), "{:?}", world.told(shape));
    assert!(world.dropped.contains(&"transactions became visible in another order".into()));
}

#[test]
fn a_shape_that_begins_between_transactions_out_of_order_is_not_shown() {
    let mut world = world();
    disordered(&mut world);
    let shape = world.follow(T, "a NOT IN (SELECT v FROM p WHERE g = 5)", Replica::Default);
    let number = world.followers[shape].shape.number;
    assert_eq!(world.graph.is_grown(number), Some(false));
    world.apply();
    assert_eq!(world.graph.is_grown(number), Some(false), "its log may be of another state than its rows");
    world.settle();
    assert!(world.followers[shape].dropped && world.graph.is_grown(number).is_none());
    let shape = world.follow(T, IN, Replica::Default);
    assert_eq!(world.graph.is_grown(world.followers[shape].shape.number), Some(true), "nothing is on its way");
}

#[test]
fn a_change_asks_those_shapes_only_that_it_may_concern() {
    let mut world = World::new(false);
    for owner in 0..200 {
        world.write(P, owner, Some([Some(1000 + owner), Some(owner)]));
    }
    for owner in 0..200 {
        world.follow(T, &format!("a IN (SELECT v FROM p WHERE g = {owner})"), Replica::Default);
    }
    world.graph.take_evaluations();
    let evaluated = |world: &mut World, table, row| {
        world.write(table, 500, row);
        world.graph.take_evaluations()
    };
    assert!(evaluated(&mut world, T, Some([Some(1007), None])) <= 2);
    assert_eq!(evaluated(&mut world, T, Some([Some(5), None])), 2 - 1, "it was one's row");
    assert_eq!(evaluated(&mut world, T, None), 0);
    assert!(evaluated(&mut world, P, Some([Some(1), Some(12)])) <= 2);
    world.settle();
    for follower in 0..200 {
        world.check(follower);
    }
    // A node without a lookup is evaluated each time.
    world.follow(T, "a NOT IN (SELECT v FROM p)", Replica::Default);
    assert_eq!(evaluated(&mut world, T, Some([Some(5), None])), 1);
}

/// A generator of numbers: the same for each seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn number(&mut self) -> Option<i32> {
        Some(self.below(6) as i32).filter(|n| *n < 5)
    }
}

const CONDITIONS: &[&str] = &[
    "a IN (SELECT v FROM p)",
    "a IN (SELECT v FROM p WHERE g = 1)",
    "a IN (SELECT v FROM p WHERE g = 2) AND b = 1",
    "a IN (SELECT v FROM p WHERE g = 2) AND b <> 1",
    "a NOT IN (SELECT v FROM p WHERE g = 3)",
    "a NOT IN (SELECT v FROM p WHERE g = 3) AND b = 2",
    "b = 1 OR a IN (SELECT v FROM p WHERE g = 1)",
    "b <> 1 OR a IN (SELECT v FROM p WHERE g = 1)",
    "a IN (SELECT v FROM p WHERE g = 1) AND b IN (SELECT v FROM q)",
    "a IN (SELECT v FROM p WHERE g = 1) OR b IN (SELECT v FROM q WHERE g > 2)",
    "a IN (SELECT v FROM p WHERE g = 1) OR b NOT IN (SELECT g FROM q WHERE v = 2)",
    "a IN (SELECT v FROM p WHERE g IN (SELECT v FROM q))",
    "a IN (SELECT v FROM p WHERE g IN (SELECT v FROM q WHERE g = 1) OR v = 2)",
    "a IN (SELECT v FROM p WHERE g IN (SELECT v FROM q WHERE g = 1) OR v IN (SELECT g FROM q))",
    "a IN (SELECT v FROM p WHERE g NOT IN (SELECT v FROM q WHERE g = 1) AND v < 4)",
    "a IN (SELECT v FROM p WHERE g IN (SELECT v FROM q WHERE g IN (SELECT a FROM t WHERE b = 2)))",
    "id IN (SELECT a FROM t WHERE b = 1)",
    "(a, b) IN (SELECT v, g FROM p)",
    "NOT (a IN (SELECT v FROM p WHERE g = 1) OR b = 2)",
    "(id NOT IN (SELECT id FROM p) OR a >= 3) AND (b = 1 AND id NOT IN (SELECT v FROM p WHERE g > 1))",
    "(a NOT IN (SELECT id FROM q) OR b >= 2) AND (b < 4 AND a NOT IN (SELECT v FROM q WHERE g > 1))",
    "a NOT IN (SELECT id FROM p) AND a NOT IN (SELECT g FROM q WHERE v = 1)",
    "(a IN (SELECT v FROM p) OR b = 1) AND (b IN (SELECT g FROM p) OR a = 2)",
    "a NOT IN (SELECT v FROM p WHERE v >= 0 AND g IN (SELECT v FROM q))",
];

/// The result of a history.
struct History {
    /// The messages of each follower.
    told: Vec<Vec<String>>,
    /// No shape was dropped because its first rows have a transaction, and not another that committed before. Until the
    /// later one comes, such a shape sees changes that its index does not find by sets that are older than its rows.
    is_ordered: bool,
    evaluations: u64,
}

/// Runs one history. In every other one rows are requested at random times, clients begin while changes are pending,
/// and some transactions become visible late.
fn history(seed: u64, one_by_one: bool) -> History {
    let mut random = Random(seed);
    let mut world = World::new(one_by_one);
    let calm = seed.is_multiple_of(2);
    for key in 0..8 {
        for table in [T, P, Q] {
            let row = [random.number(), random.number()];
            world.write(table, key, Some(row));
        }
    }
    for _ in 0..6 {
        let sql = CONDITIONS[random.below(CONDITIONS.len())];
        world.follow(T, sql, if random.below(3) == 0 { Replica::Full } else { Replica::Default });
    }
    world.graph.take_evaluations();
    (world.eager, world.slow_disk) = (calm, !calm);
    for _ in 0..if calm { 60 } else { 120 } {
        match random.below(if calm { 5 } else { 9 }) {
            5 if !world.wanted.is_empty() => world.ask(random.below(world.wanted.len())),
            6 => world.show(),
            7 => {
                let sql = CONDITIONS[random.below(CONDITIONS.len())];
                if world.followers.len() < 12 && world.may_follow(T, sql) {
                    world.follow(T, sql, Replica::Default);
                }
            }
            8 => drop(world.apply()),
            0..=2 => {
                let mut writes: Vec<Write> = Vec::new();
                let mut now = world.rows.clone();
                let hidden: BTreeSet<(usize, i32)> = world.hidden.iter().flat_map(Written::touched).collect();
                for _ in 0..=random.below(4) {
                    let (table, key) = (random.below(3), random.below(10) as i32);
                    let old = now[table].get(&key).copied();
                    // Sometimes a row gets another key.
                    let to = if random.below(8) == 0 { 10 + random.below(5) as i32 } else { key };
                    let comes = old.is_none() || random.below(4) > 0;
                    let new = (comes && (to == key || !now[table].contains_key(&to)))
                        .then(|| [Some(to), random.number(), random.number()]);
                    // Rows that a transaction has written are locked until it is visible.
                    let locked = hidden.contains(&(table, key)) || hidden.contains(&(table, to));
                    if locked || old.is_none() && new.is_none() {
                        continue;
                    }
                    now[table].remove(&key);
                    new.map(|new| now[table].insert(to, new));
                    writes.push((table, old, new));
                }
                if !calm && world.hidden.is_none() && random.below(4) == 0 {
                    world.commit_hidden(writes);
                } else {
                    world.commit(writes);
                }
            }
            3 => drop(world.apply()),
            _ if !world.coming.is_empty() => world.arrive(random.below(world.coming.len())),
            _ => {}
        }
        if random.below(3) == 0 {
            world.sync();
        }
        if random.below(12) == 0 {
            world.settle();
            (0..world.followers.len()).for_each(|follower| world.check(follower));
        }
    }
    world.settle();
    (0..world.followers.len()).for_each(|follower| world.check(follower));
    let told = (0..world.followers.len()).map(|follower| {
        let log = world.log(follower);
        split(&log).map(|message| String::from_utf8_lossy(message).into_owned()).collect()
    });
    let told = told.collect();
    let is_ordered = !world.dropped.contains(&Ended::Because(ANOTHER_ORDER));
    History { told, is_ordered, evaluations: world.graph.take_evaluations() }
}

#[test]
fn a_row_of_an_inner_query_that_comes_twice_before_it_is_here_counts_once() {
    for arrived in [[0, 0], [1, 0]] {
        let mut world = World::new(false);
        world.write(T, 1, Some([Some(1), None]));
        world.write(P, 1, Some([Some(1), Some(2)]));
        let shape = world.follow(T, "a IN (SELECT v FROM p WHERE g IN (SELECT v FROM q))", Replica::Default);
        world.write(Q, 1, Some([Some(2), None]));
        world.write(Q, 1, None);
        world.write(Q, 1, Some([Some(2), None]));
        world.write(T, 9, Some([None, None]));
        assert_eq!(world.coming.len(), 2, "the row of p is asked for twice");
        arrived.into_iter().for_each(|at| world.arrive(at));
        world.settle();
        world.check(shape);
        world.write(P, 1, Some([Some(5), Some(2)]));
        world.settle();
        world.check(shape);
    }
}

#[test]
fn no_lsn_is_claimed_before_rows_of_rows_that_came_are_shown() {
    let mut world = World::new(false);
    world.slow_disk = true;
    world.write(T, 1, Some([Some(1), None]));
    world.write(P, 1, Some([Some(1), Some(2)]));
    let shape = world.follow(T, "a IN (SELECT v FROM p WHERE g IN (SELECT v FROM q))", Replica::Default);
    let complete = |world: &World| world.followers[shape].shape.lock().complete(10_000);
    world.write(Q, 1, Some([Some(2), None]));
    let before = u64::from(world.committed) * 10 - 1;
    world.write(T, 9, Some([None, None]));
    assert_eq!(complete(&world), before, "rows of p come");
    world.arrive(0);
    assert_eq!((complete(&world), world.coming.len()), (before, 1), "rows of t come because of them");
    world.arrive(0);
    assert_eq!((complete(&world), world.told(shape).len()), (before, 0), "they are not on the disk yet");
    world.sync();
    assert_eq!((complete(&world), world.told(shape).len()), (10_000, 3));
    world.write(Q, 1, None);
    world.write(Q, 1, Some([Some(3), None]));
    world.write(P, 1, Some([Some(1), Some(3)]));
    world.settle();
    world.check(shape);
}

#[test]
fn simulation_of_subqueries_tells_found_shapes_what_asking_all_shapes_would_tell() {
    let (mut found, mut asked, mut compared) = (0, 0, 0);
    for seed in thalweg_sim::seeds(40) {
        let run = |one_by_one| {
            let outcome = std::panic::catch_unwind(|| history(seed, one_by_one));
            outcome.unwrap_or_else(|_| panic!("seed {seed}, one by one: {one_by_one}"))
        };
        let (some, all) = (run(false), run(true));
        if some.is_ordered && all.is_ordered {
            assert_eq!(some.told, all.told, "seed {seed}");
            compared += 1;
        }
        (found, asked) = (found + some.evaluations, asked + all.evaluations);
    }
    assert!(found < asked, "{found} of {asked}");
    println!("{compared} histories were compared");
}
