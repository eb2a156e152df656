//! A private Postgres with one table of every type.

use crate::generate::Generator;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use thalweg_filter::{Column, Schema};
use thalweg_pgtest::{Cluster, Installation, Options, installations};

pub(crate) struct Server {
    cluster: Cluster,
    /// Of any version: some installations have none.
    psql: PathBuf,
}

/// Rows that a clause selects.
pub(crate) enum Answer {
    /// By row: `t`, `f` (also for null) or `E`.
    Rows(String),
    /// It is no clause at all.
    Refused(String),
}

/// Name, type and the values that rows have.
pub(crate) const COLUMNS: &[(&str, &str)] = &[
    ("id", "integer"),
    ("b", "boolean"),
    ("i2", "smallint"),
    ("i4", "integer"),
    ("i8", "bigint"),
    ("f4", "real"),
    ("f8", "double precision"),
    ("n", "numeric"),
    ("t", "text"),
    ("t2", "text"),
    ("v", "varchar(30)"),
    ("c", "char(6)"),
    ("nm", "name"),
    ("u", "uuid"),
    ("by", "bytea"),
    ("d", "date"),
    ("tm", "time"),
    ("ts", "timestamp"),
    ("tz", "timestamptz"),
    ("iv", "interval"),
    ("e", "mood"),
    ("ia", "integer[]"),
    ("ta", "text[]"),
    ("na", "numeric[]"),
    ("ea", "mood[]"),
    ("j", "jsonb"),
];

/// Runs a clause on all rows at once, or, if that fails, on each.
const CHECK: &str = r"
CREATE FUNCTION judge(clause text) RETURNS text LANGUAGE plpgsql AS $f$
DECLARE out text := ''; one text; row_id int;
BEGIN
  BEGIN
    EXECUTE 'SELECT string_agg(CASE WHEN (' || clause || E'\n) THEN ''t'' ELSE ''f'' END, '''' ORDER BY id) FROM t' INTO out;
    RETURN out;
  EXCEPTION
    WHEN syntax_error_or_access_rule_violation THEN RETURN 'R' || SQLERRM;
    WHEN OTHERS THEN NULL;
  END;
  FOR row_id IN SELECT id FROM t ORDER BY id LOOP
    BEGIN
      EXECUTE 'SELECT CASE WHEN (' || clause || E'\n) THEN ''t'' ELSE ''f'' END FROM t WHERE id = $1' INTO one USING row_id;
      out := coalesce(out, '') || one;
    EXCEPTION WHEN OTHERS THEN out := coalesce(out, '') || 'E';
    END;
  END LOOP;
  RETURN out;
END $f$;
";

impl Server {
    /// One cluster of each installed version; `installations` prints a message if there are none.
    pub(crate) fn start_all() -> Vec<Self> {
        let all: Vec<Installation> = installations();
        if all.is_empty() {
            println!("skipped: no Postgres is installed");
        }
        let psql = all.iter().map(|installation| installation.bin.join("psql")).find(|psql| psql.exists());
        let Some(psql) = psql else {
            println!("skipped: no psql is installed");
            return Vec::new();
        };
        all.iter().map(|installation| Self::start(installation, psql.clone())).collect()
    }

    fn start(installation: &Installation, psql: PathBuf) -> Self {
        let cluster =
            Cluster::start(installation, &Options::default().set("TimeZone", "UTC").set("IntervalStyle", "iso_8601"));
        let server = Self { cluster, psql };
        // Letters beyond ASCII have cases, as in most databases; order is by bytes.
        server.run_in("postgres", "CREATE DATABASE filter TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'");
        server
    }

    pub(crate) fn major(&self) -> u32 {
        self.cluster.major()
    }

    fn run_in(&self, database: &str, script: &str) -> String {
        let mut command = Command::new(&self.psql);
        command.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-f", "-"]).arg(self.cluster.url(database));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let script = script.to_owned();
        let writer = std::thread::spawn(move || stdin.write_all(script.as_bytes()).unwrap());
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        assert!(output.status.success(), "psql: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn run(&self, script: &str) -> String {
        self.run_in("filter", script)
    }

    /// Fills the table with random rows; returns their texts.
    pub(crate) fn fill(&self, generator: &mut Generator, count: usize) -> Vec<Vec<Option<String>>> {
        let columns: Vec<String> = COLUMNS.iter().map(|(name, ty)| format!("{name} {ty}")).collect();
        let mut script = format!(
            "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy', 'a b');\nCREATE TABLE t ({});\n{CHECK}",
            columns.join(", ")
        );
        for id in 0..count {
            let values: Vec<String> = COLUMNS[1..].iter().map(|(_, ty)| generator.value(ty)).collect();
            script.push_str(&format!("INSERT INTO t VALUES ({id}, {});\n", values.join(", ")));
        }
        self.run(&script);
        let text = self.run("SET bytea_output = hex; COPY (SELECT * FROM t ORDER BY id) TO STDOUT");
        text.lines().map(|line| line.split('\t').map(unescape).collect()).collect()
    }

    pub(crate) fn schema(&self) -> Schema {
        let text = self.run(
            "SELECT attname, atttypid, CASE WHEN typcategory = 'A' THEN typelem ELSE 0 END, coalesce((SELECT string_agg(enumlabel, ';' ORDER BY enumsortorder)
             FROM pg_enum WHERE enumtypid IN (atttypid, typelem)), ''), (SELECT format('%I.%I', nspname, e.typname) FROM pg_type e
             JOIN pg_namespace n ON n.oid = e.typnamespace WHERE e.oid IN (atttypid, y.typelem) AND e.typtype = 'e') FROM pg_attribute JOIN pg_type y ON y.oid = atttypid
             WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum",
        );
        let column = |line: &str| {
            let parts: Vec<&str> = line.split('|').collect();
            Column {
                name: parts[0].into(),
                type_oid: parts[1].parse().unwrap(),
                element_oid: parts[2].parse().unwrap(),
                labels: parts[3].split(';').filter(|label| !label.is_empty()).map(str::to_owned).collect(),
                type_sql: parts[4].into(),
            }
        };
        Schema::new("t", text.lines().map(column).collect())
    }

    pub(crate) fn ask(&self, clauses: &[String]) -> Vec<Answer> {
        let mut script = String::new();
        for clause in clauses {
            script.push_str(&format!("SELECT replace(judge($clause${clause}$clause$), E'\\n', ' ');\n"));
        }
        let text = self.run(&script);
        let answers: Vec<Answer> = text
            .lines()
            .map(|line| match line.strip_prefix('R') {
                Some(message) => Answer::Refused(message.to_owned()),
                None => Answer::Rows(line.to_owned()),
            })
            .collect();
        assert_eq!(answers.len(), clauses.len());
        answers
    }
}

/// A value of `COPY … TO`.
fn unescape(text: &str) -> Option<String> {
    if text == "\\N" {
        return None;
    }
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => out.push(match chars.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('b') => '\x08',
                Some('f') => '\x0c',
                Some('v') => '\x0b',
                Some(other) => other,
                None => '\\',
            }),
            char => out.push(char),
        }
    }
    Some(out)
}
