//! How nodes of a prefix know each other: by a secret of the bucket, which none of them ever sends.
//!
//! A request between nodes shows a proof that is made for the process it goes to. Another process at that address, such
//! as one that was started where a node had been, learns no more by it than how to ask the one that is gone. An
//! announcement is signed: whoever may write to the bucket, and not read it, announces nothing. An answer is signed with
//! the number of its question: another process at that address cannot say that something was done.

use super::announcement::Announcement;
use bytes::Bytes;
use ring::hmac;
use std::sync::atomic::{AtomicU64, Ordering};
use subtle::ConstantTimeEq;

/// The proofs of one process.
pub struct Proofs {
    key: hmac::Key,
    instance: String,
    /// The proof that others show to this process.
    own: String,
    /// Questions that were sent.
    asked: AtomicU64,
}

impl Proofs {
    /// Of the process `instance`, among those that know the secret.
    #[must_use]
    pub fn of(secret: &str, instance: String) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let own = proof(&key, "request", instance.as_bytes());
        Self { key, instance, own, asked: AtomicU64::new(0) }
    }

    /// The process whose proofs these are.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// The proof that this process shows to another one.
    #[must_use]
    pub fn to_show(&self, instance: &str) -> String {
        proof(&self.key, "request", instance.as_bytes())
    }

    /// Whether a request that shows this was sent by a node of the prefix, to this process.
    #[must_use]
    pub fn is_shown(&self, given: &[u8]) -> bool {
        given.ct_eq(self.own.as_bytes()).into()
    }

    /// What a question carries that no question before has carried, of any process.
    #[must_use]
    pub fn new_question(&self) -> String {
        format!("{}/{}", self.instance, self.asked.fetch_add(1, Ordering::Relaxed))
    }

    /// The signature of an answer of this process to such a question.
    #[must_use]
    pub fn signature_of_answer(&self, question: &[u8]) -> String {
        proof(&self.key, &format!("answer of {}", self.instance), question)
    }

    /// Whether the process `instance` has signed the answer to a question.
    #[must_use]
    pub fn is_answer(&self, question: &str, instance: &str, signature: &[u8]) -> bool {
        let expected = proof(&self.key, &format!("answer of {instance}"), question.as_bytes());
        signature.ct_eq(expected.as_bytes()).into()
    }

    /// An announcement as it is written and answered: its text, and a line with the signature.
    #[must_use]
    pub fn signed(&self, announcement: &Announcement) -> Bytes {
        let mut text = serde_json::to_vec(announcement).unwrap_or_default();
        let signature = proof(&self.key, "announcement", &text);
        text.push(b'\n');
        text.extend_from_slice(signature.as_bytes());
        text.into()
    }

    /// The announcement of a signed text; `None` if nobody who knows the secret has signed it, or if it is not that of
    /// `instance`.
    #[must_use]
    pub fn open(&self, text: &[u8], instance: &str) -> Option<Announcement> {
        let (text, signature) = halves(text)?;
        let is_signed: bool = signature.ct_eq(proof(&self.key, "announcement", text).as_bytes()).into();
        let announcement: Announcement = serde_json::from_slice(text).ok().filter(|_| is_signed)?;
        (announcement.instance == instance).then_some(announcement)
    }
}

/// The announcement of a signed text, for people: whoever has signed it.
#[must_use]
pub fn announced(text: &[u8]) -> Option<Announcement> {
    serde_json::from_slice(halves(text)?.0).ok()
}

fn halves(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().rposition(|byte| *byte == b'\n')?;
    Some((&text[..at], &text[at + 1..]))
}

fn proof(key: &hmac::Key, of: &str, text: &[u8]) -> String {
    let mut context = hmac::Context::with_key(key);
    context.update(of.as_bytes());
    context.update(b"\0");
    context.update(text);
    context.sign().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(instance: &str) -> Announcement {
        Announcement { instance: instance.into(), ..Announcement::default() }
    }

    #[test]
    fn a_proof_is_for_one_process() {
        let (a, b) = (Proofs::of("s", "a-1".into()), Proofs::of("s", "b-1".into()));
        assert!(b.is_shown(a.to_show("b-1").as_bytes()));
        assert!(!b.is_shown(a.to_show("b-2").as_bytes()) && !b.is_shown(b"") && !b.is_shown(b"s"));
        assert!(!b.is_shown(Proofs::of("other", "a-1".into()).to_show("b-1").as_bytes()));
    }

    #[test]
    fn an_answer_is_that_of_one_process_to_one_question() {
        let (a, b, stranger) =
            (Proofs::of("s", "a-1".into()), Proofs::of("s", "b-1".into()), Proofs::of("t", "b-1".into()));
        let (one, two) = (a.new_question(), a.new_question());
        assert_ne!(one, two);
        let signature = b.signature_of_answer(one.as_bytes());
        assert!(a.is_answer(&one, "b-1", signature.as_bytes()));
        assert!(!a.is_answer(&two, "b-1", signature.as_bytes()) && !a.is_answer(&one, "b-2", signature.as_bytes()));
        assert!(!a.is_answer(&one, "b-1", stranger.signature_of_answer(one.as_bytes()).as_bytes()));
        assert!(!a.is_answer(&one, "b-1", b"") && !a.is_answer(&one, "b-1", a.to_show("b-1").as_bytes()));
    }

    #[test]
    fn an_announcement_is_believed_by_its_signature_and_under_its_name() {
        let (a, b, stranger) =
            (Proofs::of("s", "a-1".into()), Proofs::of("s", "b-1".into()), Proofs::of("t", "a-1".into()));
        let text = a.signed(&said("a-1"));
        assert_eq!(b.open(&text, "a-1"), Some(said("a-1")));
        assert_eq!(announced(&text), Some(said("a-1")));
        assert_eq!(b.open(&text, "a-2"), None);
        assert_eq!(b.open(&stranger.signed(&said("a-1")), "a-1"), None);
        for at in 0..text.len() {
            let mut changed = text.to_vec();
            changed[at] ^= 1;
            assert_eq!(b.open(&changed, "a-1"), None, "{at}");
            assert_eq!(b.open(&text[..at], "a-1"), None, "{at}");
        }
    }
}
