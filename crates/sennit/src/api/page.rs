//! The page for browsers, which `make page` builds from `web/` and the build takes in.
//!
//! Its files hold nothing of this daemon: what it shows it asks of the API, with a token where one
//! is needed. For whoever may look without one, the status stands in the page already, as data,
//! with what he may do, which spares two requests before there is something to see.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::Request,
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use tokio::time::timeout;

use super::{
    Role, Shared,
    call::Caller,
    watch::{Paths, Scope},
};

/// One file of the page.
struct File {
    path: &'static str,
    /// Another for other content.
    tag: &'static str,
    plain: &'static [u8],
    gzip: Option<&'static [u8]>,
}

/// If the page was not built, one that says so.
static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// The page may load and ask nothing but what is here, and no other page may show it in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The status in the page is that of the page's first request for it.
const SCOPE: Scope = Scope {
    flows: false,
    paths: Paths::Own,
};
/// A daemon that takes longer to tell its status is asked by the page, which then says so.
const PROMPTLY: Duration = Duration::from_millis(100);
/// A status of more bytes, of a hub with a thousand sites, would hold up the page's own files.
const LONGEST: usize = 512 << 10;

/// Whether the page has such a file.
pub(super) fn has(path: &str) -> bool {
    FILES.iter().any(|file| file.path == path)
}

/// Routes to the files of the page.
pub(super) fn router(shared: &Arc<Shared>) -> Router {
    let mut router = Router::new();
    for file in FILES {
        let shared = Arc::clone(shared);
        let handler = move |request: Request| async move {
            let page = match (file.path, request.extensions().get::<Caller>()) {
                (
                    "/",
                    Some(&Caller {
                        role: Some(role), ..
                    }),
                ) => {
                    let status = status_of(&shared).await;
                    status.and_then(|status| with_status(file.plain, &status, role))
                }
                _ => None,
            };
            page.map_or_else(|| send(file, request.headers()), send_once)
        };
        router = router.route(file.path, get(handler));
    }
    router
}

/// The status as JSON, if it is there at once.
async fn status_of(shared: &Shared) -> Option<Vec<u8>> {
    let sight = timeout(PROMPTLY, shared.watch.status(SCOPE)).await;
    let json = sight.ok()?.ok()?.json;
    (json.len() <= LONGEST).then(|| json.to_vec())
}

/// The page with a document in it as data, which no browser runs, and with the role of who asks.
fn with_status(page: &[u8], json: &[u8], role: Role) -> Option<String> {
    let (page, json) = (str::from_utf8(page).ok()?, str::from_utf8(json).ok()?);
    let (before, after) = page.split_once("</head>")?;
    // In JSON it stands in texts only; in HTML it might end the script, or begin a comment in it.
    let json = json.replace('<', r"\u003c");
    // As JSON it is a word in quotes.
    let role = serde_json::to_string(&role).ok()?;
    let block =
        format!(r#"<script type="application/json" id="status" data-role={role}>{json}</script>"#);
    Some([before, &block, "</head>", after].concat())
}

/// The page for one who sees it now: nobody keeps it.
fn send_once(page: String) -> Response {
    let about = [
        (header::CONTENT_TYPE, kind("/")),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (fixed(), about, page).into_response()
}

fn send(file: &File, headers: &HeaderMap) -> Response {
    // The names of assets change with their content.
    let keep = if file.path.starts_with("/assets/") {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    let about = [
        (header::ETAG, file.tag),
        (header::CACHE_CONTROL, keep),
        (header::VARY, "accept-encoding"),
    ];
    if names(headers, &header::IF_NONE_MATCH, file.tag) {
        return (StatusCode::NOT_MODIFIED, fixed(), about).into_response();
    }
    let kind = (header::CONTENT_TYPE, kind(file.path));
    match file.gzip {
        Some(gzip) if names(headers, &header::ACCEPT_ENCODING, "gzip") => {
            let encoding = (header::CONTENT_ENCODING, "gzip");
            (fixed(), about, [kind, encoding], gzip).into_response()
        }
        _ => (fixed(), about, [kind], file.plain).into_response(),
    }
}

fn fixed() -> [(HeaderName, &'static str); 3] {
    [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ]
}

/// Whether this is in a list with commas; what follows a semicolon does not matter, but for `q=0`.
fn names(headers: &HeaderMap, list: &HeaderName, wanted: &str) -> bool {
    let lines = headers.get_all(list).iter();
    let mut items = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','));
    items.any(|item| {
        let (name, rest) = item.split_once(';').unwrap_or((item, ""));
        name.trim() == wanted && rest.trim() != "q=0"
    })
}

fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        Some("svg") => "image/svg+xml",
        _ => "text/html; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const SCRIPT: File = File {
        path: "/assets/page-1.js",
        tag: "\"0123\"",
        plain: b"plain",
        gzip: Some(b"small"),
    };

    fn ask(headers: &[(HeaderName, &'static str)]) -> Response {
        let pairs = headers.iter().cloned();
        send(
            &SCRIPT,
            &pairs
                .map(|(name, value)| (name, HeaderValue::from_static(value)))
                .collect(),
        )
    }

    fn said(response: &Response, name: HeaderName) -> &str {
        response
            .headers()
            .get(name)
            .map_or("", |it| it.to_str().unwrap())
    }

    #[test]
    fn who_takes_gzip_gets_it_and_others_get_the_file() {
        let small = ask(&[(header::ACCEPT_ENCODING, "br, gzip;q=0.8")]);
        assert_eq!(said(&small, header::CONTENT_ENCODING), "gzip");
        assert_eq!(said(&small, header::CONTENT_TYPE), "text/javascript");
        for other in ["", "br", "gzip;q=0", "x-gzip"] {
            let plain = ask(&[(header::ACCEPT_ENCODING, other)]);
            assert_eq!(said(&plain, header::CONTENT_ENCODING), "", "{other}");
        }
    }

    #[test]
    fn who_has_a_file_is_told_that_it_is_the_same() {
        let same = ask(&[(header::IF_NONE_MATCH, "\"9999\", \"0123\"")]);
        assert_eq!(same.status(), StatusCode::NOT_MODIFIED);
        let other = ask(&[(header::IF_NONE_MATCH, "\"9999\"")]);
        assert_eq!(other.status(), StatusCode::OK);
    }

    #[test]
    fn a_status_in_the_page_is_data_and_cannot_end_it() {
        let page = b"<html><head></head><body></body></html>";
        let json = br#"{"name":"</script><script>alert(1)</script><!--","level":1}"#;

        let page = with_status(page, json, Role::Operate).unwrap();

        let begin = r#"<script type="application/json" id="status" data-role="operate">"#;
        let (_, block) = page.split_once(begin).unwrap();
        let (block, rest) = block.split_once("</script>").unwrap();
        assert_eq!(rest, "</head><body></body></html>");
        let read = |json: &[u8]| serde_json::from_slice::<serde_json::Value>(json).unwrap();
        assert_eq!(read(block.as_bytes()), read(json));
    }

    #[test]
    fn every_answer_says_what_the_page_may_load() {
        for answer in [
            ask(&[]),
            ask(&[(header::IF_NONE_MATCH, "\"0123\"")]),
            send_once(String::new()),
        ] {
            assert!(
                said(&answer, header::CONTENT_SECURITY_POLICY).starts_with("default-src 'none'")
            );
            assert_eq!(said(&answer, header::X_CONTENT_TYPE_OPTIONS), "nosniff");
        }
    }
}
