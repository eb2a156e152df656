//! A client of one shape: follows the protocol, keeps the rows, and notes everything that no client should ever see.

use crate::clause::Clause;
use crate::damage::Damage;
use crate::report::Report;
use crate::schema::Table;
use crate::tags::Tags;
use anyhow::{Context, anyhow};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) type Row = BTreeMap<String, Option<String>>;

/// The definition of a shape.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) table: usize,
    /// The table as a parameter and as SQL.
    pub(crate) name: String,
    pub(crate) clause: Option<Clause>,
    /// Names of the chosen columns; all if none.
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) full: bool,
    pub(crate) changes_only: bool,
}

impl Definition {
    pub(crate) fn has_subquery(&self) -> bool {
        self.clause.as_ref().is_some_and(|c| c.has_subquery)
    }

    pub(crate) fn query(&self) -> Vec<(String, String)> {
        let mut query = vec![("table".to_owned(), self.name.clone())];
        if let Some(clause) = &self.clause {
            query.push(("where".into(), clause.text.clone()));
            for (at, value) in clause.params.iter().enumerate() {
                query.push((format!("params[{}]", at + 1), value.clone()));
            }
        }
        if let Some(columns) = &self.columns {
            let names: Vec<String> = columns.iter().map(|name| crate::schema::identifier(name)).collect();
            query.push(("columns".into(), names.join(",")));
        }
        if self.full {
            query.push(("replica".into(), "full".into()));
        }
        if self.changes_only {
            query.push(("log".into(), "changes_only".into()));
        }
        query
    }

    pub(crate) fn describe(&self) -> String {
        let query: Vec<String> = self.query().into_iter().map(|(k, v)| format!("{k}={v}")).collect();
        query.join(" & ")
    }
}

/// Where requests go.
pub(crate) struct Http {
    agent: ureq::Agent,
    base: String,
    /// The server or Postgres is being maltreated: errors mean nothing.
    pub(crate) troubled: AtomicBool,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: BTreeMap<String, String>,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

impl Http {
    pub(crate) fn new(base: String) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(30)))
            .max_idle_connections_per_host(100)
            .build();
        Self { agent: config.into(), base, troubled: AtomicBool::new(false) }
    }

    pub(crate) fn get(&self, path: &str, query: &[(String, String)]) -> anyhow::Result<Answer> {
        let mut request = self.agent.get(format!("{}{path}", self.base));
        for (name, value) in query {
            request = request.query(name, value);
        }
        let mut response = request.call()?;
        let headers = response
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect();
        let text = response.body_mut().with_config().limit(1 << 30).read_to_string()?;
        Ok(Answer { status: response.status().as_u16(), headers, text })
    }
}

/// The outcome of one request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Messages were taken in.
    Read,
    /// The shape is gone; the client starts over.
    Refetch,
    /// The server does not take this definition.
    Refused(String),
    /// No answer, or one that says to come again.
    Down(String),
}

/// Which transactions a snapshot of Postgres has.
struct Visible {
    xmin: u64,
    xmax: u64,
    running: BTreeSet<u64>,
}

impl Visible {
    fn read(metadata: &Value) -> anyhow::Result<Self> {
        let number = |value: &Value| value.as_str().and_then(|s| s.parse().ok());
        Ok(Self {
            xmin: number(&metadata["xmin"]).context("xmin")?,
            xmax: number(&metadata["xmax"]).context("xmax")?,
            running: metadata["xip_list"].as_array().context("xip_list")?.iter().filter_map(number).collect(),
        })
    }

    fn sees(&self, xid: u64) -> bool {
        xid < self.xmin || (xid < self.xmax && !self.running.contains(&xid))
    }
}

pub(crate) struct Client {
    pub(crate) definition: Arc<Definition>,
    table: Arc<Table>,
    report: Arc<Report>,
    pub(crate) handle: Option<String>,
    pub(crate) offset: String,
    cursor: Option<String>,
    pub(crate) up_to_date: bool,
    /// The newest `global_last_seen_lsn`.
    pub(crate) lsn: u64,
    pub(crate) rows: BTreeMap<String, Row>,
    tags: Tags,
    /// For `log=changes_only`: the subset that the rows began with.
    base: Option<Visible>,
    pub(crate) refetches: u64,
    pub(crate) damage: Option<Damage>,
    /// The newest messages, to tell a story with.
    history: VecDeque<String>,
    complaints: u32,
}

