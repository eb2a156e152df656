use super::*;
use crate::serve::admission::{Kind, Overloaded};
use thalweg_shapes_core::request::raw_params::BodyError;
use thalweg_shapes_model::invalid::Invalid;

const NOW: RequestClock = RequestClock { now_s: CURSOR_EPOCH_S + 101, random: 7, unique: 99 };

fn responder() -> Responder {
    Responder::new(Settings::default(), "1.2.3")
}

fn context(method: Method<'_>, headers: &[(&str, &[u8])]) -> RequestContext {
    let request = Request { method, path: "/v1/shape", query: None, headers: Headers(headers), body: b"" };
    RequestContext::new(&request, Route::Shape, 0xab)
}

fn page<'a>(asked: &str, mode: Mode<'a>) -> Page<'a> {
    Page {
        handle: "123-456",
        asked: asked.parse().unwrap(),
        offset: ShapeOffset::new(100, 2),
        mode,
        up_to_date: true,
        has_data: true,
    }
}

fn lines(response: &Response) -> Vec<(String, String)> {
    let head = std::str::from_utf8(&response.head).unwrap();
    let line = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap();
    head.split_terminator("\r\n").map(line).collect()
}

fn line(response: &Response, name: &str) -> Option<String> {
    let found: Vec<_> = lines(response).into_iter().filter(|(known, _)| known == name).collect();
    assert!(found.len() <= 1, "{name} stands there twice");
    found.into_iter().next().map(|(_, value)| value)
}

fn body(response: &Response) -> &str {
    match &response.body {
        Body::Bytes(bytes) => std::str::from_utf8(bytes).unwrap(),
        Body::Empty => "",
        _ => panic!("not in one piece"),
    }
}

const CATCH_UP: Mode<'_> = Mode::CatchUp { schema: "{}" };

#[test]
fn a_page_has_these_headers() {
    let response = responder().page(&context(Method::Get, &[]), &page("50_0", CATCH_UP), NOW, Body::Empty);
    let expected = "electric-server: Thalweg/1.2.3\r\n\
x-request-id: 000000000000000000000000000000ab\r\n\
access-control-allow-origin: *\r\n\
cross-origin-resource-policy: cross-origin\r\n\
access-control-expose-headers: electric-cursor,electric-handle,electric-has-data,electric-offset,electric-schema,\
electric-up-to-date,electric-internal-known-error,retry-after\r\n\
access-control-allow-methods: GET, POST, HEAD, DELETE, OPTIONS\r\n\
cache-control: public, max-age=60, stale-while-revalidate=300\r\n\
etag: \"123-456:50_0:100_2\"\r\n\
electric-handle: 123-456\r\n\
electric-schema: {}\r\n\
electric-up-to-date: \r\n\
electric-has-data: true\r\n\
electric-offset: 100_2\r\n\
content-type: application/json; charset=utf-8\r\n";
    assert_eq!((response.status, std::str::from_utf8(&response.head).unwrap()), (200, expected));
}

#[test]
fn a_live_page_has_a_cursor_and_no_schema() {
    let mode = Mode::LongPoll { cursor: None };
    let response = responder().page(&context(Method::Get, &[]), &page("50_0", mode), NOW, Body::Empty);
    assert_eq!(line(&response, "electric-cursor").as_deref(), Some("120"));
    assert_eq!(line(&response, "electric-schema"), None);
    assert_eq!(line(&response, "cache-control").unwrap(), "public, max-age=5, stale-while-revalidate=5");
}

#[test]
fn a_page_that_goes_on_is_not_up_to_date() {
    let page = Page { up_to_date: false, ..page("0_0", CATCH_UP) };
    let response = responder().page(&context(Method::Get, &[]), &page, NOW, Body::Empty);
    assert_eq!(line(&response, "electric-up-to-date"), None);
}

#[test]
fn an_empty_page_has_a_tag_that_never_comes_again() {
    let page = Page { has_data: false, ..page("100_2", Mode::LongPoll { cursor: None }) };
    let response = responder().page(&context(Method::Get, &[]), &page, NOW, Body::Empty);
    assert_eq!(line(&response, "etag").unwrap(), "\"123-456:100_2:100_2:99\"");
    assert_eq!(line(&response, "electric-has-data").unwrap(), "false");
}

