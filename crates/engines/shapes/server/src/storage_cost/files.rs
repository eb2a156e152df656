//! A file for each shape with copies of its changes, written at each transaction; ends of chunks are kept in memory.
//! Nothing can be read with less, and nothing is written as often.

use super::{CHUNK_BYTES, Keeper, Reader, body, bytes_in};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tempfile::TempDir;

pub(super) struct Files {
    folder: TempDir,
    files: Vec<File>,
    ends: Vec<u64>,
    written: u64,
    open: u64,
}

impl Keeper for Files {
    const NAME: &'static str = "files";
    type Reader = FileReader;

    fn open(shapes: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let open = |shape| File::create_new(folder.path().join(format!("{shape}.log"))).unwrap();
        let files = (0..shapes).map(open).collect();
        Self { folder, files, ends: Vec::new(), written: 0, open: 0 }
    }

    fn append(&mut self, lsn: u64, changes: u64) {
        let mut bytes = Vec::new();
        for op in 0..changes {
            let body = body(lsn, op * 2, op + 1 == changes);
            bytes.extend_from_slice(&body);
            (self.written, self.open) = (self.written + body.len() as u64, self.open + body.len() as u64);
            if self.open >= CHUNK_BYTES {
                self.ends.push(self.written);
                self.open = 0;
            }
        }
        self.files.iter_mut().for_each(|file| file.write_all(&bytes).unwrap());
    }

    fn sync(&mut self) {
        self.files.iter().for_each(|file| file.sync_data().unwrap());
    }

    fn bytes_on_disk(&self) -> u64 {
        bytes_in(self.folder.path())
    }

    fn reader(&self) -> FileReader {
        let file = File::open(self.folder.path().join("0.log")).unwrap();
        FileReader { file, ends: self.ends.clone().into() }
    }
}

pub(super) struct FileReader {
    file: File,
    ends: Arc<[u64]>,
}

impl Reader for FileReader {
    fn read(&mut self, chunks: usize, sink: &mut dyn FnMut(&[u8])) {
        let mut from = 0;
        for &end in &self.ends[..chunks] {
            let mut messages = vec![0; (end - from) as usize];
            self.file.read_exact_at(&mut messages, from).unwrap();
            sink(&messages);
            from = end;
        }
    }
}
