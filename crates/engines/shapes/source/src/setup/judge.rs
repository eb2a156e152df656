//! Whether a server's history contains everything that was read so far, and everything since: a pure function of the
//! known and the found identity.
//!
//! A position has a meaning in one history only. Another history may have another system identifier, as every cluster
//! has its own; another timeline, after a failover or a restore to a point in time; or neither, if the files of a
//! cluster were restored from an earlier state. Then its log ends before the last position read, or a transaction that
//! was read does not come again ([`crate::anchor`]).

use super::Known;
use thalweg_pg::PgLsn;
use thalweg_shapes_model::history::SourceIdentity;

/// The reason why existing shapes are invalid, if any. `end`: the end of the server's WAL.
pub(super) fn broken(known: &Known, now: &SourceIdentity, end: PgLsn) -> Option<String> {
    let was = &known.identity;
    if let Some(why) = &known.broken {
        return Some(why.clone());
    }
    if was.system != now.system {
        let (is, was) = (&now.system, &was.system);
        return Some(format!("the server is another one: its system identifier is {is}, not {was}"));
    }
    if let Some(why) = another_history(known, now, end) {
        return Some(why);
    }
    if was.database != now.database {
        return Some(format!("the database is another one: {}, not {}", now.database, was.database));
    }
    if let (Some(is), Some(was)) = (now.database_oid, was.database_oid)
        && is != was
    {
        return Some(format!("the database is another one of the same name: its oid is {is}, not {was}"));
    }
    if was.slot != now.slot {
        return Some(format!("the replication slot is another one: {}, not {}", now.slot, was.slot));
    }
    if was.publication != now.publication {
        return Some("the publication is a new one".to_owned());
    }
    if !was.publication_version.is_empty() && was.publication_version != now.publication_version {
        return Some("the publication was changed while nothing was read".to_owned());
    }
    None
}

/// The reason why the server's WAL differs from the WAL that was read.
fn another_history(known: &Known, now: &SourceIdentity, end: PgLsn) -> Option<String> {
    let (was, seen) = (&known.identity, PgLsn(known.seen));
    let (is, before) = (now.timeline, was.timeline);
    if is < before {
        return Some(format!("the server is on another timeline: {is}, not {before}"));
    }
    // The first timeline has no branches; those of others may be unknown.
    let same_branches = was.branches.iter().zip(&now.branches).all(|(was, is)| was == is);
    if !same_branches || was.branches.len() > now.branches.len() && !now.branches.is_empty() {
        return Some(format!("the server is on another branch of timeline {before}"));
    }
    if is == before {
        let set_back = end < seen;
        return set_back.then(|| {
            format!(
                "the server's log ends at {end}, but was read up to {seen}: its storage was set back to an earlier time"
            )
        });
    }
    let Some((_, left)) = now.branches.iter().find(|(timeline, _)| *timeline == before) else {
        return Some(format!("the server is on another timeline: {is}, which does not come from {before}"));
    };
    if known.unclean {
        return Some(format!(
            "the server is on another timeline: {is}, not {before}, and this server ended without a clean stop: how far it had read {before} is \
             not known"
        ));
    }
    let left = PgLsn(*left);
    (left < seen).then(|| {
        format!(
            "the server is on another timeline: {is}, which left {before} at {left}, but that was read up to {seen}"
        )
    })
}

