//! Yardsticks: the speed of Postgres itself in the same minutes, with clients that discard everything.

use super::drain::Backlog;
use super::follow::Writes;
use crate::cli::Target;
use crate::drive::nanos;
use crate::pg::{Pg, Url};
use crate::work::shape::Board;
use anyhow::{bail, ensure};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const NAME: &str = "thalweg_bench_yard";

pub(super) fn latency(writes: &Writes) -> anyhow::Result<()> {
    let mut stream = Pg::replication(&writes.pg)?;
    stream.query(&format!("DROP PUBLICATION IF EXISTS {NAME}; CREATE PUBLICATION {NAME} FOR ALL TABLES"))?;
    stream.query(&format!("CREATE_REPLICATION_SLOT {NAME} TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT"))?;
    stream.stream(&format!(
        "START_REPLICATION SLOT {NAME} LOGICAL 0/0 (proto_version '1', publication_names '{NAME}')"
    ))?;
    let (plug, board, epoch) = (stream.plug()?, Board::default(), Instant::now());
    let waits = std::thread::scope(|scope| {
        let board = &board;
        scope.spawn(move || {
            while let Ok(change) = stream.change() {
                // A commit's message.
                if change.first() == Some(&b'C') {
                    board.arrive(nanos(epoch));
                }
            }
        });
        let waits = writes.run(board, 1, epoch, None);
        plug.pull();
        waits
    })?
    .0;
    Pg::connect(&writes.pg)?.query(&format!("DROP PUBLICATION {NAME}"))?;
    println!("yard-latency missing={} ack_p50_us={} {}", waits.missing, waits.acknowledged.permille(500), waits.each);
    ensure!(waits.missing == 0, "a transaction did not come");
    Ok(())
}

pub(super) fn write(backlog: &Backlog) -> anyhow::Result<()> {
    let mut pg = backlog.connect()?;
    let began = Instant::now();
    let position = backlog.write(&mut pg)?;
    let seconds = began.elapsed().as_secs_f64();
    let (transactions, rows) = (backlog.transactions as f64, (backlog.transactions * backlog.rows) as f64);
    println!(
        "yard-write transactions={transactions} rows={rows} seconds={seconds:.3} per_s={:.0} rows_per_s={:.0} end={position}",
        transactions / seconds,
        rows / seconds
    );
    Ok(())
}

pub(super) fn copy(target: &Target, url: &Url, copy: &str, runs: u64) -> anyhow::Result<()> {
    let many = target.connections.min(usize::try_from(runs)?).max(1);
    let connections = (0..many).map(|_| Pg::connect(url)).collect::<anyhow::Result<Vec<_>>>()?;
    let (next, began) = (AtomicU64::new(0), Instant::now());
    let (rows, bytes) = std::thread::scope(|scope| {
        let next = &next;
        let running: Vec<_> = connections
            .into_iter()
            .map(|mut pg| {
                scope.spawn(move || {
                    let (mut rows, mut bytes) = (0, 0);
                    loop {
                        let run = next.fetch_add(1, Ordering::Relaxed);
                        if run >= runs {
                            return anyhow::Ok((rows, bytes));
                        }
                        let (more_rows, more_bytes) = pg.copy(&copy.replace("{i}", &run.to_string()))?;
                        (rows, bytes) = (rows + more_rows, bytes + more_bytes);
                    }
                })
            })
            .collect();
        let mut sum = (0, 0);
        for thread in running {
            let Ok(outcome) = thread.join() else { bail!("a thread panicked") };
            let (rows, bytes) = outcome?;
            sum = (sum.0 + rows, sum.1 + bytes);
        }
        Ok(sum)
    })?;
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "yard-copy connections={many} runs={runs} seconds={seconds:.4} per_s={:.0} rows={rows} rows_per_s={:.0} mb_per_s={:.1}",
        runs as f64 / seconds,
        rows as f64 / seconds,
        bytes as f64 / 1e6 / seconds
    );
    Ok(())
}
