//! Who can reach the API, and what that needs.

use super::*;

/// What is said of an edge's `[api]`.
fn said_of_api(api: &str) -> String {
    let text = format!(
        "[edge]\nhub = [\"203.0.113.10:443\"]\n[[link]]\nname = \"a\"\ninterface = \"eth1\"\n\
         [api]\n{api}\n"
    );
    match EdgeConfig::parse("edge.toml", text.as_bytes()) {
        Ok(loaded) => loaded.warnings.to_string(),
        Err(report) => report.to_string(),
    }
}

#[test]
fn an_api_that_others_can_reach_needs_tls_and_a_token() {
    let tls = "tls_certificate = \"/a.pem\"\ntls_key = \"/a.key\"\n";
    let token = "read_token = \"file:/t\"\n";
    let open = "listen = [\"127.0.0.1:8479\", \"0.0.0.0:8479\"]\n";
    for (more, missing) in [
        (String::new(), "tls_certificate, tls_key and a token"),
        (tls.into(), "a token"),
        (token.into(), "tls_certificate and tls_key"),
    ] {
        let said = said_of_api(&(open.to_owned() + &more));
        assert!(said.contains("others can reach 0.0.0.0:8479"), "{said}");
        assert!(said.contains(&format!("^ this needs {missing}")), "{said}");
        assert_eq!(said.matches("error").count(), 1, "{said}");
    }

    assert_eq!(said_of_api(&(open.to_owned() + tls + token)), "");
    for near in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        assert_eq!(said_of_api(&format!("listen = [\"{near}\"]")), "", "{near}");
    }
}

#[test]
fn what_is_wrong_with_an_api_is_said_where_it_is() {
    for (api, words) in [
        ("tls_key = \"/a.key\"", "`tls_key` needs `tls_certificate`"),
        (
            "tls_certificate = \"/a\"",
            "`tls_certificate` needs `tls_key`",
        ),
        (
            "read_token = \"hunter2\"",
            "a secret does not belong into the config",
        ),
        (
            "hosts = [\"router.lan:80\"]",
            "`router.lan:80` is no host name",
        ),
        ("hosts = [\"http://router\"]", "is no host name"),
        ("listen = [\"127.0.0.1\"]", "the port is missing"),
        (
            "listen = [\"127.0.0.1:1\", \"127.0.0.1:1\"]",
            "names 127.0.0.1:1 twice",
        ),
        ("listen = 8479", "`listen` must be a list of strings"),
        ("tokens = []", "unknown key `tokens` in [api]"),
    ] {
        let said = said_of_api(api);
        assert!(
            said.contains(words) && said.contains("edge.toml:7"),
            "{api}: {said}"
        );
    }
}