impl Client {
    pub(crate) fn new(definition: &Arc<Definition>, table: &Arc<Table>, report: &Arc<Report>) -> Self {
        Self {
            definition: definition.clone(),
            table: table.clone(),
            report: report.clone(),
            handle: None,
            offset: "-1".into(),
            cursor: None,
            up_to_date: false,
            lsn: 0,
            rows: BTreeMap::new(),
            tags: Tags::default(),
            base: None,
            refetches: 0,
            damage: None,
            history: VecDeque::new(),
            complaints: 0,
        }
    }

    fn start_over(&mut self) {
        self.handle = None;
        self.offset = "-1".into();
        self.cursor = None;
        self.up_to_date = false;
        self.lsn = 0;
        self.rows.clear();
        self.tags = Tags::default();
        self.base = None;
        self.note("--- starts over".into());
    }

    fn note(&mut self, line: String) {
        if self.history.len() >= 3000 {
            self.history.pop_front();
        }
        self.history.push_back(line);
    }

    fn complain(&mut self, what: &str) {
        self.complaints += 1;
        // Failures after the first are mostly its consequences.
        if self.complaints == 1 {
            let at = format!("handle {} offset {}", self.handle.as_deref().unwrap_or("-"), self.offset);
            self.report.violation(format!("{what}\n    shape: {}\n    {at}", self.definition.describe()));
        } else {
            self.report.count("further complaints");
        }
    }

    /// The newest messages that name a key, and every control message among them.
    pub(crate) fn story(&self, key: &str, lines: usize) -> String {
        let of: Vec<&String> = self
            .history
            .iter()
            .filter(|line| line.contains(key) || line.starts_with("---") || line.contains("\"event\""))
            .collect();
        of.iter().skip(of.len().saturating_sub(lines)).map(|line| format!("      {line}\n")).collect()
    }

    /// Whether the rows are those of [`Self::lsn`].
    pub(crate) fn is_settled(&self) -> bool {
        self.up_to_date && (self.base.is_some() || !self.definition.changes_only)
    }

    /// One request from here on.
    pub(crate) fn step(&mut self, http: &Http, live: bool) -> Step {
        let live = live && self.up_to_date;
        let mut query = self.definition.query();
        query.push(("offset".into(), self.offset.clone()));
        if let Some(handle) = &self.handle {
            query.push(("handle".into(), handle.clone()));
        }
        if live {
            query.push(("live".into(), "true".into()));
            if let Some(cursor) = &self.cursor {
                query.push(("cursor".into(), cursor.clone()));
            }
        }
        let answer = match http.get("/v1/shape", &query) {
            Ok(answer) => answer,
            Err(error) => return Step::Down(error.to_string()),
        };
        match answer.status {
            200 => match self.take(&answer, live, http.troubled.load(Ordering::Relaxed)) {
                Ok(()) => self.begin(http),
                Err(error) => {
                    let end: String =
                        answer.text.chars().rev().take(300).collect::<Vec<_>>().into_iter().rev().collect();
                    self.complain(&format!(
                        "an answer that cannot be: {error:#}\n    {}\n    … {end}",
                        clip(&answer.text)
                    ));
                    Step::Down("bad answer".into())
                }
            },
            409 => self.refetch(&answer),
            status if self.handle.is_none() && (400..500).contains(&status) => Step::Refused(answer.text),
            503 => Step::Down(answer.text),
            400 if answer.text.contains("out of bounds") => {
                self.complain("the server does not know an offset that it gave");
                self.start_over();
                Step::Refetch
            }
            status if status >= 500 => {
                if !http.troubled.load(Ordering::Relaxed) {
                    self.complain(&format!("the server fails: {status} {}", clip(&answer.text)));
                }
                Step::Down(answer.text)
            }
            status => {
                self.complain(&format!("{status} {} for a shape that was there", clip(&answer.text)));
                self.start_over();
                Step::Refetch
            }
        }
    }

