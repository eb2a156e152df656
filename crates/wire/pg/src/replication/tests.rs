use super::*;

#[test]
fn names_cannot_leave_their_quotes() {
    let options =
        StartOptions { publications: vec!["a\"'b".into(), "c\\".into()], messages: true, ..StartOptions::default() };
    assert_eq!(
        start_sql("s", PgLsn(0x1_0000_0002), &options).unwrap(),
        "START_REPLICATION SLOT \"s\" LOGICAL 1/2 (proto_version '2', publication_names '\"a\"\"''b\",\"c\\\"', streaming 'on', messages 'on')"
    );
    assert!(matches!(start_sql("s\" LOGICAL", PgLsn::ZERO, &options), Err(Error::Refused(_))));
}

#[test]
fn a_timelines_history_is_read_as_text_and_as_bytes() {
    let text =
        "1\t0/3000148\tno recovery target specified\n\n# a remark\n2\tA/5000000\tbefore 2000-01-01 05:00:00+01\n";
    let expected = [Branch { timeline: 1, end: PgLsn(0x300_0148) }, Branch { timeline: 2, end: PgLsn(0xA_0500_0000) }];
    assert_eq!(Branch::read_all(text).as_deref(), Some(&expected[..]));
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(Branch::read_all(&format!("\\x{hex}")).as_deref(), Some(&expected[..]));
    for garbage in ["1", "x 0/1", "1 0", "\\xzz", "\\x3"] {
        assert_eq!(Branch::read_all(garbage), None, "{garbage}");
    }
}
