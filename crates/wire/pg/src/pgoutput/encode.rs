//! From messages to bytes, as a server would send them.

use super::decode::CATALOG;
use super::message::{Message, OldTuple, ReplicaIdentity};
use super::tuple::Tuple;

/// Appends the bytes of one message. A text with a zero byte ends there.
pub fn encode(message: &Message<'_>, out: &mut Vec<u8>) {
    match *message {
        Message::Begin { final_lsn, commit_time, xid } => {
            out.push(b'B');
            out.extend(final_lsn.0.to_be_bytes());
            out.extend(commit_time.to_be_bytes());
            out.extend(xid.to_be_bytes());
        }
        Message::Commit { flags, commit_lsn, end_lsn, commit_time } => {
            out.extend([b'C', flags]);
            out.extend(commit_lsn.0.to_be_bytes());
            out.extend(end_lsn.0.to_be_bytes());
            out.extend(commit_time.to_be_bytes());
        }
        Message::Origin { commit_lsn, name } => {
            out.push(b'O');
            out.extend(commit_lsn.0.to_be_bytes());
            text(name, out);
        }
        Message::Relation { xid, id, namespace, name, replica_identity, columns } => {
            head(b'R', xid, id, out);
            text(if namespace == CATALOG { "" } else { namespace }, out);
            text(name, out);
            out.extend(
                ReplicaIdentity::ALL.iter().filter(|(_, known)| *known == replica_identity).map(|(byte, _)| byte),
            );
            out.extend(columns.count.to_be_bytes());
            out.extend(columns.bytes);
        }
        Message::Type { xid, id, namespace, name } => {
            head(b'Y', xid, id, out);
            text(if namespace == CATALOG { "" } else { namespace }, out);
            text(name, out);
        }
        Message::Insert { xid, relation, new } => {
            head(b'I', xid, relation, out);
            row(b'N', new, out);
        }
        Message::Update { xid, relation, old, new } => {
            head(b'U', xid, relation, out);
            old_row(old, out);
            row(b'N', new, out);
        }
        Message::Delete { xid, relation, old } => {
            head(b'D', xid, relation, out);
            old_row(old, out);
        }
        Message::Truncate { xid, cascade, restart_identity, relations } => {
            head(b'T', xid, relations.len() as u32, out);
            out.push(u8::from(cascade) | u8::from(restart_identity) << 1);
            out.extend(relations.bytes);
        }
        Message::Message { xid, transactional, lsn, prefix, content } => {
            out.push(b'M');
            out.extend(xid.iter().flat_map(|xid| xid.to_be_bytes()));
            out.push(u8::from(transactional));
            out.extend(lsn.0.to_be_bytes());
            text(prefix, out);
            out.extend((content.len() as u32).to_be_bytes());
            out.extend(content);
        }
        Message::StreamStart { xid, first_segment } => {
            out.push(b'S');
            out.extend(xid.to_be_bytes());
            out.push(u8::from(first_segment));
        }
        Message::StreamStop => out.push(b'E'),
        Message::StreamCommit { xid, flags, commit_lsn, end_lsn, commit_time } => {
            out.push(b'c');
            out.extend(xid.to_be_bytes());
            out.push(flags);
            out.extend(commit_lsn.0.to_be_bytes());
            out.extend(end_lsn.0.to_be_bytes());
            out.extend(commit_time.to_be_bytes());
        }
        Message::StreamAbort { xid, subxid } => {
            out.push(b'A');
            out.extend(xid.to_be_bytes());
            out.extend(subxid.to_be_bytes());
        }
    }
}

fn head(kind: u8, xid: Option<u32>, number: u32, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend(xid.iter().flat_map(|xid| xid.to_be_bytes()));
    out.extend(number.to_be_bytes());
}

fn old_row(old: OldTuple<'_>, out: &mut Vec<u8>) {
    match old {
        OldTuple::None => {}
        OldTuple::Key(tuple) => row(b'K', tuple, out),
        OldTuple::Full(tuple) => row(b'O', tuple, out),
    }
}

fn row(part: u8, tuple: Tuple<'_>, out: &mut Vec<u8>) {
    out.push(part);
    out.extend((tuple.len() as u16).to_be_bytes());
    out.extend(tuple.bytes());
}

fn text(text: &str, out: &mut Vec<u8>) {
    out.extend(text.bytes().take_while(|byte| *byte != 0).chain([0]));
}
