//! Policies that tell browsers how to treat answers.

use crate::client::{Client, get};
use crate::service::stand;

const DATA_ONLY: Option<&str> = Some("default-src 'none'; sandbox");

#[test]
fn no_answer_is_a_document_of_our_origin() {
    let stand = stand();
    stand.advance(1);
    stand.paths.open();
    for path in ["/echo", "/held?1", "/later?1", "/parts?3", "/many?30000", "/sized?30000", "/last", "/guarded"] {
        let mut client = Client::new(&stand.server);
        let answer = client.get(path);
        assert_eq!(answer.field("content-security-policy"), DATA_ONLY, "{path}");
        assert_eq!(answer.field("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.head.to_ascii_lowercase().matches("content-security-policy").count(), 1, "{path}");
    }
    let mut client = Client::new(&stand.server);
    client.send("HEAD /echo HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.head().field("content-security-policy"), DATA_ONLY);
    // A refusal by the framing, and an answer without a body.
    client.send("GET / HTTP/1.1\r\n\r\n");
    assert_eq!(client.answer().field("content-security-policy"), DATA_ONLY);
    let nothing = Client::new(&stand.server).get("/none");
    assert_eq!((nothing.status, nothing.field("x-content-type-options")), (204, Some("nosniff")));
}

#[test]
fn a_page_of_the_service_has_its_own_policy_alone() {
    let stand = stand();
    let mut client = Client::new(&stand.server);
    client.send(get("/page"));
    let answer = client.answer();
    assert_eq!(answer.field("content-security-policy"), Some("script-src 'self'"));
    assert_eq!(answer.head.matches("content-security-policy").count(), 1);
    assert_eq!(answer.field("x-content-type-options"), Some("nosniff"));
}
