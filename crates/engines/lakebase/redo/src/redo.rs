//! Redo processes of one tenant, and who uses them.

use crate::error::{RedoError, StartError};
use crate::process::{Failed, Process, Program};
use crate::wire::{Page, PageRedo, encode_mask};
use parking_lot::{Condvar, Mutex};
use std::path::{Path, PathBuf};
use thalweg_lakebase_wal::{PAGE_BYTES, Rmgr};

/// Some processes, which are started when they are needed, and replaced when they end.
pub struct Redo {
    program: Program,
    /// Those that nobody uses now.
    idle: Mutex<Vec<Seat>>,
    freed: Condvar,
}

/// The place of a process.
struct Seat {
    folder: PathBuf,
    process: Option<Process>,
}

impl Redo {
    /// At most `processes` at the same time, with their folders below `folder`. The first one is started at once, so that
    /// a program that cannot be one is an error here.
    pub fn new(program: Program, folder: &Path, processes: usize) -> Result<Self, StartError> {
        let mut seats = Vec::new();
        for number in 0..processes.max(1) {
            let folder = folder.join(format!("redo-{number}"));
            program.make_folder(&folder)?;
            seats.push(Seat { folder, process: None });
        }
        seats.reverse();
        if let Some(first) = seats.last_mut() {
            first.process = Some(program.start(&first.folder)?);
        }
        Ok(Self { program, idle: Mutex::new(seats), freed: Condvar::new() })
    }

    /// Makes pages: a result for each, in order. Waits for a process that is free, and for the pages.
    pub fn apply(&self, pages: &[PageRedo]) -> Vec<Result<Page, RedoError>> {
        self.ask(pages.len(), &|at, out| pages[at].encode(out))
    }

    /// Blanks out of pages what replay may leave different from the original: for comparisons. Each with the resource
    /// manager of the record that changed it last, and its block.
    pub fn mask(&self, pages: &[(&[u8; PAGE_BYTES], Rmgr, u32)]) -> Vec<Result<Page, RedoError>> {
        self.ask(pages.len(), &|at, out| {
            let (page, rmgr, block) = pages[at];
            encode_mask(page, rmgr, block, out);
        })
    }

    fn ask(&self, requests: usize, encode: &dyn Fn(usize, &mut Vec<u8>)) -> Vec<Result<Page, RedoError>> {
        let mut results = Vec::with_capacity(requests);
        let mut seat = self.take();
        // So many requests are sent one by one, until the one that ends its process is found.
        let mut suspects = 0;
        while results.len() < requests {
            let from = results.len();
            let process = match &mut seat.process {
                Some(process) => process,
                none => match self.program.start(&seat.folder) {
                    Ok(process) => none.insert(process),
                    Err(error) => {
                        tracing::error!(%error, "a redo process cannot be started");
                        let none = || Err(RedoError::NoProcess(error.to_string()));
                        results.resize_with(requests, none);
                        break;
                    }
                },
            };
            let (some, ahead_max) = if suspects > 0 { (suspects, 1) } else { (requests - from, usize::MAX) };
            let encode = |at, out: &mut _| encode(from + at, out);
            let failed = process.ask(some, ahead_max, &encode, &mut |page| results.push(Ok(page)));
            suspects = 0;
            if let Some(Failed { error, suspects: all }) = failed {
                tracing::warn!(%error, suspects = all, "a redo process is replaced");
                seat.process = None;
                match all {
                    1 => results.push(Err(error)),
                    _ => suspects = all,
                }
            }
        }
        self.idle.lock().push(seat);
        self.freed.notify_one();
        results
    }

    fn take(&self) -> Seat {
        let mut idle = self.idle.lock();
        loop {
            match idle.pop() {
                Some(seat) => return seat,
                None => self.freed.wait(&mut idle),
            }
        }
    }
}
