//! What `sennit` itself writes, and files that its own tests have.

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SignatureAlgorithm};

use crate::Seed;
use crate::script::Script;

pub(crate) fn all() -> Vec<Seed> {
    let named = |target, inputs: Vec<(&'static str, Vec<u8>)>| {
        let seed = |(name, bytes)| (target, name, bytes);
        inputs.into_iter().map(seed).collect::<Vec<Seed>>()
    };
    [
        named("sennit_config", configs()),
        named("sennit_invitation", invitations()),
        named("sennit_enrolment", enrolments()),
        named("sennit_control", control()),
        named("sennit_tickets", tickets()),
    ]
    .concat()
}

macro_rules! config {
    ($name:literal) => {
        include_bytes!(concat!(
            "../../../sennit/tests/parts/config/",
            $name,
            ".toml"
        ))
    };
}

fn configs() -> Vec<(&'static str, Vec<u8>)> {
    let file = |kind: u8, bytes: &[u8]| Script::default().bytes(&[kind]).bytes(bytes).done();
    let controls = "[edge]\nhub = [\"\u{1b}[31m\u{85}\"]\n\u{7}x = 1\n";
    vec![
        ("hub", file(2, config!("hub"))),
        ("hub-missing", file(2, config!("hub-missing"))),
        ("edge", file(1, config!("whole-file"))),
        ("edge-odd", file(1, config!("odd-but-valid"))),
        ("edge-all-wrong", file(1, config!("every-key-wrong"))),
        ("either", file(0, config!("odd-but-valid"))),
        ("either-empty", file(0, config!("empty"))),
        ("syntax", file(0, config!("syntax"))),
        ("broken-header", file(0, config!("broken-header"))),
        ("unclosed", file(1, config!("unclosed"))),
        ("sections-as-values", file(0, config!("sections-as-values"))),
        ("not-utf8", file(1, b"[edge]\nhub = [\"\xff\"]\n")),
        ("controls", file(1, controls.as_bytes())),
    ]
}

/// Version, expiry, authority, secret, site, hubs.
fn invitation(site: &str, hubs: &[&[u8]]) -> Vec<u8> {
    let script = Script::default()
        .bytes(&[1, 1])
        .bytes(&2_000_000_000_u64.to_be_bytes());
    let script = script.bytes(&[3; 32]).bytes(&[7; 32]);
    let script = script.bytes(&[site.len() as u8]).bytes(site.as_bytes());
    script
        .bytes(&[hubs.len() as u8])
        .bytes(&hubs.concat())
        .done()
}

fn invitations() -> Vec<(&'static str, Vec<u8>)> {
    let v4: &[u8] = &[4, 203, 0, 113, 10, 1, 0xbb];
    let v6: &[u8] = &[
        6, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0xbb,
    ];
    let with = |mut bytes: Vec<u8>, at: usize, value: u8| {
        bytes[at] = value;
        bytes
    };
    let text = |text: &str| Script::default().bytes(&[0]).bytes(text.as_bytes()).done();
    vec![
        ("v4", invitation("van-7", &[v4])),
        ("both", invitation("ship", &[v4, v6])),
        ("many", invitation("ship", &[v4; 16])),
        ("too-many", invitation("ship", &[v4; 17])),
        ("no-hub", invitation("ship", &[])),
        ("bad-site", invitation("Ship!", &[v4])),
        ("newer", with(invitation("ship", &[v4]), 1, 2)),
        ("never-expires", with(invitation("ship", &[v4]), 2, 0x7f)),
        ("cut", invitation("ship", &[&v4[..5]])),
        ("foreign", text("hello")),
        ("bearer", text("sennit_bearer_AAAA")),
        ("not-base64", text("sennit_!!!!")),
    ]
}

fn signing_request(algorithm: &'static SignatureAlgorithm) -> Vec<u8> {
    let key = KeyPair::generate_for(algorithm).expect("the library makes keys");
    let params = CertificateParams::new(vec!["site".to_owned()]).expect("a name");
    let request = params.serialize_request(&key).expect("it can be signed");
    request.der().to_vec()
}

fn certificate() -> Vec<u8> {
    let key = KeyPair::generate().expect("the library makes keys");
    let params = CertificateParams::new(vec!["site".to_owned()]).expect("a name");
    params
        .self_signed(&key)
        .expect("it can be signed")
        .der()
        .to_vec()
}

