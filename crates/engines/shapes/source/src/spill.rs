//! Large transactions that Postgres streams before their commit: held in memory, then in a file, until they commit or
//! abort.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;

/// More of one transaction than this goes to a file.
const MEMORY_MAX: usize = 4 << 20;
/// A message of pgoutput is never longer: it is one row, and a field has at most 1 GiB.
const MESSAGE_MAX: usize = u32::MAX as usize;

/// The messages of one transaction that is in progress.
pub(crate) struct Spill {
    /// Each: the subtransaction, the length, the message; numbers in network order.
    memory: Vec<u8>,
    file: Option<BufWriter<File>>,
    bytes: u64,
    aborted: HashSet<u32>,
}

impl Spill {
    pub(crate) fn new() -> Self {
        Self { memory: Vec::new(), file: None, bytes: 0, aborted: HashSet::new() }
    }

    /// Keeps a message of `subxid`; beyond some megabytes in a file in `folder`, which has no name and goes with the
    /// process.
    pub(crate) fn push(&mut self, folder: &Path, subxid: u32, message: &[u8]) -> io::Result<()> {
        if message.len() > MESSAGE_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message of more than 4 GiB"));
        }
        let head = [subxid.to_be_bytes(), (message.len() as u32).to_be_bytes()].concat();
        if self.file.is_none() && self.memory.len() + message.len() > MEMORY_MAX {
            std::fs::create_dir_all(folder)?;
            let mut file = BufWriter::with_capacity(256 << 10, tempfile::tempfile_in(folder)?);
            file.write_all(&std::mem::take(&mut self.memory))?;
            self.file = Some(file);
        }
        self.bytes += (head.len() + message.len()) as u64;
        match &mut self.file {
            Some(file) => {
                file.write_all(&head)?;
                file.write_all(message)
            }
            None => {
                self.memory.extend_from_slice(&head);
                self.memory.extend_from_slice(message);
                Ok(())
            }
        }
    }

    /// The subtransaction aborted: its messages are left out.
    pub(crate) fn abort(&mut self, subxid: u32) {
        self.aborted.insert(subxid);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Passes the messages to `f` in order, without those of aborted subtransactions.
    pub(crate) fn replay<E: From<io::Error>>(self, mut f: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let aborted = self.aborted;
        match self.file {
            Some(file) => {
                let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                file.rewind()?;
                each(&mut BufReader::with_capacity(256 << 10, file), &aborted, &mut f)
            }
            None => each(&mut &self.memory[..], &aborted, &mut f),
        }
    }
}

fn each<E: From<io::Error>>(
    from: &mut impl Read,
    aborted: &HashSet<u32>,
    f: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut message = Vec::new();
    loop {
        let mut head = [0; 8];
        match from.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let [a, b, c, d, e, g, h, i] = head;
        message.resize(u32::from_be_bytes([e, g, h, i]) as usize, 0);
        from.read_exact(&mut message)?;
        if !aborted.contains(&u32::from_be_bytes([a, b, c, d])) {
            f(&message)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replayed(spill: Spill) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        spill
            .replay(|message| {
                all.push(message.to_vec());
                Ok::<_, io::Error>(())
            })
            .unwrap();
        all
    }

    #[test]
    fn messages_come_back_in_order_without_what_was_undone() {
        let folder = tempfile::tempdir().unwrap();
        let mut spill = Spill::new();
        for (subxid, message) in [(1, "a"), (2, "b"), (1, "c"), (3, "")] {
            spill.push(folder.path(), subxid, message.as_bytes()).unwrap();
        }
        spill.abort(2);
        assert_eq!(replayed(spill), [b"a".to_vec(), b"c".to_vec(), Vec::new()]);
    }

    #[test]
    fn what_is_too_much_for_memory_goes_to_a_file_without_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut spill = Spill::new();
        let message = |n: u8| vec![n; 1 << 20];
        for n in 0..9 {
            spill.push(folder.path(), u32::from(n % 2), &message(n)).unwrap();
        }
        assert!(spill.file.is_some() && spill.memory.is_empty());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        spill.abort(1);
        assert_eq!(replayed(spill), [0, 2, 4, 6, 8].map(message));
    }
}
