//! Tests that do not come about, and what is said then.

use super::*;

#[test]
fn where_no_server_is_the_address_is_told_in_time() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let start = Instant::now();

    let output = sennit(&["client", &address, "--timeout", "0.5"]).output();

    assert_fails(
        &output.unwrap(),
        4,
        &format!("no test server answers at {address}"),
    );
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn addresses_and_numbers_that_mean_nothing_are_usage_errors() {
    for (args, reason) in [
        (&["client", "https://host"][..], "is no server"),
        (&["client", "127.0.0.1:0"], "is no server"),
        (&["client", "0.0.0.0"], "nobody can be reached"),
        (
            &["client", "127.0.0.1", "--cc", "reno"],
            "write one of auto, cubic",
        ),
        (&["client", "127.0.0.1", "--rate", "fast"], "like 500k"),
        (
            &["client", "127.0.0.1", "--requests", "--rate", "5Mbit"],
            "as in `--direction down`",
        ),
        (
            &["client", "127.0.0.1", "--duration", "0"],
            "measures nothing",
        ),
        (
            &["client", "127.0.0.1", "--pin", "abc"],
            "64 hexadecimal digits",
        ),
        (&["client", "127.0.0.1", "--message", "9000"], "17..=1100"),
        (
            &["client", "127.0.0.1", "--fec", "rs:10+2"],
            "as in `--message 1000",
        ),
        (
            &[
                "client",
                "127.0.0.1",
                "--message",
                "1000",
                "--fec",
                "auto",
                "--stack",
                "quinn",
                "--direction",
                "up",
            ],
            "quinn does not tell what it loses",
        ),
        (
            &["client", "127.0.0.1", "--message", "99", "--fec", "rs:0+2"],
            "1 to 255 packets",
        ),
        (
            &["client", "127.0.0.1", "--stack", "lsquic"],
            "write sennit or quinn",
        ),
        (&["server", "--listen", "here"], "invalid"),
        (&["server", "--token", ""], "it is empty"),
        (&["client", "127.0.0.1", "--token", " "], "it is empty"),
        (
            &["client", "127.0.0.1", "--profile", "/nowhere"],
            "cannot read /nowhere",
        ),
    ] {
        assert_fails(&sennit(args).output().unwrap(), 2, reason);
    }
}

#[test]
fn a_server_that_cannot_listen_says_why() {
    // Nobody has an address of documentation (RFC 5737).
    let output = sennit(&["server", "--listen", "192.0.2.1:4774"]).output();
    assert_fails(&output.unwrap(), 1, "192.0.2.1:4774: Cannot assign");
}

#[test]
fn a_token_a_pin_and_a_limit_are_kept() {
    let limits = ["--max-duration", "2", "--max-rate", "20Mbit"];
    let server = Server::start(&[&["--token", "open sesame"], &limits[..]].concat());
    let test = |args: &[&str]| {
        server
            .client(&["--duration", "0.3"])
            .args(args)
            .output()
            .unwrap()
    };
    let wrong_pin = "0".repeat(64);

    assert_fails(&test(&[]), 1, "the token is not this server's");
    assert_fails(
        &test(&["--token", "sesame"]),
        1,
        "the token is not this server's",
    );
    let known = ["--token", "open sesame", "--pin"];
    let wrong = [&known[..], &[&wrong_pin]].concat();
    assert_fails(&test(&wrong), 1, "is not the one of --pin");
    let long = ["--token", "open sesame", "--duration", "3"];
    let output = server.client(&long).output().unwrap();
    assert_fails(
        &output,
        1,
        "2 s at most here, and this one would last 3 s: say --duration 2",
    );
    let fast = ["--token", "open sesame", "--duration", "1", "--rate", "30M"];
    let output = server.client(&fast).output().unwrap();
    assert_fails(&output, 1, "at most 20 Mbit/s here: say --rate 20Mbit");
    let bytes = ["--token", "open sesame", "--bytes", "1M"];
    let bytes = server.client(&bytes).args(["--warmup", "0.5"]).output();
    assert_fails(&bytes.unwrap(), 1, "say --duration 1.5 beside --bytes");

    let right = [&known[..], &[server.fingerprint.as_str(), "--rate", "20M"]].concat();
    assert!(report(&test(&right), 0).goodput_bits_per_second > 0.0);
}

/// A QUIC server of another protocol.
fn stranger(stop: &AtomicBool, socket: &UdpSocket) {
    let identity = rcgen::generate_simple_self_signed(["other".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(identity.signing_key.serialize_der());
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let mut tls = rustls::ServerConfig::builder_with_provider(provider.into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![identity.cert.der().clone()], key.into())
        .unwrap();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let config = BareConfig {
        congestion: Congestion::Cubic,
        idle: Duration::from_secs(5),
        seed: [1; 32],
        reset_key: [2; 32],
        most: 10,
        most_per_address: 10,
    };
    let mut bare = Bare::server(config, Arc::new(tls)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(5)))
        .unwrap();
    let mut buffer = [0; 2000];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((size, remote)) = socket.recv_from(&mut buffer) {
            let from = BareReceived {
                local: None,
                remote,
                ecn: 0,
                segment: size,
                arrived: Instant::now(),
            };
            bare.handle_datagrams(from, buffer[..size].into(), Instant::now());
        }
        bare.handle_timeout(Instant::now());
        while bare.poll_event().is_some() {}
        let mut out = Vec::new();
        while let Some(transmit) = bare.poll_transmit(&mut out, Instant::now()) {
            for packet in out.chunks(transmit.segment.unwrap_or(out.len().max(1))) {
                socket.send_to(packet, transmit.remote).unwrap();
            }
            out.clear();
        }
    }
}

#[test]
fn a_quic_server_of_another_protocol_is_told_from_none() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| stranger(&stop, &socket));
        let output = sennit(&["client", &address]).output();
        stop.store(true, Ordering::Relaxed);
        assert_fails(&output.unwrap(), 4, "speaks QUIC, but it is no test server");
    });
}