fn enrolments() -> Vec<(&'static str, Vec<u8>)> {
    let of = |kind: u8, bytes: &[u8]| Script::default().bytes(&[kind]).bytes(bytes).done();
    let request = signing_request(&PKCS_ECDSA_P256_SHA256);
    let mut forged = request.clone();
    *forged.last_mut().expect("it is not empty") ^= 1;
    let renewal = Script::default()
        .block(&certificate())
        .bytes(&request)
        .done();
    vec![
        ("request", of(1, &request)),
        (
            "other-key",
            of(1, &signing_request(&PKCS_ECDSA_P256_SHA256)),
        ),
        ("forged", of(1, &forged)),
        ("ed25519", of(1, &signing_request(&PKCS_ED25519))),
        ("renewal", of(2, &renewal)),
        (
            "json",
            of(
                0,
                br#"{"csr":"AAAA","token":{"secret":"AA","authority":"00"}}"#,
            ),
        ),
        ("json-unknown", of(0, br#"{"csr":"AAAA","more":1}"#)),
        ("json-deep", of(0, "[".repeat(500).as_bytes())),
        (
            "answer",
            of(
                3,
                br#"{"certificate":{"chain":["AAAA","AAAA"],"expires":1900000000}}"#,
            ),
        ),
        (
            "answer-late",
            of(
                3,
                br#"{"certificate":{"chain":[],"expires":18446744073709551615}}"#,
            ),
        ),
        (
            "refusal",
            of(
                3,
                br#"{"refused":{"code":"token_used","reason":"it was used"}}"#,
            ),
        ),
    ]
}

fn control() -> Vec<(&'static str, Vec<u8>)> {
    let status = r#"{"schema":"sennit.status/1","role":"edge","version":"0.1.0","state":"degraded",
"reason":"link lte is down","uptime_seconds":61.5,"device":"sennit0","addresses":["10.200.0.2"],
"links":[{"name":"starlink","interface":"eth1","address":"192.0.2.7","tier":1,"weight":2,"state":"up"},
{"name":"lte","interface":"wwan0","tier":2,"weight":1,"state":"down","reason":"no carrier"}],
"tunnels":[{"class":"default","site":"van","policy":"bond","delivery":"repair","state":"up",
"since_seconds":60.0,"sent_bytes":1000,"received_bytes":2000000,"paths":[{"id":0,"link":"starlink",
"local":"192.0.2.7:40000","remote":"203.0.113.10:443","state":"up","rtt_seconds":0.02,
"rtt_min_seconds":0.018,"loss_ratio":0.01,"rate_bytes_per_second":1e6,"cwnd_bytes":14520,
"mtu_bytes":1452,"sent_bytes":1000,"received_bytes":2000000,"share_ratio":1.0}]}]}"#;
    let controls = status.replace("no carrier", r"no\u001b[31m carrier\u0085");
    let extreme = status
        .replace("61.5", "1e300")
        .replace("0.02", "-1e-300")
        .replace("1e6", "-0.0");
    let of = |text: &str| text.as_bytes().to_vec();
    vec![
        ("status-request", of(r#"{"command":"status"}"#)),
        ("disconnect", of(r#"{"command":"disconnect","site":"van"}"#)),
        ("unknown", of(r#"{"command":"reboot"}"#)),
        ("status", of(status)),
        ("status-controls", of(&controls)),
        ("status-extreme", of(&extreme)),
    ]
}

fn tickets() -> Vec<(&'static str, Vec<u8>)> {
    let key = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc";
    let file = |text: &str| [&[0][..], text.as_bytes()].concat();
    vec![
        (
            "file",
            file(&format!("1799990000 {key}\n1799950000 {key}\n")),
        ),
        ("file-empty", file("")),
        ("file-old", file(&format!("1 {key}\n"))),
        (
            "file-of-the-future",
            file(&format!("18446744073709551615 {key}\n")),
        ),
        ("file-no-time", file(&format!("soon {key}\n"))),
        ("file-short-key", file("1799990000 BwcH\n")),
        ("file-not-utf8", vec![0, b'1', 0xff, b'\n']),
        ("stranger", [&[1][..], &[7; 67]].concat()),
        ("stranger-short", vec![1, 7]),
        ("given", vec![2, 255, 0, 0]),
        ("given-cut", vec![2, 66, 0, 0]),
        ("given-name-only", vec![2, 8, 0, 0]),
        ("given-bent", vec![2, 255, 40, 1]),
    ]
}
