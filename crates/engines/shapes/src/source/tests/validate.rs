use super::on_each;
use crate::source::catalog::lookup;
use crate::source::error::SourceError;
use crate::source::validate::{ValidateError, filter};
use crate::table::TableName;

#[test]
fn postgres_reads_a_predicate_and_runs_nothing() {
    on_each(|db| {
        db.run("CREATE TABLE t (id int, name text, e date); INSERT INTO t VALUES (1, 'a', 'today'); CREATE TABLE secrets (id int)");
        let table = lookup(&mut db.plain(), "p", &TableName { schema: "public".into(), name: "t".into() })
            .unwrap()
            .unwrap()
            .table;
        let mut session = db.session();
        let one = [(1, "x".to_owned())];
        for (sql, types) in [
            ("id = 1", &[][..]),
            ("id = 1 -- one", &[]),
            ("name = $1 AND t.id > 2", &[25]),
            ("e < $1 or id in (select id from secrets)", &[1082]),
            ("1 / 0 = 1", &[]),
            ("pg_sleep(60) IS NULL", &[]),
        ] {
            assert_eq!(filter(&mut session, &table, sql, &one).unwrap(), types, "{sql}");
        }
        let mut refused = |sql: &str| match filter(&mut session, &table, sql, &one) {
            Err(ValidateError::Invalid(message)) => message,
            other => panic!("{sql}: {other:?}"),
        };
        assert_eq!(refused("nam = 'x'"), "At location 15: column \"nam\" does not exist");
        assert_eq!(refused("id"), "At location 15: argument of WHERE must be type boolean, not type integer");
        assert_eq!(refused("id = 'x'"), "At location 20: invalid input syntax for type integer: \"x\"");
        assert_eq!(refused("id = 1 ORDER BY id"), "At location 22: syntax error at or near \"ORDER\"");
        assert_eq!(refused("id = "), "syntax error at the end");
        assert_eq!(refused("id = $2 AND name = $1"), "parameter $2 was not provided");
        assert_eq!(refused("$1 IS NULL"), "could not determine data type of parameter $1");
        assert_eq!(refused("id = 1; DROP TABLE t"), "unescaped \";\" causing statement split");
        assert_eq!(
            refused("true) UNION SELECT FROM secrets WHERE (true"),
            "a parenthesis is closed that was not opened"
        );
        assert_eq!(refused("id IN (SELECT id FROM nowhere)"), "At location 37: relation \"nowhere\" does not exist");
        assert_eq!(refused("nofunction(id)"), "At location 15: function nofunction(integer) does not exist");
        db.run("DROP TABLE t");
        let gone = filter(&mut session, &table, "id = 1", &one);
        assert!(matches!(gone, Err(ValidateError::Source(SourceError::SchemaChanged(_)))), "{gone:?}");
        assert!(session.is_usable());
    });
}
