//! Hubs are made, and sites invited, joined, listed and revoked.

use super::*;

#[test]
fn a_site_joins_by_copying_one_line() {
    let (hub, edge) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (hub, edge) = (text(hub.path()), text(edge.path()));
    assert_eq!(
        succeed(&["hub", "init", "--state", hub]),
        "",
        "nothing that a pipe could want"
    );
    let token = succeed(&[
        "invite",
        "van-07",
        "--state",
        hub,
        "--hub",
        "203.0.113.10:443",
        "--hub",
        "[2001:db8::1]:443",
    ]);
    assert_eq!(token.lines().count(), 1);

    succeed(&["join", token.trim(), "--state", edge]);

    let config = format!("{edge}/edge.toml");
    let checked = succeed(&["check", &config]);
    assert!(checked.contains("edge.toml: an edge with "), "{checked}");
    let written = fs::read_to_string(&config).unwrap();
    assert!(
        written.contains("hub = [\"203.0.113.10:443\", \"[2001:db8::1]:443\"]"),
        "{written}"
    );
    let sites = succeed(&["sites", "--state", hub]);
    assert!(sites.contains("van-07  invited"), "{sites}");
}

#[test]
fn a_token_may_come_from_stdin_or_a_file() {
    let (hub, edge) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (hub, edge) = (text(hub.path()), text(edge.path()));
    succeed(&["hub", "init", "--state", hub]);
    let token = succeed(&[
        "invite",
        "van-07",
        "--state",
        hub,
        "--hub",
        "203.0.113.10:443",
    ]);
    let file = format!("{hub}/token");
    fs::write(&file, &token).unwrap();

    succeed(&["join", &format!("file:{file}"), "--state", edge]);
    let mut piped = command(&["join", "-", "--state", edge, "--force"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    piped
        .stdin
        .take()
        .unwrap()
        .write_all(token.as_bytes())
        .unwrap();

    assert!(piped.wait().unwrap().success());
    assert_fails(
        &sennit(&["join", "file:/nonexistent", "--state", edge]),
        3,
        "cannot read the token from /nonexistent: ",
    );
}

#[test]
fn join_says_why_it_refuses() {
    let (hub, edge) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (hub, edge) = (text(hub.path()), text(edge.path()));
    succeed(&["hub", "init", "--state", hub]);
    let invite = [
        "invite",
        "van-07",
        "--state",
        hub,
        "--hub",
        "203.0.113.10:443",
    ];
    let token = succeed(&invite);
    let token = token.trim();

    assert_fails(
        &sennit(&["join", "nonsense", "--state", edge]),
        1,
        "not an invitation",
    );
    assert_fails(
        &sennit(&["join", &token[..token.len() - 1], "--state", edge]),
        1,
        "damaged",
    );
    let bearer = succeed(&["invite", "phone", "--bearer", "--state", hub]);
    assert_fails(
        &sennit(&["join", bearer.trim(), "--state", edge]),
        1,
        "bearer token",
    );
    succeed(&["join", token, "--state", edge]);
    let key = || fs::read(format!("{edge}/edge.key")).unwrap();
    let first = key();
    succeed(&["join", token, "--state", edge]);
    assert_eq!(key(), first, "the same token is no other site");
    let other = succeed(&invite);
    let again = sennit(&["join", other.trim(), "--state", edge]);
    assert_fails(&again, 1, "already belongs to site `van-07`");
    assert!(stderr(&again).contains("--force"));
    let kept = fs::read_to_string(format!("{edge}/edge.toml")).unwrap();
    fs::write(format!("{edge}/edge.toml"), format!("{kept}# mine\n")).unwrap();
    succeed(&["join", other.trim(), "--state", edge, "--force"]);
    assert_ne!(key(), first);
    assert!(
        fs::read_to_string(format!("{edge}/edge.toml"))
            .unwrap()
            .ends_with("# mine\n"),
        "the config stays"
    );
}

#[test]
fn an_expired_token_is_refused_before_anything_is_written() {
    use sennit::identity::{Fingerprint, Invitation, Secret};
    let edge = tempfile::tempdir().unwrap();
    let expired = Invitation {
        site: "van-07".parse().unwrap(),
        hubs: vec!["203.0.113.10:443".parse().unwrap()],
        authority: Fingerprint::of(b"any"),
        secret: Secret::random(),
        expires: std::time::SystemTime::UNIX_EPOCH,
    };

    let output = sennit(&["join", &expired.to_string(), "--state", text(edge.path())]);

    assert_fails(&output, 1, "the token has expired");
    assert_eq!(fs::read_dir(edge.path()).unwrap().count(), 0);
}

#[test]
fn a_hub_is_made_once_and_its_ca_can_be_exported() {
    let hub = tempfile::tempdir().unwrap();
    let hub = text(hub.path());
    assert_fails(
        &sennit(&["hub", "ca", "--state", hub]),
        3,
        "holds no hub's identity",
    );
    succeed(&["hub", "init", "--state", hub, "--name", "hub.example.org"]);

    let pem = succeed(&["hub", "ca", "--state", hub]);
    let read = |name: &str| fs::read(format!("{hub}/{name}")).unwrap();
    let before = ["ca.key", "ca.pem", "hub.key"].map(read);
    fs::remove_file(format!("{hub}/hub.toml")).unwrap();
    let certificate = read("hub.pem");
    succeed(&["hub", "init", "--state", hub]);

    assert!(pem.starts_with("-----BEGIN CERTIFICATE-----\n"), "{pem}");
    assert!(!read("hub.toml").is_empty(), "the config is written anew");
    assert_eq!(read("hub.pem"), certificate, "it keeps its names");
    succeed(&["hub", "init", "--state", hub, "--name", "other.example.org"]);
    assert_ne!(read("hub.pem"), certificate);
    assert_eq!(["ca.key", "ca.pem", "hub.key"].map(read), before);
}

#[test]
fn sites_are_listed_and_revoked() {
    let hub = tempfile::tempdir().unwrap();
    let state = text(hub.path());
    let no_daemon = format!("{state}/none.sock");
    succeed(&["hub", "init", "--state", state]);
    assert_eq!(succeed(&["sites", "--state", state]), "");
    succeed(&[
        "invite",
        "van-07",
        "--state",
        state,
        "--hub",
        "203.0.113.10:443",
        "--ttl",
        "7d",
    ]);
    succeed(&["invite", "phone", "--state", state, "--bearer"]);

    let revoked = sennit(&[
        "revoke",
        "van-07",
        "--state",
        state,
        "--control",
        &no_daemon,
    ]);
    assert_eq!(revoked.status.code(), Some(0));
    let said = stderr(&revoked);
    let hub_ends_them = format!("A hub that runs with {state} ends its tunnels within a second");
    assert!(
        said.contains(&hub_ends_them) && said.contains("--control"),
        "{said}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&succeed(&["sites", "--state", state, "--json"])).unwrap();

    assert_eq!(json["schema"], "sennit.sites/1");
    assert_eq!(json["sites"][0]["name"], "phone");
    assert_eq!(
        (&json["sites"][1]["name"], &json["sites"][1]["state"]),
        (&"van-07".into(), &"revoked".into())
    );
    assert_fails(
        &sennit(&[
            "revoke",
            "van-99",
            "--state",
            state,
            "--control",
            &no_daemon,
        ]),
        3,
        "no site `van-99`",
    );
    assert_fails(
        &sennit(&["sites", "--state", &format!("{state}/none")]),
        3,
        "no hub's store",
    );
}

#[test]
fn what_a_site_may_announce_and_reach_is_the_hubs_to_say() {
    let hub = tempfile::tempdir().unwrap();
    let state = text(hub.path());
    succeed(&["hub", "init", "--state", state]);
    let invite = [
        "invite",
        "van-07",
        "--state",
        state,
        "--hub",
        "203.0.113.10:443",
    ];
    succeed(&[&invite[..], &["--lan", "192.168.8.0/24"]].concat());
    let allow = ["sites", "allow", "van-07", "--state", state];
    let deny = ["sites", "deny", "van-07", "--state", state];
    let reach = ["sites", "reach", "van-07", "--state", state];
    assert_eq!(succeed(&allow), "192.168.8.0/24\n");
    let public = sennit(&[&allow[..], &["1.1.1.1/32"]].concat());
    assert!(String::from_utf8_lossy(&public.stderr).contains("public space"));
    assert_eq!(succeed(&allow), "192.168.8.0/24\n1.1.1.1/32\n");
    for (prefix, why) in [
        ("0.0.0.0/0", "too large"),
        ("127.0.0.0/8", "loopback"),
        ("2000::/16", "too large"),
    ] {
        assert_fails(
            &sennit(&[&allow[..], &["10.1.0.0/16", prefix]].concat()),
            2,
            why,
        );
        let invited = [&invite[..], &["--lan", prefix]].concat();
        assert_fails(&sennit(&invited), 2, why);
    }
    assert_eq!(
        succeed(&[&deny[..], &["1.1.0.0/16"]].concat()),
        "192.168.8.0/24\n"
    );
    assert_eq!(succeed(&reach), "what the hub's config says of all\n");
    let narrow = [&reach[..], &["internet", "10.9.0.0/16"]].concat();
    assert_eq!(succeed(&narrow), "internet 10.9.0.0/16\n");
    assert_fails(
        &sennit(&[&reach[..], &["moon"]].concat()),
        2,
        "`moon` is no place",
    );
    assert_eq!(succeed(&[&reach[..], &["nothing"]].concat()), "nothing\n");
    let listed = succeed(&["sites", "--state", state, "--control", "/nonexistent"]);
    assert!(listed.contains("may announce 192.168.8.0/24"), "{listed}");
    assert!(
        listed.contains("reaches nothing") && listed.contains("never"),
        "{listed}"
    );
    assert_eq!(
        succeed(&[&reach[..], &["--default"]].concat()),
        "what the hub's config says of all\n"
    );
    let config = fs::read_to_string(hub.path().join("hub.toml")).unwrap();
    assert!(config.contains("reach = [\"everything\"]"), "{config}");
    let checked = succeed(&["check", "--strict", text(&hub.path().join("hub.toml"))]);
    assert!(!checked.contains("error"), "{checked}");
}

#[test]
fn the_maker_of_a_second_hub_is_told_what_two_cannot_share() {
    let hub = tempfile::tempdir().unwrap();
    let made = sennit(&["hub", "init", "--state", text(hub.path())]);

    let said = stderr(&made);
    assert!(
        said.contains("`device`, `control`, `listen` and `pool`"),
        "{said}"
    );
}

#[test]
fn revoking_disconnects_the_site_of_a_running_hub() {
    let hub = tempfile::tempdir().unwrap();
    let (state, control) = (text(hub.path()), hub.path().join("hub.sock"));
    succeed(&["hub", "init", "--state", state]);
    succeed(&[
        "invite",
        "van-07",
        "--state",
        state,
        "--hub",
        "203.0.113.10:443",
    ]);
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&asked);
    let _daemon = Server::bind(&control, move |request| {
        if request == Request::Status {
            return Response::refused("busy", "not now");
        }
        assert_eq!(
            request,
            Request::Disconnect {
                site: "van-07".parse().unwrap()
            }
        );
        seen.fetch_add(1, Ordering::SeqCst);
        Response::done()
    })
    .unwrap();

    let revoked = sennit(&[
        "revoke",
        "van-07",
        "--state",
        state,
        "--control",
        text(&control),
    ]);

    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let said = stderr(&revoked);
    assert!(said.contains("it had not joined yet"), "{said}");
}

#[test]
fn what_an_operator_may_not_have_meant_is_said_when_a_site_is_invited() {
    let hub = tempfile::tempdir().unwrap();
    let state = text(hub.path());
    succeed(&["hub", "init", "--state", state]);
    let invite = |site: &str, lan: &str| {
        let words = [
            "invite",
            site,
            "--state",
            state,
            "--hub",
            "203.0.113.10:443",
        ];
        let output = sennit(&[&words[..], &["--lan", lan]].concat());
        assert_eq!(output.status.code(), Some(0));
        stderr(&output)
    };
    let first = invite("van-07", "192.168.8.0/24");
    assert!(
        !first.contains("warning") && !first.contains("void"),
        "{first}"
    );

    let again = invite("van-07", "192.168.8.0/24");
    assert!(
        again.contains("The earlier token of `van-07` is void"),
        "{again}"
    );
    let other = invite("van-08", "192.168.0.0/16");
    assert!(
        other.contains("warning: site `van-07` may announce 192.168.0.0/16 too, or a part of it"),
        "{other}"
    );
}

#[test]
fn a_site_that_is_revoked_or_never_joined_is_forgotten_and_no_other() {
    let hub = tempfile::tempdir().unwrap();
    let state = text(hub.path());
    let no_daemon = format!("{state}/none.sock");
    succeed(&["hub", "init", "--state", state]);
    let to = ["--state", state, "--hub", "203.0.113.10:443"];
    succeed(&[&["invite", "van-07"], &to[..]].concat());
    succeed(&["invite", "phone", "--state", state, "--bearer"]);
    let forget = |site: &str| sennit(&["sites", "forget", site, "--state", state]);

    assert_fails(&forget("phone"), 2, "`sennit revoke phone` first");
    assert_eq!(forget("van-07").status.code(), Some(0));
    sennit(&["revoke", "phone", "--state", state, "--control", &no_daemon]);
    assert_eq!(forget("phone").status.code(), Some(0));

    assert_eq!(succeed(&["sites", "--state", state]), "");
    assert_fails(&forget("phone"), 3, "no site `phone`");
}

#[test]
fn an_invitation_is_withdrawn_and_lets_nobody_in() {
    let hub = tempfile::tempdir().unwrap();
    let state = text(hub.path());
    succeed(&["hub", "init", "--state", state]);
    for site in ["van-07", "ship-3"] {
        let invite = ["invite", site, "--hub", "203.0.113.10:443"];
        succeed(&[&invite[..], &["--state", state]].concat());
    }

    succeed(&["hub", "withdraw", "van-07", "--state", state]);

    let open = succeed(&["hub", "invitations", "--state", state]);
    assert!(
        open.contains("ship-3") && !open.contains("van-07"),
        "{open}"
    );
    let sites = succeed(&["sites", "--state", state]);
    assert!(sites.contains("van-07  left out"), "{sites}");
    let again = sennit(&["hub", "withdraw", "van-07", "--state", state]);
    assert_fails(&again, 3, "has no invitation that waits to be used");
}

#[test]
fn invitations_as_json_carry_their_expiry() {
    let hub = tempfile::tempdir().unwrap();
    let state = text(hub.path());
    succeed(&["hub", "init", "--state", state]);

    let json = succeed(&[
        "invite",
        "van-07",
        "--state",
        state,
        "--hub",
        "203.0.113.10:443",
        "--json",
    ]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();

    assert_eq!(
        (&json["schema"], &json["kind"]),
        (&"sennit.invite/1".into(), &"invite".into())
    );
    assert!(json["token"].as_str().unwrap().starts_with("sennit_"));
    assert!(json["expires"].as_str().unwrap().ends_with('Z'));
}
