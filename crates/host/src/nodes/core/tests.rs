use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Seconds, by both clocks.
fn at(seconds: f64) -> Moment {
    let steady = Duration::from_secs_f64(seconds);
    Moment { steady, boot_ms: steady.as_millis() as u64 }
}

fn says(instance: &str, seq: u64, units: &[(u64, u64)]) -> Announcement {
    Announcement {
        name: instance.into(),
        instance: instance.into(),
        address: format!("http://{instance}"),
        object: 0,
        seq,
        every_ms: 1_000,
        is_draining: false,
        age_ms: 100_000,
        has_shapes: false,
        refuses: Vec::new(),
        lapses: 0,
        units: units.to_vec(),
        started_ms: 0,
    }
}

/// A node with one unit of streams.
fn node() -> Core {
    Core::new(says("me", 0, &[]), 1, at(0.0))
}

/// A step of a node that has a lease, if it owns nothing: otherwise the test announces it.
fn step(core: &mut Core, now: f64) -> Vec<(u64, Work)> {
    if core.held().is_empty() {
        announce(core, now, now);
        announce(core, now, now);
    }
    core.step(&BTreeSet::new(), at(now))
}

/// Has announced at `began`, which the bucket had at `ended`.
fn announce(core: &mut Core, began: f64, ended: f64) {
    let saying = core.say(0, at(began));
    core.said(&saying, at(ended));
}

/// Has taken its unit with epoch 5, and announced it at `now`.
fn owner(now: f64) -> Core {
    let mut core = node();
    assert_eq!(step(&mut core, now), [(0, Work::Take)]);
    core.taken(0, 5);
    announce(&mut core, now, now);
    core
}

/// Serves its unit from `now` on.
fn server(now: f64) -> Core {
    let mut core = owner(now);
    let [(0, Work::Serve(gaps))] = step(&mut core, now)[..] else { panic!("the unit is not to be served") };
    core.opened(0, gaps, at(now));
    core
}

fn serves(core: &Core, now: f64) -> bool {
    core.place(0, at(now)) == Place::Here
}

#[test]
fn nodes_meet_before_they_take_units() {
    let mut core = node();
    assert_eq!(step(&mut core, 0.9), []);
    assert_eq!(step(&mut core, 1.0), [(0, Work::Take)]);
    assert_eq!(step(&mut core, 1.1), [], "it is busy");
    core.failed(0, at(2.0));
    assert_eq!(step(&mut core, 2.4), []);
    assert_eq!(step(&mut core, 2.5), [(0, Work::Take)]);
}

#[test]
fn a_lease_runs_from_the_beginning_of_an_announcement() {
    let mut core = server(1.0);
    announce(&mut core, 2.0, 2.9);
    assert!(serves(&core, 3.9) && !serves(&core, 4.0));
}

#[test]
fn an_announcement_that_may_have_been_written_is_not_written_again() {
    let mut core = server(1.0);
    let before = core.me().seq;
    let (lost, next) = (core.say(0, at(2.0)), core.say(0, at(4.0)));
    assert_eq!((core.me().seq, lost.announcement.seq, next.announcement.seq), (before, before + 1, before + 2));
    core.said(&next, at(4.1));
    assert_eq!(core.me().seq, before + 2);
}

#[test]
fn a_unit_that_the_last_announcement_does_not_name_is_not_served() {
    let mut core = node();
    assert_eq!(step(&mut core, 1.0), [(0, Work::Take)]);
    let saying = core.say(0, at(1.0));
    core.taken(0, 5);
    core.said(&saying, at(1.1));
    assert_eq!(step(&mut core, 1.2), []);
    announce(&mut core, 1.2, 1.2);
    assert!(matches!(step(&mut core, 1.3)[..], [(0, Work::Serve(_))]));
}

#[test]
fn after_a_gap_a_unit_is_looked_at_again() {
    let mut core = server(1.0);
    announce(&mut core, 2.5, 3.1);
    assert!(!serves(&core, 3.2), "the lease had ended at 3.0");
    let [(0, Work::Serve(gaps))] = step(&mut core, 3.2)[..] else { panic!("it is looked at again") };
    // Another gap while the root is read.
    announce(&mut core, 5.0, 5.1);
    assert!(!core.may_open(0, gaps, at(5.2)));
    core.opened(0, gaps, at(5.2));
    assert!(!serves(&core, 5.2));
    assert!(matches!(step(&mut core, 5.3)[..], [(0, Work::Serve(later))] if later > gaps));
}

