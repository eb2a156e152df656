use super::on_each;
use crate::catalog::lookup;
use crate::validate::{ValidateError, filter};
use thalweg_shapes_model::table::TableName;

#[test]
fn postgres_reads_a_predicate_and_runs_nothing() {
    on_each(|db| {
        db.run(
            "CREATE TYPE mood AS ENUM ('ok'); CREATE TABLE t (id int, name text, e date, m mood, ms mood[], tags text[]);
            INSERT INTO t VALUES (1, 'a', 'today'); CREATE TABLE secrets (id int)",
        );
        let name = TableName { schema: "public".into(), name: "t".into() };
        let mut session = db.session();
        let table = lookup(&mut session, "p", &name).unwrap().unwrap().table;
        let one = [(1, "x".to_owned())];
        for sql in ["id = 1", "id = 1 -- one", "name = $1 AND id > 2.5", "e < $1", "1 / 0 = 1", "pg_sleep(60) IS NULL"]
        {
            assert!(filter(&mut session, &table, sql, &one).unwrap(), "{sql}");
        }
        for sql in ["m = 'ok' AND ms @> '{ok}'", "tags && '{a,b}' AND name IN ('a', $1)"] {
            assert!(filter(&mut session, &table, sql, &one).unwrap(), "{sql}");
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
        assert_eq!(refused("nofunction(id)"), "At location 15: function nofunction(integer) does not exist");
        assert!(session.is_usable());
    });
}

#[test]
fn reading_a_predicate_runs_no_code_of_who_made_a_type() {
    on_each(|db| {
        // A domain's check runs when a constant of a type made of the domain is parsed.
        db.run(
            "CREATE TABLE ran (n int); CREATE FUNCTION run(n int) RETURNS bool LANGUAGE plpgsql AS
                $$BEGIN INSERT INTO ran VALUES (n); RETURN true; END$$;
            CREATE DOMAIN checked AS int CHECK (run(VALUE)); CREATE TYPE pair AS (a checked, b int);
            CREATE TABLE t (id int, one checked, many checked[], p pair, ps pair[])",
        );
        let name = TableName { schema: "public".into(), name: "t".into() };
        let mut session = db.session();
        let table = lookup(&mut session, "p", &name).unwrap().unwrap().table;
        for sql in [
            "many = '{1}'",
            "p = '(2,3)'",
            "ps = '{\"(4,5)\"}'",
            "one = '6'",
            "'{7}'::public.checked[] IS NULL",
            "'{8}'::checked[] IS NULL",
            "CAST('(9,9)' AS public . pair) IS NULL",
            "many = ANY (SELECT '{1}'::public.checked[])",
            "id IN (SELECT 1 FROM public.t WHERE many = '{10}')",
        ] {
            let _ = filter(&mut session, &table, sql, &[]);
        }
        assert_eq!(db.value("SELECT count(*) FROM ran"), "0");
        assert!(session.is_usable());
    });
}