#[test]
fn caches_keep_the_beginning_long_and_streams_as_long_as_they_last() {
    let of = |method, asked, mode| {
        line(&responder().page(&context(method, &[]), &page(asked, mode), NOW, Body::Empty), "cache-control").unwrap()
    };
    let first = "public, max-age=604800, s-maxage=3600, stale-while-revalidate=2629746";
    assert_eq!(of(Method::Get, "-1", CATCH_UP), first);
    assert_eq!(of(Method::Head, "-1", CATCH_UP), first);
    assert_eq!(of(Method::Get, "now", CATCH_UP), "public, max-age=60, stale-while-revalidate=300");
    assert_eq!(of(Method::Get, "1_0", Mode::Events { cursor: None }), "public, max-age=59");
    assert_eq!(of(Method::Post, "-1", CATCH_UP), "no-cache");
    let short =
        Responder::new(Settings { sse_timeout_ms: 500, max_age_s: 1, stale_age_s: 3, ..Settings::default() }, "");
    let of =
        |mode| line(&short.page(&context(Method::Get, &[]), &page("1_0", mode), NOW, Body::Empty), "cache-control");
    assert_eq!(of(Mode::Events { cursor: None }).unwrap(), "public, max-age=1");
    assert_eq!(of(CATCH_UP).unwrap(), "public, max-age=1, stale-while-revalidate=3");
}

#[test]
fn events_have_their_own_type() {
    let mode = Mode::Events { cursor: Some("7") };
    let response = responder().page(&context(Method::Get, &[]), &page("1_0", mode), NOW, Body::Empty);
    assert_eq!(line(&response, "content-type").unwrap(), "text/event-stream");
}

#[test]
fn a_cursor_is_the_end_of_the_interval_and_always_new_to_its_client() {
    let of = |long_poll_ms, now_s, given: Option<&str>| {
        let responder = Responder::new(Settings { long_poll_ms, ..Settings::default() }, "");
        responder.cursor(given, RequestClock { now_s: CURSOR_EPOCH_S + now_s, ..NOW })
    };
    assert_eq!([of(20_000, 100, None), of(20_000, 101, None), of(20_000, 120, None)], [100, 120, 120]);
    assert_eq!(of(20_000, 101, Some("100")), 120);
    assert_eq!(of(20_000, 101, Some("120")), 128, "with seven of chance");
    assert_eq!(of(20_000, 101, Some("4000")), 4008);
    assert_eq!([of(20_000, 101, Some("x")), of(20_000, 101, Some("-5")), of(20_000, 101, Some(""))], [120; 3]);
    assert_eq!(of(20_000, 101, Some("18446744073709551615")), u64::MAX);
    assert_eq!(of(999, 101, None), 0);
    let random = RequestClock { random: u32::MAX, ..NOW };
    assert!((121..=3720).contains(&responder().cursor(Some("120"), random)));
}

#[test]
fn a_client_that_has_the_answer_is_told_so() {
    let page = page("50_0", CATCH_UP);
    let known = |values: &[&str]| {
        let headers: Vec<(&str, &[u8])> = values.iter().map(|value| ("If-None-Match", value.as_bytes())).collect();
        page.is_known(Headers(&headers))
    };
    assert!(known(&["\"123-456:50_0:100_2\""]) && known(&["x, \"y\" ,123-456:50_0:100_2"]));
    assert!(known(&["a", "\"123-456:50_0:100_2\""]));
    assert!(!known(&[]) && !known(&["\"123-456:50_0:100_4\"", "*"]) && !known(&["W/\"123-456:50_0:100_2\""]));
    let response = responder().not_modified(&context(Method::Get, &[]), &page, NOW);
    assert_eq!(response.status, 304);
    assert_eq!(line(&response, "etag").unwrap(), "\"123-456:50_0:100_2\"");
    assert_eq!(line(&response, "electric-schema"), None);
}

#[test]
fn a_subset_is_never_cached() {
    let response = responder().subset(&context(Method::Post, &[]), "h", ShapeOffset::SNAPSHOT_END, "{}", Body::Empty);
    let line = |name| line(&response, name);
    assert_eq!(line("cache-control").as_deref(), Some("no-cache"));
    assert_eq!(line("electric-snapshot").as_deref(), Some("true"));
    assert_eq!(line("electric-offset").as_deref(), Some("0_inf"));
    assert_eq!((line("electric-handle").as_deref(), line("etag")), (Some("h"), None));
}

#[test]
fn pages_of_every_origin_may_read_the_same_answer() {
    for origin in [&b"https://a.b"[..], b"https://a.b\r\nx: y", b"null"] {
        let response = responder().health(&context(Method::Get, &[("Origin", origin)]), Health::Active);
        assert_eq!(line(&response, "access-control-allow-origin").unwrap(), "*");
    }
    let request = Request { method: Method::Get, path: "/x", query: None, headers: Headers(&[]), body: b"" };
    let elsewhere = responder().refuse(&RequestContext::new(&request, Route::Unknown, 1), &Refusal::Unknown, NOW);
    assert_eq!(line(&elsewhere, "access-control-allow-methods").unwrap(), "GET, HEAD");
    assert_eq!((elsewhere.status, body(&elsewhere)), (404, "Not found"));
}

