//! The live page at `/`, for browsers: it draws `/metrics`, and lists streams and shapes. Its files are sent as one.

use rust_embed::Embed;
use std::fmt::Write;
use std::sync::OnceLock;
use thalweg_http::Response;

#[derive(Embed)]
#[folder = "live"]
struct Files;

/// Placeholder in the file for an answer's nonce.
const NONCE: &str = "NONCE";

/// Whether the client prefers a page to text.
pub(crate) fn is_wanted(accept: Option<&[u8]>) -> bool {
    accept.is_some_and(|accept| accept.windows(9).any(|part| part.eq_ignore_ascii_case(b"text/html")))
}

/// The scripts, in the order in which they are needed.
const SCRIPTS: [&str; 4] = ["figures.js", "charts.js", "lists.js", "page.js"];

/// The page with its style and its scripts in it.
fn whole() -> Option<String> {
    let file = |name: &str| Files::get(name).map(|file| String::from_utf8_lossy(&file.data).into_owned());
    let scripts: Option<String> = SCRIPTS.iter().map(|name| file(name)).collect();
    Some(file("index.html")?.replace("STYLE", &file("style.css")?).replace("SCRIPT", &scripts?))
}

/// Puts the page into a response. It may load and run only itself, and connect to this server only.
pub(crate) fn page(response: Response) -> Response {
    static WHOLE: OnceLock<Option<String>> = OnceLock::new();
    let Some(whole) = WHOLE.get_or_init(whole) else { return response };
    let nonce = nonce();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let text = whole.replace(NONCE, &nonce);
    let mut response = response
        .header("content-security-policy", policy)
        .header("referrer-policy", "no-referrer")
        // A page that opened this one, or was opened by it, gets no handle on it.
        .header("cross-origin-opener-policy", "same-origin")
        .body(text);
    response.page = true;
    response
}

fn nonce() -> String {
    let mut bytes = [0_u8; 16];
    // Without entropy the page is blank, which is safe: an empty nonce matches nothing.
    if rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK) != Ok(bytes.len()) {
        return String::new();
    }
    bytes.iter().fold(String::with_capacity(32), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_http::Body;

    fn shown() -> (String, String) {
        let response = page(Response::new(200));
        let Body::Bytes(body) = response.body else { panic!("no page") };
        (String::from_utf8(response.head).unwrap(), String::from_utf8(body.to_vec()).unwrap())
    }

    #[test]
    fn the_page_brings_everything_along_and_may_load_nothing() {
        let (head, body) = shown();
        assert!(head.contains("default-src 'none'") && !head.contains("unsafe"));
        for outside in ["http://", "https://", "src=", "@import", NONCE] {
            assert!(!body.contains(outside), "{outside}");
        }
    }

    #[test]
    fn every_answer_has_a_nonce_of_its_own_in_head_and_body() {
        let (head, body) = shown();
        let nonce = head.split("'nonce-").nth(1).and_then(|rest| rest.split('\'').next()).unwrap().to_owned();
        assert_eq!(nonce.len(), 32);
        assert_eq!(body.matches(&nonce).count(), 2);
        assert!(!shown().0.contains(&nonce));
    }

    #[test]
    fn every_figure_of_the_page_is_a_metric() {
        let metrics = crate::tests::Rig::with_shapes().page();
        let page = shown().1;
        let names =
            page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.starts_with("thalweg_"));
        // By this one the page knows that the server is a node.
        let names = names.filter(|name| *name != "thalweg_node_units");
        let unknown: Vec<_> = names.filter(|name| !metrics.contains(&format!("\n{name}"))).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn browsers_get_the_page_and_programs_the_text() {
        assert!(is_wanted(Some(b"text/html,application/xhtml+xml,*/*;q=0.8")));
        assert!(!is_wanted(Some(b"*/*")) && !is_wanted(None) && !is_wanted(Some(b"text")));
    }
}
