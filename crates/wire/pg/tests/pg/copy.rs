use crate::support::{connect, database, each_cluster};
use thalweg_pg::Error;

#[test]
fn every_row_of_a_copy_comes_once_and_in_order() {
    each_cluster(|cluster| {
        let (_, mut conn) = database(cluster);
        let mut copy =
            conn.copy_out("COPY (SELECT i, repeat('x', i % 50) FROM generate_series(1, 300000) i) TO STDOUT").unwrap();
        assert_eq!((copy.columns(), copy.is_binary()), (2, false));
        let mut rows = 0;
        while let Some(row) = copy.next().unwrap() {
            rows += 1;
            assert_eq!(row, format!("{rows}\t{}\n", "x".repeat(rows % 50)).as_bytes());
        }
        assert_eq!(rows, 300_000);
        assert!(copy.next().unwrap().is_none());
        drop(copy);
        assert_eq!(conn.simple("SELECT 1").unwrap()[0].value(), Some("1"));
    });
}

#[test]
fn rows_may_be_larger_than_any_buffer() {
    each_cluster(|cluster| {
        let (_, mut conn) = database(cluster);
        let sql = "COPY (SELECT repeat(chr(96 + i), i * 1000000) FROM generate_series(1, 6) i) TO STDOUT";
        let mut copy = conn.copy_out(sql).unwrap();
        let mut lengths = Vec::new();
        while let Some(row) = copy.next().unwrap() {
            assert!(row[..row.len() - 1].iter().all(|byte| *byte == row[0]));
            lengths.push(row.len() - 1);
        }
        assert_eq!(lengths, [1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000, 6_000_000]);
    });
}

#[test]
fn an_error_in_the_middle_is_an_error_at_that_place() {
    each_cluster(|cluster| {
        let (_, mut conn) = database(cluster);
        let mut copy = conn.copy_out("COPY (SELECT 10 / (4 - i) FROM generate_series(1, 9) i) TO STDOUT").unwrap();
        let mut rows = 0;
        let error = loop {
            match copy.next() {
                Ok(Some(_)) => rows += 1,
                Ok(None) => panic!("no error"),
                Err(error) => break error,
            }
        };
        assert_eq!((rows, error.code()), (3, Some("22012")));
        assert!(copy.next().unwrap().is_none());
        drop(copy);
        assert_eq!(conn.simple("SELECT 1").unwrap()[0].value(), Some("1"));
    });
}

#[test]
fn what_is_no_copy_out_is_refused() {
    each_cluster(|cluster| {
        let (_, mut conn) = database(cluster);
        conn.simple("CREATE TABLE t (a int)").unwrap();
        for sql in ["SELECT 1", "", "COPY t FROM STDIN", "CREATE TABLE u ()"] {
            assert!(matches!(conn.copy_out(sql), Err(Error::Refused(_))), "{sql}");
        }
        assert_eq!(conn.copy_out("COPY nowhere TO STDOUT").unwrap_err().code(), Some("42P01"));
        let mut copy = conn.copy_out("COPY t TO STDOUT (FORMAT binary)").unwrap();
        assert!(copy.is_binary());
        while copy.next().unwrap().is_some() {}
    });
}

#[test]
fn a_copy_that_is_not_read_to_its_end_poisons() {
    each_cluster(|cluster| {
        let mut conn = connect(&cluster.url("postgres"));
        let mut copy = conn.copy_out("COPY (SELECT generate_series(1, 1000000)) TO STDOUT").unwrap();
        assert_eq!(copy.next().unwrap(), Some(&b"1\n"[..]));
        drop(copy);
        assert!(matches!(conn.simple("SELECT 1"), Err(Error::Poisoned)));
    });
}
