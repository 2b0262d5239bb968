//! Somebody who administers a hub edits its config and invites sites, through the API.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::world::{Daemon, SENNIT, World, run};

/// Asks a daemon over its control socket: the number of the answer, and its document.
pub(crate) fn http(daemon: &Daemon<'_>, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let mut socket = UnixStream::connect(&daemon.control).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: sennit\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len(),
    );
    socket.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, serde_json::from_str(body).unwrap())
}

#[track_caller]
fn told(answer: (u16, Value)) -> Value {
    assert_eq!(answer.0, 200, "{}", answer.1);
    answer.1
}

#[track_caller]
fn refused(answer: &(u16, Value), code: &str) {
    assert_eq!(
        (answer.0, &answer.1["code"]),
        (409, &json!(code)),
        "{}",
        answer.1
    );
}

#[test]
fn an_edited_config_is_checked_tried_and_kept_or_taken_back() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub_with("# mine\n");
    let file = world.path("hub.toml");
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    let wish = |text: &str, version: &Value, seconds: Option<u32>| json!({ "text": text, "version": version, "confirm_seconds": seconds });
    let shown = told(http(&hub, "GET", "/v1/config", &Value::Null));
    assert_eq!(shown["text"], text);
    let version = &shown["version"];

    let wrong = format!("{text}reach = ['moon']\n");
    let checked = told(http(
        &hub,
        "POST",
        "/v1/config/check",
        &json!({ "text": wrong }),
    ));
    assert_eq!(checked["valid"], false, "{checked}");
    let line = wrong.lines().count();
    assert_eq!(checked["findings"][0]["line"], line, "{checked}");
    let applied = told(http(
        &hub,
        "PUT",
        "/v1/config",
        &wish(&wrong, version, Some(60)),
    ));
    assert_eq!(applied["applied"], false, "{applied}");

    let good = format!("{text}reach = ['hub'] # for now\n");
    let checked = told(http(
        &hub,
        "POST",
        "/v1/config/check",
        &json!({ "text": good }),
    ));
    assert_eq!(checked["valid"], true, "{checked}");
    assert_eq!(checked["changes"][0]["what"], "hub.reach");
    assert!(
        checked["diff"]
            .as_str()
            .unwrap()
            .contains("\n+reach = ['hub'] # for now\n")
    );

    // It runs, and is in the file when it is kept.
    let applied = told(http(
        &hub,
        "PUT",
        "/v1/config",
        &wish(&good, version, Some(60)),
    ));
    assert_eq!(applied["changes"][0]["what"], "hub.reach", "{applied}");
    let shown = told(http(&hub, "GET", "/v1/config", &Value::Null));
    assert_eq!(
        (&shown["text"], &shown["trial"]),
        (&json!(text), &json!(good))
    );
    assert!(
        shown["reverts_in_seconds"].as_f64().unwrap() > 1.0,
        "{shown}"
    );
    told(http(&hub, "POST", "/v1/config/keep", &Value::Null));
    assert_eq!(fs::read_to_string(&file).unwrap(), good);
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
    refused(
        &http(&hub, "POST", "/v1/config/keep", &Value::Null),
        "nothing_to_keep",
    );

    // The first version is not the file's any more.
    refused(
        &http(&hub, "PUT", "/v1/config", &wish(&text, version, None)),
        "changed_meanwhile",
    );
    let shown = told(http(&hub, "GET", "/v1/config", &Value::Null));
    told(http(
        &hub,
        "PUT",
        "/v1/config",
        &wish(&text, &shown["version"], Some(60)),
    ));
    told(http(&hub, "POST", "/v1/config/revert", &Value::Null));
    assert_eq!(fs::read_to_string(&file).unwrap(), good);
    let mut reload = hub.host.command(SENNIT);
    reload
        .args(["reload", "--json", "--control"])
        .arg(&hub.control);
    let reloaded: Value = serde_json::from_str(&run(&mut reload).stdout).unwrap();
    assert_eq!(reloaded["changes"], json!([]), "what is in the file runs");

    // At once, without a trial.
    let applied = told(http(
        &hub,
        "PUT",
        "/v1/config",
        &wish(&text, &shown["version"], None),
    ));
    assert_eq!(applied["applied"], true, "{applied}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);

    let secret = format!(
        "{text}[[notify]]\nname = 'ops'\nurl = 'https://example.org/x'\nsecret = 'whsec_hunter2'\n"
    );
    fs::write(&file, secret).unwrap();
    refused(
        &http(&hub, "GET", "/v1/config", &Value::Null),
        "holds_secret",
    );
    let check = json!({ "text": text });
    refused(
        &http(&hub, "POST", "/v1/config/check", &check),
        "holds_secret",
    );
}

#[test]
fn a_site_that_is_invited_through_the_api_joins() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub();
    let path = "/v1/invitations";
    let wish = json!({ "site": "van", "hubs": ["203.0.113.10:443"], "lans": ["192.168.8.0/24"] });

    let invited = told(http(&hub, "POST", path, &wish));

    assert_eq!(invited["schema"], "sennit.invite/1");
    let rows = invited["qr"].as_array().unwrap();
    assert_eq!(rows.len(), rows[0].as_str().unwrap().len(), "a square");
    let open = told(http(&hub, "GET", path, &Value::Null));
    let of_van = &open["invitations"][0];
    assert_eq!(
        (&of_van["site"], &of_van["expired"]),
        (&json!("van"), &json!(false))
    );
    assert!(
        !open
            .to_string()
            .contains(invited["token"].as_str().unwrap())
    );
    // One that nobody uses is taken back, and once only.
    let other = json!({ "site": "ship", "hubs": ["203.0.113.10:443"] });
    told(http(&hub, "POST", path, &other));
    told(http(&hub, "DELETE", "/v1/invitations/ship", &Value::Null));
    let (code, again) = http(&hub, "DELETE", "/v1/invitations/ship", &Value::Null);
    assert_eq!((code, &again["code"]), (404, &json!("not_found")));
    let leases = told(http(&hub, "GET", "/v1/leases", &Value::Null));
    assert_eq!(leases["leases"], json!([]), "nobody has connected yet");
    assert_eq!(leases["pools"][0]["leased"], 0);
    world.sennit("van", &["join", invited["token"].as_str().unwrap()]);
    let sites = world.sennit("hub", &["sites"]);
    assert!(sites.contains("may announce 192.168.8.0/24"), "{sites}");

    for (key, wrong) in [
        ("hubs", json!([])),
        ("hubs", json!(["nowhere"])),
        ("site", json!("no site")),
        ("lans", json!(["127.0.0.0/8"])),
        ("ttl_seconds", json!(5)),
    ] {
        let mut wish = wish.clone();
        wish[key] = wrong;
        let (code, told) = http(&hub, "POST", path, &wish);
        assert_eq!(
            (code, &told["code"]),
            (400, &json!("bad_request")),
            "{told}"
        );
    }
}
