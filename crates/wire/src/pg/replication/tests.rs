use super::*;

#[test]
fn names_cannot_leave_their_quotes() {
    let options =
        StartOptions { publications: vec!["a\"'b".into(), "c\\".into()], messages: true, ..StartOptions::default() };
    assert_eq!(
        start_sql("s", Lsn(0x1_0000_0002), &options).unwrap(),
        "START_REPLICATION SLOT \"s\" LOGICAL 1/2 (proto_version '2', publication_names '\"a\"\"''b\",\"c\\\"', streaming 'on', messages 'on')"
    );
    assert!(matches!(start_sql("s\" LOGICAL", Lsn::ZERO, &options), Err(Error::Refused(_))));
}