#[test]
fn a_unit_is_taken_and_served_when_silence_was_asked_for() {
    let mut core = node();
    core.heard(says("other", 1, &[(0, 4)]), at(1.0), at(1.0));
    // Nobody has asked again: nothing is known, however long ago it was.
    assert_eq!(step(&mut core, 9.0), []);
    core.heard(says("other", 1, &[(0, 4)]), at(3.2), at(3.3));
    assert_eq!(step(&mut core, 9.1), []);
    core.heard(says("other", 1, &[(0, 4)]), at(3.4), at(3.5));
    assert_eq!(step(&mut core, 9.2), [(0, Work::Take)]);
    core.taken(0, 5);
    announce(&mut core, 9.3, 9.3);
    let [(0, Work::Serve(gaps))] = step(&mut core, 9.4)[..] else { panic!("the other one is silent") };
    // It was not dead: its lease may run.
    core.heard(says("other", 2, &[(0, 4)]), at(9.5), at(9.5));
    assert!(!core.may_open(0, gaps, at(9.5)));
    core.not_opened(0, at(9.5));
    assert!(!matches!(step(&mut core, 9.6)[..], [(0, Work::Serve(_))]));
}

#[test]
fn units_of_a_suspect_are_taken_early_and_served_when_its_lease_has_ended() {
    let mut core = node();
    let silent = |core: &mut Core, now: f64| core.heard(says("other", 1, &[(0, 4)]), at(now), at(now));
    core.answered(says("other", 1, &[(0, 4)]), at(1.0), at(1.0));
    core.unanswered("other");
    silent(&mut core, 2.5);
    assert_eq!(step(&mut core, 2.5), [], "one answer may be lost");
    core.unanswered("other");
    assert_eq!(step(&mut core, 2.6), [(0, Work::Take)]);
    core.taken(0, 5);
    announce(&mut core, 2.7, 2.7);
    assert_eq!(step(&mut core, 2.8), [], "leases of the other one may run");
    silent(&mut core, 3.3);
    assert!(matches!(step(&mut core, 3.3)[..], [(0, Work::Serve(_))]));
}

#[test]
fn a_node_that_answers_or_announces_itself_is_no_suspect() {
    let mut core = node();
    core.answered(says("other", 1, &[(0, 4)]), at(1.0), at(1.0));
    core.unanswered("other");
    core.unanswered("other");
    core.heard(says("other", 2, &[(0, 4)]), at(2.4), at(2.4));
    core.heard(says("other", 2, &[(0, 4)]), at(3.8), at(3.8));
    assert_eq!(step(&mut core, 3.8), [], "it writes into the bucket");
    core.answered(says("other", 2, &[(0, 4)]), at(4.0), at(4.0));
    assert_eq!(step(&mut core, 4.0), [], "it answers");
    core.unanswered("other");
    core.unanswered("other");
    assert_eq!(step(&mut core, 4.0), [(0, Work::Take)]);
}

#[test]
fn a_node_without_a_lease_takes_nothing_and_gets_nothing() {
    let mut core = node();
    announce(&mut core, 1.0, 1.0);
    assert_eq!(core.step(&BTreeSet::new(), at(3.0)), [], "its lease has ended");
    announce(&mut core, 3.1, 3.1);
    assert_eq!((core.me().lapses, core.step(&BTreeSet::new(), at(3.1))), (1, vec![(0, Work::Take)]));

    // Announcements that take longer than a lease arrive, and others see that the node lives.
    let mut core = server(1.0);
    let lapsed = |seq, lapses| Announcement { lapses, ..says("other", seq, &[(1, 3)]) };
    core.drain(true);
    core.heard(lapsed(1, 2), at(1.1), at(1.1));
    assert_eq!(step(&mut core, 1.2), [], "the other one would not take it");
    core.heard(lapsed(2, 0), at(1.3), at(1.3));
    assert_eq!(step(&mut core, 1.4), [(0, Work::GiveUp)]);
}

#[test]
fn work_that_could_not_be_begun_leaves_nothing_served_and_nothing_forgotten() {
    let mut core = server(1.0);
    let lost = BTreeSet::from([0]);
    assert_eq!(core.step(&lost, at(1.1)), [(0, Work::Lose)]);
    core.not_begun(0, Work::Lose, at(1.1));
    assert!(!serves(&core, 1.1));
    assert_eq!((core.owned(), core.me().units.len()), (vec![0], 1));
    assert_eq!(core.step(&lost, at(1.2)), [(0, Work::Lose)]);
    core.not_begun(0, Work::Lose, at(1.2));
    assert_eq!(step(&mut core, 1.3), [], "it is served again after a pause");
    assert!(matches!(step(&mut core, 1.4)[..], [(0, Work::Serve(_))]));
}

