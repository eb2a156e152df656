use crate::metrics::Page;
use crate::{Engine, Engines, Route, Unit};
use std::sync::Arc;
use thalweg_http::{Context, Reply, Request};
use thalweg_journal::{Class, Journal, Options};
use thalweg_log::{FileUnit, LogsOptions, Loss};

#[test]
fn health_names_the_unit_whose_journal_has_stopped() {
    let disk = thalweg_sim::SimDisk::new(1);
    let unit = FileUnit::<()>::open(Arc::new(disk.clone()), Options::default(), LogsOptions::default(), Loss::Nothing)
        .unwrap();
    let (main, derived) = (Unit::main("streams", &unit, 0), Unit::derived("shapes", "shapes/", &unit));
    assert_eq!((main.health(), derived.health()), (Ok(()), Ok(())));
    unit.journal.append(Class::User, &[b"a frame"]).unwrap();
    disk.fail_next_sync();
    unit.journal.step().unwrap_err();
    let why = main.health().unwrap_err();
    assert_eq!(derived.health().unwrap_err(), format!("shapes: {why}"));
    let poisoned = |unit: &Unit| unit.families().into_iter().find(|family| family.0 == "journal_poisoned").unwrap().3;
    assert_eq!((poisoned(&main), poisoned(&derived)), (1.0, 1.0));
}

/// An engine that has a unit, and nothing else.
struct Holder(Unit);

impl Engine for Holder {
    fn routes(&self) -> Vec<Route> {
        Vec::new()
    }

    fn handle(&self, _: &Request<'_>, _: &mut Context<'_>) -> Reply {
        unreachable!("it has no route")
    }

    fn unit(&self) -> Option<Unit> {
        Some(self.0.clone())
    }

    fn metrics(&self, _: &mut Page) {}
}

#[test]
fn closing_closes_every_unit_also_behind_one_that_fails() {
    let open = |seed| {
        let disk = thalweg_sim::SimDisk::new(seed);
        let parts = (Arc::new(disk.clone()) as _, Options::default(), LogsOptions::default(), Loss::Nothing);
        let unit = FileUnit::<()>::open(parts.0, parts.1, parts.2, parts.3).unwrap();
        unit.journal.append(Class::User, &[b"a frame"]).unwrap();
        (disk, unit)
    };
    let (first, second, last) = (open(1), open(2), open(3));
    let mut engines = Engines::default();
    engines.add(Holder(Unit::main("streams", &first.1, 0)));
    engines.add(Holder(Unit::derived("second", "second/", &second.1)));
    engines.add(Holder(Unit::derived("last", "last/", &last.1)));
    second.0.fail_next_sync();
    let error = format!("{:#}", engines.close().unwrap_err());
    assert!(error.starts_with("second: the journal could not be closed"), "{error}");
    for (_, unit) in [&first, &last] {
        assert!(unit.journal.durable() >= unit.journal.end());
        let durable = unit.logs.hold_sealed().cut.journal.known_durable;
        assert!(
            durable >= unit.journal.opened().end.plus(8),
            "the root says how far the journal is durable: {durable}"
        );
        assert!(unit.journal.append(Class::User, &[b"late"]).is_err(), "a closed journal accepts nothing");
    }
}
