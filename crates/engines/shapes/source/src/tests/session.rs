use super::on_each;
use crate::catalog::lookup;
use crate::session::Session;
use crate::snapshot::{Taken, copy};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;
use thalweg_shapes_model::table::TableName;

/// Every setting of the server's process, as the next client of a pooler would find it.
fn settings(session: &mut Session) -> BTreeMap<String, String> {
    let all = session.conn().simple("SELECT name, setting FROM pg_catalog.pg_settings").unwrap().pop().unwrap();
    let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
    all.rows().map(|row| (text(row.get(0)), text(row.get(1)))).collect()
}

#[test]
fn nothing_stays_on_a_connection_that_a_transaction_pooler_lends_to_others() {
    on_each(|db| {
        db.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2)");
        let mut session = db.session();
        // Settings that another client has made, and relies on.
        let others = "SET search_path = public; SET IntervalStyle = 'postgres_verbose'; SET bytea_output = 'escape'; SET row_security = on; \
                      SET statement_timeout = '7s'; SET TimeZone = 'Asia/Tokyo'";
        session.conn().simple(others).unwrap();
        let before = settings(&mut session);
        session.sql().ask("SELECT 1").unwrap();
        assert!(session.sql().ask("SELECT 1 / 0").is_err());
        session.sql().change(Duration::from_secs(1), "CREATE TABLE public.made (id int)").unwrap();
        assert!(session.sql().change(Duration::from_secs(1), "CREATE TABLE public.made (id int)").is_err());
        let name = TableName { schema: "public".into(), name: "t".into() };
        let table = lookup(&mut session, "none", &name).unwrap().unwrap().table;
        for stops in [false, true] {
            let mut rows = 0;
            let copied = copy(&mut session, &table, "SELECT id FROM public.t", None, |taken| {
                rows += usize::from(matches!(taken, Taken::Row(_)));
                if stops && rows > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert_eq!(copied.is_err(), stops);
            if !session.is_usable() {
                return;
            }
            assert_eq!(settings(&mut session), before);
        }
    });
}