#[test]
fn an_object_that_nobody_can_read_may_be_the_announcement_of_an_owner() {
    let mut core = owner(1.0);
    let strange = BTreeMap::from([("n/x-1".to_owned(), 1)]);
    core.strange(&strange, at(1.1), at(1.1));
    assert_eq!(step(&mut core, 1.2), []);
    announce(&mut core, 2.5, 2.5);
    core.strange(&strange, at(3.3), at(3.3));
    assert_eq!(step(&mut core, 3.3), []);
    core.strange(&strange, at(3.4), at(3.4));
    assert!(matches!(step(&mut core, 3.4)[..], [(0, Work::Serve(_))]), "its lease has ended");
    core.not_opened(0, at(3.4));
    // It was written again.
    core.strange(&BTreeMap::from([("n/x-1".to_owned(), 2)]), at(3.7), at(3.7));
    assert_eq!(step(&mut core, 3.7), []);
    core.strange(&BTreeMap::new(), at(3.6), at(3.8));
    assert_eq!(step(&mut core, 3.8), [], "an older list says nothing of it");
    core.strange(&BTreeMap::new(), at(3.9), at(3.9));
    assert!(matches!(step(&mut core, 3.9)[..], [(0, Work::Serve(_))]), "it is gone");
}

#[test]
fn a_dead_node_whose_announcement_somebody_has_replaced_loses_its_units() {
    let mut core = node();
    core.heard(says("other", 1, &[(0, 4)]), at(1.0), at(1.0));
    core.silent("other", 1, at(9.0));
    assert_eq!(step(&mut core, 3.4), [], "that is not the object of its last announcement");
    core.silent("other", 0, at(3.2));
    assert_eq!(step(&mut core, 3.4), []);
    core.silent("other", 0, at(3.4));
    assert_eq!(step(&mut core, 3.5), [(0, Work::Take)]);
}

#[test]
fn an_owner_that_hears_of_a_later_epoch_loses_its_unit() {
    let mut core = server(1.0);
    core.heard(says("other", 1, &[(0, 4)]), at(1.1), at(1.1));
    assert!(!matches!(step(&mut core, 1.2)[..], [(0, Work::Lose)]), "that one is of before");
    core.heard(says("other", 2, &[(0, 6)]), at(1.3), at(1.3));
    assert_eq!(step(&mut core, 1.4), [(0, Work::Lose)]);
    core.leave(0);
    assert!(!serves(&core, 1.4));
    core.given_up(0);
    let there = Place::There { address: "http://other".into(), instance: "other".into() };
    assert_eq!((core.place(0, at(1.5)), core.held().len()), (there, 0));
}

#[test]
fn a_journal_that_has_stopped_loses_its_unit() {
    let mut core = server(1.0);
    assert_eq!(core.step(&BTreeSet::from([0]), at(1.1)), [(0, Work::Lose)]);
}

#[test]
fn a_node_that_drains_gives_up_what_another_one_takes() {
    let mut core = server(1.0);
    core.drain(true);
    assert_eq!(step(&mut core, 1.1), [], "nobody else is there");
    core.heard(says("other", 1, &[]), at(1.2), at(1.2));
    assert_eq!(step(&mut core, 1.3), [(0, Work::GiveUp)]);
}

#[test]
fn silence_while_the_machine_sleeps_does_not_count() {
    let mut core = node();
    core.heard(says("other", 1, &[(0, 4)]), at(1.0), at(1.0));
    let later = Moment { steady: 2 * SECOND, boot_ms: 60_000 };
    core.heard(says("other", 1, &[(0, 4)]), later, later);
    assert_eq!(core.live().count(), 1);
    // Its own lease has ended meanwhile.
    assert_eq!(server(1.0).place(0, later), Place::Nowhere);
}

#[test]
fn nodes_of_long_ago_are_forgotten() {
    let mut core = node();
    core.heard(says("other", 1, &[]), at(1.0), at(1.0));
    assert!(core.forgotten().is_empty());
    core.heard(says("other", 1, &[]), at(20.9), at(90.0));
    assert!(core.forgotten().is_empty(), "nobody knows what it has said since");
    core.heard(says("other", 1, &[]), at(21.0), at(90.0));
    assert_eq!(core.forgotten(), [says("other", 1, &[])]);
    assert_eq!(core.listed(vec!["me".into(), "third".into()], at(91.0)), ["third"]);
    assert_eq!(core.peers().count(), 0);
}