/// The reason why a valid slot lacks changes.
pub(super) fn skipped(known: &Known, confirmed: PgLsn) -> Option<String> {
    let acknowledged = PgLsn(known.acknowledged?);
    (confirmed > acknowledged).then(|| {
        format!("the replication slot was advanced or created again by another program: it begins at {confirmed}, but changes were read up to {acknowledged}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(timeline: u32, branches: &[(u32, u64)]) -> SourceIdentity {
        SourceIdentity {
            system: "7".into(),
            timeline,
            branches: branches.to_vec(),
            database: "app".into(),
            database_oid: Some(5),
            slot: "s".into(),
            publication: "p/1".into(),
            publication_version: "9".into(),
        }
    }

    fn known(identity: SourceIdentity, seen: u64) -> Known {
        Known { identity, seen, unclean: false, acknowledged: Some(90), broken: None }
    }

    fn why(known: &Known, now: &SourceIdentity, end: u64) -> String {
        broken(known, now, PgLsn(end)).unwrap_or_default()
    }

    #[test]
    fn the_same_history_goes_on() {
        let first = identity(1, &[]);
        assert_eq!(why(&known(first.clone(), 100), &first, 100), "");
        let third = identity(3, &[(1, 10), (2, 50)]);
        assert_eq!(why(&known(third.clone(), 100), &third, 101), "");
    }

    #[test]
    fn a_promoted_standby_goes_on_if_it_has_everything_that_was_read() {
        let (first, second) = (identity(1, &[]), identity(2, &[(1, 100)]));
        assert_eq!(why(&known(first.clone(), 100), &second, 120), "");
        assert!(why(&known(first.clone(), 101), &second, 120).contains("left 1 at 0/64, but that was read up to 0/65"));
        // Two failovers at once.
        let third = identity(3, &[(1, 100), (2, 200)]);
        assert_eq!(why(&known(first, 100), &third, 300), "");
        assert_eq!(why(&known(second.clone(), 200), &third, 300), "");
        assert!(why(&known(second, 201), &third, 300).contains("another timeline"));
    }

    #[test]
    fn a_promoted_standby_does_not_go_on_if_it_is_unknown_how_far_clients_were() {
        let (first, second) = (identity(1, &[]), identity(2, &[(1, 100)]));
        let unclean = |identity: &SourceIdentity| Known { unclean: true, ..known(identity.clone(), 50) };
        assert_eq!(why(&unclean(&first), &first, 100), "", "the same server has everything that it has sent");
        assert!(why(&unclean(&first), &second, 120).contains("without a clean stop"));
        assert_eq!(why(&unclean(&second), &second, 120), "");
    }

    #[test]
    fn a_branch_that_is_no_continuation_does_not_go_on() {
        let restored = identity(2, &[(1, 70)]);
        let other = identity(2, &[(1, 100)]);
        assert!(why(&known(other.clone(), 50), &restored, 500).contains("another branch"), "of the same number");
        let stranger = identity(4, &[(1, 70), (3, 90)]);
        assert!(why(&known(other.clone(), 50), &stranger, 500).contains("another branch"));
        assert!(why(&known(identity(2, &[]), 50), &stranger, 500).contains("does not come from 2"));
        assert!(why(&known(other, 50), &identity(1, &[]), 500).contains("another timeline: 1, not 2"));
    }

    #[test]
    fn storage_that_was_set_back_does_not_go_on() {
        let first = identity(1, &[]);
        assert!(why(&known(first.clone(), 100), &first, 99).contains("set back"));
    }

    #[test]
    fn another_database_or_publication_does_not_go_on() {
        let first = identity(1, &[]);
        type Change = fn(&mut SourceIdentity);
        let changes: [(Change, &str); 6] = [
            (|now| now.system.push('1'), "system identifier"),
            (|now| now.database.push('x'), "the database is another one"),
            (|now| now.database_oid = Some(6), "of the same name"),
            (|now| now.slot.push('x'), "slot is another one"),
            (|now| now.publication.push('2'), "publication is a new one"),
            (|now| now.publication_version.push('2'), "publication was changed"),
        ];
        for (change, words) in changes {
            let mut now = first.clone();
            change(&mut now);
            assert!(why(&known(first.clone(), 0), &now, 100).contains(words), "{words}");
        }
        let mut older = first.clone();
        (older.database_oid, older.publication_version) = (None, String::new());
        assert_eq!(why(&known(older, 0), &first, 100), "", "an earlier version of this server did not note them");
    }

    #[test]
    fn a_slot_that_begins_after_what_was_read_has_skipped_changes() {
        let known = known(identity(1, &[]), 100);
        assert_eq!((skipped(&known, PgLsn(90)), skipped(&known, PgLsn(80))), (None, None));
        assert!(skipped(&known, PgLsn(91)).is_some_and(|why| why.contains("begins at 0/5B")));
        assert_eq!(skipped(&Known { acknowledged: None, ..known }, PgLsn(91)), None);
    }
}
