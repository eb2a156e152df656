//! A thousand kernel units in one process: their cost when opened, and when idle.

use crate::{Keeping, Unit, keep};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_base::Offset;
use thalweg_disk::RealDisk;
use thalweg_journal::{Class, Journal, Options, WriterPool};
use thalweg_log::{Append, FileUnit, Lengths, LogsOptions, Loss, Op, ReadFrom};
use thalweg_rounds::Rounds;

const UNITS: usize = 1_000;
/// How long the test waits for each event, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many units are opened, or closed, at the same time.
const AT_A_TIME: usize = 8;
/// Resident memory for each open unit, at most. It was 51 KiB where no other test ran in the process.
const UNIT_BYTES_MAX: u64 = 128 << 10;
/// Threads that write the journals of all units.
const WRITERS: usize = 4;
/// Enough for three files of each unit, and for those that it opens at times.
const DESCRIPTORS: u64 = 8 * UNITS as u64;

fn open(folder: &Path, pool: &WriterPool, number: usize) -> FileUnit<()> {
    let path = folder.join(number.to_string());
    std::fs::create_dir_all(&path).unwrap();
    let disk = Arc::new(RealDisk::open(&path).unwrap());
    let journal = Options { salt: number as u64, ..Options::default() };
    let logs = LogsOptions { settle_after_ms: 100, ..LogsOptions::default() };
    let unit = FileUnit::open(disk, journal, logs, Loss::Nothing).unwrap();
    unit.journal.start_writer_on(pool);
    unit
}

/// Opens all units, several at a time: most of the time is spent waiting for the device.
fn open_all(folder: &Path, pool: &WriterPool) -> Vec<FileUnit<()>> {
    std::thread::scope(|scope| {
        let opening = |first: usize| {
            let numbers = first * UNITS / AT_A_TIME..(first + 1) * UNITS / AT_A_TIME;
            scope.spawn(move || numbers.map(|number| open(folder, pool, number)).collect::<Vec<_>>())
        };
        let opening: Vec<_> = (0..AT_A_TIME).map(opening).collect();
        opening.into_iter().flat_map(|units| units.join().unwrap()).collect()
    })
}

fn message(number: usize) -> Vec<u8> {
    format!("message of unit {number}").into_bytes()
}

fn append(unit: &FileUnit<()>, number: usize) {
    let message = message(number);
    let lengths = Lengths::one(message.len() as u32);
    let parts = [&message[..]];
    let append = Some(Append::Bytes { parts: &parts, lengths: &lengths });
    let op = Op::Create { name: "log", note: b"", origin: None, append };
    let end = unit.logs.lock(&["log"]).commit(Class::User, &[op]).unwrap().end;
    unit.journal.wait(end).unwrap();
}

fn read(unit: &FileUnit<()>) -> Vec<u8> {
    let (log, upto) = {
        let mut guard = unit.logs.lock(&["log"]);
        let log = guard.find("log").unwrap();
        (log, guard.view(log).unwrap().tail)
    };
    unit.logs.read(ReadFrom { log, from: Offset::ZERO, upto }).unwrap().parts.concat()
}

/// A line of `/proc/self/status`, of kilobytes, in bytes.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Waits until `is_done`, which `what` describes.
fn wait_for(what: &str, mut is_done: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !is_done() {
        assert!(began.elapsed() < PATIENCE, "{what}: not after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    began.elapsed()
}

#[test]
fn a_thousand_units_settle_on_a_few_threads_and_cost_no_wake_ups_when_idle() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let allowed = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS.max(allowed.current.unwrap_or(0))), ..allowed })
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let before = status("VmRSS");
    let began = Instant::now();
    let rounds = Rounds::start(thalweg_rounds::Options::default()).unwrap();
    let pool = WriterPool::start(WRITERS).unwrap();
    let units = open_all(folder.path(), &pool);
    let opened = began.elapsed();
    for unit in &units {
        let kept = Unit::derived("one of many", "", unit);
        let reserve = kept.hold_back().unwrap();
        keep(&rounds, &kept, Keeping { reserve, settles: true, bound_bytes: Options::default().bound_bytes });
    }
    let turns = || rounds.stats().kinds.iter().map(|kind| kind.turns).sum::<u64>();
    wait_for("every job has looked once", || {
        turns() >= 3 * UNITS as u64 && rounds.stats().kinds.iter().all(|kind| kind.due == 0)
    });
    units.iter().enumerate().for_each(|(number, unit)| append(unit, number));
    let settled = wait_for("all units are settled", || units.iter().all(|unit| unit.logs.stats().lag_bytes == 0));
    let held = status("VmRSS").saturating_sub(before);

    // Woken jobs finish, and retired segments are checked once more: after that no turn is taken.
    wait_for("nothing happens", || {
        let before = (rounds.stats().wakes, turns());
        std::thread::sleep(Duration::from_millis(1_500));
        before == (rounds.stats().wakes, turns())
    });
    let (wakes, had) = (rounds.stats().wakes, turns());
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!((rounds.stats().wakes, turns()), (wakes, had), "a thousand idle units wake somebody");
    // A unit with an event gets its turns at once, also for a reader.
    assert_eq!(read(&units[7]), message(7));
    wait_for("the woken log gets a turn", || turns() > had);
    println!(
        "{UNITS} units: opened in {opened:?}, settled in {settled:?}, {} KiB of memory each, {} threads in all; {:?}",
        held / 1024 / UNITS as u64,
        status("Threads") >> 10,
        rounds.stats(),
    );
    assert!(held < UNIT_BYTES_MAX * UNITS as u64, "{held} bytes are resident");
    assert_eq!(rounds.stats().threads, thalweg_rounds::Options::default().threads, "however many units there are");
    assert!(pool.threads() <= WRITERS, "{} threads write journals", pool.threads());
    rounds.stop();
    std::thread::scope(|scope| {
        for units in units.chunks(UNITS.div_ceil(AT_A_TIME)) {
            scope.spawn(move || {
                for unit in units {
                    unit.journal.close().unwrap();
                    unit.logs.close().unwrap();
                }
            });
        }
    });
    drop(units);

    let began = Instant::now();
    let units = open_all(folder.path(), &pool);
    println!("opened again in {:?}", began.elapsed());
    for (number, unit) in units.iter().enumerate() {
        assert_eq!(read(unit), message(number));
    }
}