#[test]
fn a_new_node_takes_only_what_no_other_node_can() {
    let aged = |instance, age_ms, has_shapes| Announcement { age_ms, has_shapes, ..says(instance, 1, &[]) };
    let all = |core: &mut Core, now: f64| core.step(&BTreeSet::new(), at(now));
    let streams = |core: &mut Core, now: f64| all(core, now).iter().filter(|(unit, _)| *unit < 16).count();
    let mut core = Core::new(aged("me", 0, false), 16, at(0.0));
    announce(&mut core, 0.0, 0.0);
    core.heard(aged("other", 1_900, true), at(1.0), at(1.0));
    assert_eq!(streams(&mut core, 1.0), 8, "they have come together: each takes its share");

    let mut core = Core::new(aged("me", 0, true), 16, at(0.0));
    announce(&mut core, 0.0, 0.0);
    core.heard(aged("other", 2_000, false), at(1.0), at(1.0));
    assert_eq!(all(&mut core, 1.0), [(16, Work::Take)], "the other one cannot own the shapes");
    announce(&mut core, 4.1, 4.1);
    announce(&mut core, 4.1, 4.1);
    core.heard(Announcement { seq: 2, ..aged("other", 6_000, false) }, at(4.1), at(4.1));
    assert_eq!(streams(&mut core, 4.2), 7, "it is not new any more; it does eight things at once");
}

#[test]
fn a_unit_does_not_move_to_a_node_that_is_new_unless_its_owner_drains() {
    let mut core = server(5.0);
    let other = (0..)
        .map(|n| format!("other-{n}"))
        .find(|name| plan::owners(1, &["me", name], |_| Vec::new()) == [Some(&**name)]);
    let other = other.unwrap();
    let aged = |seq, age_ms| Announcement { age_ms, ..says(&other, seq, &[]) };
    core.heard(aged(1, 0), at(5.5), at(5.5));
    assert_eq!(step(&mut core, 5.6), []);
    announce(&mut core, 6.5, 6.5);
    announce(&mut core, 7.5, 7.5);
    core.heard(aged(2, 3_900), at(7.7), at(7.7));
    assert_eq!(step(&mut core, 7.8), [], "the nodes are the same for two seconds");
    core.heard(aged(3, 4_000), at(7.9), at(7.9));
    assert_eq!(step(&mut core, 7.9), [(0, Work::GiveUp)]);

    let mut core = server(5.0);
    core.heard(aged(1, 0), at(5.5), at(5.5));
    core.drain(true);
    assert_eq!(step(&mut core, 5.6), [(0, Work::GiveUp)]);
}

#[test]
fn of_a_node_that_was_retired_and_lives_its_next_object_counts() {
    let in_object = |object, seq, units| Announcement { object, ..says("other", seq, units) };
    let mut core = node();
    core.heard(in_object(1, 5, &[(0, 3)]), at(1.0), at(1.0));
    core.heard(in_object(0, 4, &[]), at(3.5), at(3.5));
    core.gone("other", 0, at(3.6));
    assert_eq!(step(&mut core, 3.6), [], "it lives, and has the unit");
    core.gone("other", 1, at(3.6));
    assert_eq!(step(&mut core, 3.6), [(0, Work::Take)]);
}

#[test]
fn a_unit_that_a_node_cannot_take_goes_to_another_one() {
    let mut core = node();
    let mut now = 1.0;
    for failures in 1..=3 {
        assert_eq!(step(&mut core, now), [(0, Work::Take)]);
        core.failed(0, at(now));
        announce(&mut core, now, now);
        assert_eq!(core.me().refuses.len(), usize::from(failures == 3));
        now += 0.5;
    }
    core.heard(says("other", 1, &[]), at(now), at(now));
    assert_eq!(step(&mut core, now), [], "the other one is to take it");
    core.gone("other", 0, at(now));
    assert_eq!(step(&mut core, now), [(0, Work::Take)], "nobody else can");
    core.failed(0, at(now));
    assert_eq!(step(&mut core, now + 0.9), [], "it waits longer");
    announce(&mut core, now + 59.9, now + 59.9);
    assert_eq!(core.me().refuses, [0]);
    announce(&mut core, now + 60.0, now + 60.0);
    assert!(core.me().refuses.is_empty());
}

#[test]
fn an_older_listing_takes_nobody_away_that_was_heard_of_since() {
    let mut core = node();
    core.heard(says("other", 1, &[(0, 3)]), at(2.0), at(2.0));
    core.listed(vec![], at(1.9));
    core.listed(vec![], at(4.2));
    assert_eq!(
        (core.peers().count(), step(&mut core, 4.2)),
        (1, vec![]),
        "its lease may run: others may have removed it"
    );
    core.listed(vec![], at(4.3));
    assert_eq!((core.peers().count(), step(&mut core, 4.3)), (0, vec![(0, Work::Take)]));

    let mut core = node();
    core.heard(says("other", 1, &[]), at(2.0), at(2.0));
    core.listed(vec![], at(2.0));
    assert_eq!(core.peers().count(), 0, "it owned nothing");
}