    fn refetch(&mut self, answer: &Answer) -> Step {
        let expected: Value = serde_json::json!([{"headers": {"control": "must-refetch"}}]);
        if serde_json::from_str::<Value>(&answer.text).ok() != Some(expected) {
            self.complain(&format!("the body of a 409: {}", clip(&answer.text)));
        }
        if self.handle.is_some() && self.handle.as_deref() == answer.header("electric-handle") {
            self.complain("a 409 that leads to the handle that it refuses");
        }
        self.start_over();
        self.refetches += 1;
        self.report.count("refetches");
        Step::Refetch
    }

    fn take(&mut self, answer: &Answer, live: bool, troubled: bool) -> anyhow::Result<()> {
        let header = |name: &str| answer.header(name).map(str::to_owned).ok_or_else(|| anyhow!("no header {name}"));
        let handle = header("electric-handle")?;
        let offset = header("electric-offset")?;
        if live {
            self.cursor = Some(header("electric-cursor")?);
        } else {
            header("electric-schema")?;
        }
        if self.handle.as_ref().is_some_and(|known| *known != handle) {
            anyhow::bail!("the handle changes to {handle} without a 409");
        }
        if order(&offset) < order(&self.offset) {
            anyhow::bail!("the offset goes back to {offset}");
        }
        let mut messages: Vec<Value> = serde_json::from_str(&answer.text)?;
        let last = messages.last().map_or("", |m| m["headers"]["control"].as_str().unwrap_or("")).to_owned();
        let up_to_date = answer.header("electric-up-to-date").is_some();
        if up_to_date != (last == "up-to-date") {
            let there = if up_to_date { "there" } else { "missing" };
            anyhow::bail!("the header electric-up-to-date is {there}, but the last message is {last:?} (live {live})");
        }
        if offset == self.offset && !up_to_date {
            anyhow::bail!("no progress and not up to date");
        }
        if self.damage.is_some_and(|damage| damage.spoil(&mut messages)) {
            self.report.count("damages");
            self.damage = None;
        }
        self.handle = Some(handle);
        self.offset = offset;
        self.up_to_date = up_to_date;
        for message in &messages {
            self.message(message, troubled);
        }
        Ok(())
    }

    fn message(&mut self, message: &Value, troubled: bool) {
        let headers = &message["headers"];
        match (headers["control"].as_str(), headers["event"].as_str()) {
            (Some("up-to-date"), _) => {
                let lsn = headers["global_last_seen_lsn"].as_str().and_then(|lsn| lsn.parse().ok());
                match lsn {
                    Some(lsn) if lsn >= self.lsn => self.lsn = lsn,
                    // A server that starts again may be behind what it had read, but not behind what it had sent.
                    Some(lsn) if troubled => {
                        self.report.count("LSN goes back after trouble");
                        self.lsn = lsn;
                    }
                    Some(lsn) => self.complain(&format!("global_last_seen_lsn goes back from {} to {lsn}", self.lsn)),
                    None => self.complain("up-to-date without global_last_seen_lsn"),
                }
                return;
            }
            (Some(_), _) => return,
            (None, Some(_)) => {
                self.note(clip(&message.to_string()));
                for key in self.tags.event(headers) {
                    self.rows.remove(&key);
                }
                return;
            }
            (None, None) => {}
        }
        self.note(clip(&message.to_string()));
        let Some(key) = message["key"].as_str() else {
            self.complain(&format!("a message of no kind: {}", clip(&message.to_string())));
            return;
        };
        if let Some(base) = &self.base {
            let mut xids = headers["txids"].as_array().into_iter().flatten().filter_map(Value::as_u64).peekable();
            if xids.peek().is_some() && xids.all(|xid| base.sees(xid)) {
                return;
            }
        } else if self.definition.changes_only {
            return;
        }
        let lenient = self.definition.has_subquery();
        match headers["operation"].as_str() {
            Some("insert") => {
                let row = read_row(&message["value"]);
                if self.rows.contains_key(key) && !lenient {
                    self.complain(&format!("{key} is inserted twice: {}", clip(&message.to_string())));
                }
                self.check_key(key, &row);
                self.rows.insert(key.to_owned(), row);
                self.tags.row(key, headers, true);
            }
            Some("update") => {
                let change = read_row(&message["value"]);
                match self.rows.get_mut(key) {
                    Some(row) => {
                        row.extend(change);
                        self.tags.row(key, headers, false);
                    }
                    None => {
                        if lenient {
                            self.report.count("updates of absent rows beside sub-queries");
                        } else {
                            self.complain(&format!("{key} is updated but not there: {}", clip(&message.to_string())));
                        }
                    }
                }
            }
            Some("delete") => {
                self.tags.forget(key);
                if self.rows.remove(key).is_none() && !lenient {
                    self.complain(&format!("{key} is deleted but not there: {}", clip(&message.to_string())));
                }
            }
            _ => self.complain(&format!("a message of no kind: {}", clip(&message.to_string()))),
        }
    }