#[test]
fn requests_keep_their_names_if_they_are_names() {
    let id = |given: &[u8]| context(Method::Get, &[("x-request-id", given)]).request_id().to_owned();
    assert_eq!(id(b"01234567890123456789"), "01234567890123456789");
    let made = format!("{:032x}", 0xab);
    for given in [b"short".to_vec(), vec![b'a'; 201], b"0123456789 0123456789".to_vec(), vec![0xff; 30]] {
        assert_eq!(id(&given), made);
    }
}

#[test]
fn a_preflight_allows_what_clients_send() {
    let of = |wanted: &[u8]| {
        let headers: &[(&str, &[u8])] = &[("access-control-request-headers", wanted)];
        let response = responder().preflight(&context(Method::Options, &[]), Headers(headers));
        assert_eq!((response.status, line(&response, "access-control-max-age").as_deref()), (204, Some("86400")));
        assert_eq!(line(&response, "cache-control"), None);
        line(&response, "access-control-allow-headers")
    };
    assert_eq!(of(b"If-None-Match, x-other,traceparent").as_deref(), Some("If-None-Match,traceparent"));
    assert_eq!(of(b"content-type").as_deref(), Some("content-type"));
    assert_eq!(of(b"authorization").as_deref(), Some("authorization"), "tokens are sent there");
    assert_eq!(of(b"cookie"), None);
}

#[test]
fn what_a_token_gets_is_kept_by_no_cache_that_others_use() {
    let context = |method| context(method, &[]).private(true);
    let live = || Mode::LongPoll { cursor: None };
    let answers = [
        responder().page(&context(Method::Get), &page("-1", CATCH_UP), NOW, Body::Empty),
        responder().page(&context(Method::Head), &page("50_0", CATCH_UP), NOW, Body::Empty),
        responder().page(&context(Method::Get), &page("50_0", live()), NOW, Body::Empty),
        responder().page(&context(Method::Get), &page("50_0", Mode::Events { cursor: None }), NOW, Body::Empty),
        responder().not_modified(&context(Method::Get), &page("50_0", CATCH_UP), NOW),
        responder().subset(&context(Method::Get), "1-2", ShapeOffset::new(1, 2), "{}", Body::Empty),
        responder().refuse(&context(Method::Get), &Refusal::MustRefetch(Some("1-2".into())), NOW),
        responder().refuse(&context(Method::Get), &Refusal::MustRefetch(None), NOW),
    ];
    for answer in &answers {
        assert_eq!(line(answer, "cache-control").as_deref(), Some("private, no-cache"), "{:?}", lines(answer));
        assert_eq!(line(answer, "vary").as_deref(), Some("authorization, cookie"));
    }
    let posted = responder().page(&context(Method::Post), &page("50_0", CATCH_UP), NOW, Body::Empty);
    assert_eq!(line(&posted, "cache-control").as_deref(), Some("no-cache"));
}

