//! The journal's end in memory: whole written batches, so that readers of recent frames copy nothing and touch no file.

use crate::FrameRef;
use crate::format::{FRAME_HEADER, frame_len};
use bytes::Bytes;
use std::collections::VecDeque;
use thalweg_base::Lsn;

pub(crate) struct Window {
    batches: VecDeque<(Lsn, Bytes)>,
    held: usize,
    bytes_max: usize,
    batches_max: usize,
}

impl Window {
    pub(crate) fn new(bytes_max: usize, batches_max: usize) -> Self {
        Self { batches: VecDeque::new(), held: 0, bytes_max, batches_max }
    }

    pub(crate) fn held(&self) -> usize {
        self.held
    }

    pub(crate) fn push(&mut self, lsn: Lsn, bytes: Bytes) {
        self.held += bytes.len();
        self.batches.push_back((lsn, bytes));
        while self.held > self.bytes_max || self.batches.len() > self.batches_max {
            let Some((_, gone)) = self.batches.pop_front() else { break };
            self.held -= gone.len();
        }
    }

    /// Drops batches whose frames are all before `start`: they are settled, and not read from here on.
    pub(crate) fn trim(&mut self, start: Lsn) {
        while let Some((_, gone)) = self.batches.pop_front_if(|(lsn, bytes)| lsn.plus(bytes.len() as u64) <= start) {
            self.held -= gone.len();
        }
    }

    /// The payload, if its batch is here; an error if no frame of this length stands there. `last` remembers the batch
    /// between calls, because neighbours are asked for together.
    pub(crate) fn get(&self, frame: FrameRef, last: &mut usize) -> Option<Result<Bytes, &'static str>> {
        let holds = |at: usize| {
            let (lsn, bytes) = self.batches.get(at)?;
            (*lsn <= frame.lsn && frame.lsn < lsn.plus(bytes.len() as u64)).then_some((*lsn, bytes))
        };
        let (lsn, bytes) = match holds(*last) {
            Some(found) => found,
            None => {
                *last = self.batches.partition_point(|(lsn, _)| *lsn <= frame.lsn).checked_sub(1)?;
                holds(*last)?
            }
        };
        let at = frame.lsn.since(lsn) as usize;
        let payload = at + FRAME_HEADER..at + FRAME_HEADER + frame.len as usize;
        if frame_len(&bytes[at..]) != Some(frame.len) || payload.end > bytes.len() {
            return Some(Err("no frame of this length stands there"));
        }
        Some(Ok(bytes.slice(payload)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(payloads: &[&[u8]]) -> Bytes {
        let mut out = vec![0; 24];
        for p in payloads {
            out.extend((p.len() as u32).to_le_bytes());
            out.extend([0; 4]);
            out.extend(*p);
        }
        out.into()
    }

    #[test]
    fn frames_are_slices_of_their_batch() {
        let mut window = Window::new(1000, 10);
        window.push(Lsn(100), batch(&[b"one", b"three"]));
        let mut last = 0;
        let mut get = |lsn, len| window.get(FrameRef { lsn: Lsn(lsn), len }, &mut last);
        assert_eq!(get(124, 3), Some(Ok(Bytes::from_static(b"one"))));
        assert_eq!(get(135, 5), Some(Ok(Bytes::from_static(b"three"))));
        assert!(get(135, 4).unwrap().is_err() && get(146, 9).unwrap().is_err());
        assert_eq!(get(99, 3), None);
        assert_eq!(get(148, 3), None);
    }

    #[test]
    fn what_is_settled_is_given_back() {
        let mut window = Window::new(1000, 10);
        (0..3).for_each(|n| window.push(Lsn(n * 28), batch(&[&[]])[..28].to_vec().into()));
        window.trim(Lsn(27));
        assert_eq!(window.held(), 84);
        window.trim(Lsn(57));
        assert_eq!((window.held(), window.batches.len()), (28, 1));
        window.trim(Lsn(1000));
        assert_eq!(window.held(), 0);
    }

    #[test]
    fn bytes_and_batches_are_bounded() {
        for mut window in [Window::new(90, 100), Window::new(10_000, 3)] {
            for n in 0..10u64 {
                window.push(Lsn(n * 28), batch(&[&[]])[..28].to_vec().into());
            }
            assert_eq!((window.batches.len(), window.held()), (3, 84));
        }
    }
}