    /// A row's key is made of its table and its key columns.
    fn check_key(&mut self, key: &str, row: &Row) {
        if self.table.key.is_empty() {
            return;
        }
        let part = |text: &str| text.replace('/', "//").replace('.', "..");
        let mut expected = format!("\"public\".\"{}\"", part(&self.table.name));
        for at in &self.table.key {
            match row.get(&self.table.columns[*at].name).cloned().flatten() {
                Some(value) => expected += &format!("/\"{}\"", value.replace('/', "//")),
                None => expected += "/_",
            }
        }
        if key != expected {
            self.complain(&format!("the key {key} should be {expected}"));
        }
    }

    /// With `log=changes_only` the rows begin with a subset, asked for once.
    fn begin(&mut self, http: &Http) -> Step {
        if !self.definition.changes_only || self.base.is_some() || !self.up_to_date {
            return Step::Read;
        }
        let mut query = self.definition.query();
        query.push(("offset".into(), self.offset.clone()));
        query.push(("handle".into(), self.handle.clone().unwrap_or_default()));
        query.push(("subset__where".into(), "true".into()));
        let answer = match http.get("/v1/shape", &query) {
            Ok(answer) => answer,
            Err(error) => return Step::Down(error.to_string()),
        };
        match answer.status {
            200 => match read_subset(&answer) {
                Ok((visible, rows)) => {
                    self.note(format!("--- subset of {} rows: {}", rows.len(), clip(&answer.text)));
                    self.rows = rows.into_iter().collect();
                    self.base = Some(visible);
                    Step::Read
                }
                Err(error) => {
                    self.complain(&format!("a subset that cannot be: {error:#}"));
                    Step::Down("bad subset".into())
                }
            },
            409 => self.refetch(&answer),
            status => {
                if status != 503 && !http.troubled.load(Ordering::Relaxed) {
                    self.complain(&format!("a subset of a shape that is there: {status} {}", clip(&answer.text)));
                }
                Step::Down(answer.text)
            }
        }
    }
}

/// The snapshot and the rows, in order, of a subset's answer.
fn read_subset(answer: &Answer) -> anyhow::Result<(Visible, Vec<(String, Row)>)> {
    let body: Value = serde_json::from_str(&answer.text)?;
    let mut rows = Vec::new();
    for message in body["data"].as_array().context("data")? {
        if message["headers"]["snapshot_mark"] != body["metadata"]["snapshot_mark"] {
            anyhow::bail!("a row has not the mark of its snapshot");
        }
        rows.push((message["key"].as_str().context("key")?.to_owned(), read_row(&message["value"])));
    }
    Ok((Visible::read(&body["metadata"])?, rows))
}

/// Rows of a subset, in order.
pub(crate) fn subset_rows(answer: &Answer) -> anyhow::Result<Vec<Row>> {
    Ok(read_subset(answer)?.1.into_iter().map(|(_, row)| row).collect())
}

fn read_row(value: &Value) -> Row {
    value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value.as_str().map(str::to_owned)))
        .collect()
}

/// Offsets in their order: -1, then `tx_op`, where op may be `inf`.
fn order(offset: &str) -> (i128, i128) {
    let (tx, op) = offset.split_once('_').unwrap_or((offset, "0"));
    (tx.parse().unwrap_or(-1), if op == "inf" { i128::MAX } else { op.parse().unwrap_or(-1) })
}

/// A row for display: long values are cut.
pub(crate) fn brief(row: &str) -> String {
    let words = row.split(' ').map(|word| match word.char_indices().nth(60) {
        Some((at, _)) => format!("{}…({} bytes)", &word[..at], word.len()),
        None => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

pub(crate) fn clip(text: &str) -> String {
    if text.len() <= 400 { text.to_owned() } else { format!("{}…", text.chars().take(400).collect::<String>()) }
}