#[test]
fn a_token_that_does_not_allow_it_is_told_so() {
    for (status, code) in [(401, "expired_token"), (403, "scope_missing")] {
        let denied = Refusal::Denied(Denied { status, code, message: "why".into() });
        let response = responder().refuse(&context(Method::Get, &[]), &denied, NOW);
        assert_eq!((response.status, body(&response)), (status, &*format!(r#"{{"code":"{code}","message":"why"}}"#)));
        assert_eq!(line(&response, "cache-control").as_deref(), Some("no-store"));
        assert_eq!(line(&response, "www-authenticate").as_deref(), Some("Bearer realm=\"thalweg\""));
        assert_eq!(line(&response, "access-control-allow-origin").as_deref(), Some("*"), "a page may see it");
    }
}

#[test]
fn health_tells_the_state() {
    for (health, status, text) in [
        (Health::Active, 200, r#"{"status":"active"}"#),
        (Health::Waiting, 202, r#"{"status":"waiting"}"#),
        (Health::Starting, 202, r#"{"status":"starting"}"#),
    ] {
        let response = responder().health(&context(Method::Get, &[]), health);
        assert_eq!((response.status, body(&response)), (status, text));
        assert_eq!(line(&response, "cache-control").unwrap(), "no-cache, no-store, must-revalidate");
    }
}

/// Status, Retry-After, Cache-Control, known error, body.
fn told(refusal: &Refusal) -> (u16, Option<String>, String, bool, String) {
    let response = responder().refuse(&context(Method::Get, &[]), refusal, NOW);
    assert_eq!(line(&response, "electric-has-data"), None);
    let cache = line(&response, "cache-control").unwrap();
    assert_eq!(line(&response, "surrogate-control").is_some(), cache == "no-store");
    let known = line(&response, "electric-internal-known-error").is_some_and(|value| value == "true");
    (response.status, line(&response, "retry-after"), cache, known, body(&response).to_owned())
}

#[test]
fn every_refusal_has_its_status_and_words() {
    let plain = |refusal: Refusal, status: u16, text: &str| {
        assert_eq!(told(&refusal), (status, None, "no-store".to_owned(), false, text.to_owned()));
    };
    plain(
        Refusal::out_of_bounds(),
        400,
        r#"{"errors":{"offset":["out of bounds for this shape"]},"message":"Invalid request"}"#,
    );
    plain(
        Refusal::Invalid(Invalid::shape("where", "no")),
        400,
        r#"{"errors":{"where":["no"]},"message":"Invalid request"}"#,
    );
    plain(
        Refusal::Mismatch,
        400,
        r#"{"message":"The specified shape definition and handle do not match. Please ensure the shape definition is correct or omit the shape handle from the request to obtain a new one."}"#,
    );
    plain(Refusal::Body(BodyError::TooLarge), 413, r#"{"error":"Request body too large"}"#);
    plain(Refusal::Body(BodyError::NotObject), 400, r#"{"error":"Request body must be a JSON object"}"#);
    plain(
        Refusal::Body(BodyError::NotJson("why".into())),
        400,
        r#"{"details":"why","error":"Invalid JSON in request body"}"#,
    );
    plain(Refusal::Secret, 401, r#"{"message":"Unauthorized - Invalid API secret"}"#);
    plain(Refusal::NoShape, 404, r#"{"message":"No existing shape found"}"#);
    plain(Refusal::NoDelete, 405, r#"{"message":"DELETE not allowed"}"#);
    plain(Refusal::Unreadable("x".into()), 500, r#"{"message":"Unable to retrieve shape log: x"}"#);
}

#[test]
fn refusals_that_pass_say_when_to_come_back() {
    let later = |refusal: Refusal, seconds: &str, known: bool, text: &str| {
        let expected = (503, Some(seconds.to_owned()), "no-store".to_owned(), known, text.to_owned());
        assert_eq!(told(&refusal), expected);
    };
    later(
        Refusal::Overloaded(Overloaded { kind: Kind::Initial, limit: 300 }),
        "8",
        true,
        r#"{"code":"concurrent_request_limit_exceeded","message":"Concurrent initial request limit exceeded (limit: 300), please retry"}"#,
    );
    later(Refusal::Database, "10", false, r#"{"code":"database_unreachable","error":"Database is unreachable"}"#);
    later(Refusal::NotReady("x".into()), "5", false, r#"{"message":"x"}"#);
    later(Refusal::Snapshot("x".into()), "10", true, r#"{"message":"x"}"#);
    later(
        Refusal::Unavailable { code: "c", message: "m".into(), retry_after_s: 3 },
        "3",
        true,
        r#"{"code":"c","message":"m"}"#,
    );
    let overloaded = Refusal::Overloaded(Overloaded { kind: Kind::Existing, limit: 1 });
    assert!((0..100).all(|random| (6..=10).contains(&overloaded.retry_after_s(random).unwrap())));
}

#[test]
fn who_must_refetch_is_told_where_and_caches_may_help() {
    let refetch = r#"[{"headers":{"control":"must-refetch"}}]"#;
    let at = |handle: Option<&str>| {
        let response =
            responder().refuse(&context(Method::Get, &[]), &Refusal::MustRefetch(handle.map(Into::into)), NOW);
        assert_eq!((response.status, body(&response)), (409, refetch));
        (line(&response, "electric-handle"), line(&response, "cache-control").unwrap())
    };
    assert_eq!(at(Some("h2")), (Some("h2".to_owned()), "public, max-age=60, must-revalidate".to_owned()));
    assert_eq!(at(None), (None, "no-store".to_owned()), "the same URL is asked for again at once");
    let posted = responder().refuse(&context(Method::Post, &[]), &Refusal::MustRefetch(None), NOW);
    assert_eq!(line(&posted, "cache-control").unwrap(), "no-cache");
}

#[test]
fn a_deleted_shape_is_202() {
    let response = responder().deleted(&context(Method::Delete, &[]));
    assert_eq!((response.status, body(&response)), (202, ""));
    assert_eq!(line(&response, "cache-control").unwrap(), "no-cache");
}
