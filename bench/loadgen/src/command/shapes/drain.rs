//! Replication throughput: a backlog is committed first, and the clock stops when its end is safe at the server.
//!
//! While the backlog is written, a signal stops the walsender of the server's slot, so that nothing is decoded early.
//! The measured time is then that of walsender and server together, as with pg_recvlogical.

use super::{Memory, spent};
use crate::cli::Target;
use crate::cost::Meter;
use crate::pg::{Pg, Url};
use anyhow::{Context, bail};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

/// Transactions that are committed as fast as they can be.
#[derive(Args, Clone)]
pub(crate) struct Backlog {
    /// The database, as postgres://USER@HOST:PORT/DATABASE.
    #[arg(long)]
    pg: Url,
    /// One transaction, as statements of PL/pgSQL in which `i` is its number.
    #[arg(long)]
    sql: String,
    #[arg(long, default_value_t = 100_000)]
    pub(super) transactions: u64,
    /// Rows of each.
    #[arg(long, default_value_t = 1)]
    pub(super) rows: u64,
    /// The server's replication slot, if the cluster has several.
    #[arg(long, default_value = "%")]
    slot: String,
}

impl Backlog {
    pub(super) fn connect(&self) -> anyhow::Result<Pg> {
        Pg::connect(&self.pg)
    }

    /// Commits all of it and makes it durable; the position behind it.
    pub(super) fn write(&self, pg: &mut Pg) -> anyhow::Result<String> {
        pg.query("SET synchronous_commit = off")?;
        pg.query(&format!(
            "DO $$ BEGIN FOR i IN 1..{} LOOP {}; COMMIT; END LOOP; END $$",
            self.transactions, self.sql
        ))?;
        pg.query("SET synchronous_commit = on")?;
        let position = pg.value("SELECT pg_current_wal_insert_lsn()")?.context("no position")?;
        // A change that Postgres flushes, and with it all earlier ones.
        pg.query("CREATE TEMP TABLE IF NOT EXISTS flushed (); DROP TABLE flushed")?;
        Ok(position)
    }
}

const PATIENCE: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(5);

pub(super) fn drain(target: &Target, backlog: &Backlog) -> anyhow::Result<()> {
    let mut pg = backlog.connect()?;
    let slots = pg.query(&format!(
        "SELECT slot_name, active_pid FROM pg_replication_slots WHERE active AND slot_name LIKE '{}'",
        backlog.slot
    ))?;
    let [row] = &slots[..] else { bail!("{} slots are active, not one: {slots:?}", slots.len()) };
    let [Some(slot), Some(walsender)] = &row[..] else { bail!("no walsender") };
    let walsender: u32 = walsender.parse()?;
    let (written, position) = {
        let _stopped = Stopped::stop(walsender)?;
        let began = Instant::now();
        let position = backlog.write(&mut pg)?;
        (began.elapsed().as_secs_f64(), position)
    };
    let covered =
        format!("SELECT confirmed_flush_lsn >= '{position}' FROM pg_replication_slots WHERE slot_name = '{slot}'");
    let (memory, meter, sender, began) = (
        Memory::begin(target.server_pid),
        Meter::start(target.server_pid),
        Meter::start(Some(walsender)),
        Instant::now(),
    );
    while pg.value(&covered)?.as_deref() != Some("t") {
        if began.elapsed() > PATIENCE {
            bail!("{slot} is not at {position} after {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(POLL);
    }
    let (cost, sender) = (meter.stop(), sender.stop());
    let (transactions, rows) = (backlog.transactions, backlog.transactions * backlog.rows);
    println!(
        "drain transactions={transactions} rows={rows} written_s={written:.2} seconds={:.3} per_s={:.0} rows_per_s={:.0}{} \
         walsender_us={:.2} walsender_cores={:.2}{}",
        cost.seconds,
        transactions as f64 / cost.seconds,
        rows as f64 / cost.seconds,
        spent(&cost, rows),
        sender.server_us.unwrap_or_default() / rows.max(1) as f64,
        sender.server_us.unwrap_or_default() / 1e6 / sender.seconds,
        memory.end()
    );
    Ok(())
}

/// A process that is stopped until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn stop(pid: u32) -> anyhow::Result<Self> {
        let pid = Pid::from_raw(i32::try_from(pid)?).context("no process has the number 0")?;
        kill_process(pid, Signal::STOP).context("the walsender cannot be stopped: run as its user")?;
        Ok(Self(pid))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = kill_process(self.0, Signal::CONT);
    }
}
