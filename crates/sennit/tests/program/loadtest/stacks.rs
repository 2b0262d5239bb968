//! Other stacks at either end, and the protocol that they have in common.

use super::*;

#[test]
fn perf_is_spoken_with_who_serves_it() {
    let server = Server::start(&["--perf"]);
    let args = [
        "--perf",
        "--direction",
        "both",
        "--duration",
        "1",
        "--streams",
        "2",
    ];
    let output = server.client(&args).output();

    let found = report(&output.unwrap(), 0);

    for way in [&found.up, &found.down] {
        let way = way.as_ref().unwrap();
        assert!(way.bytes > 1_000_000 && way.flows == 2, "{way:?}");
    }
    assert!(found.rtt.loaded.count > 5 && found.protocol == "perf");
    assert!(found.handshake.post_quantum_seconds.is_some());
    // Whoever speaks ours is served beside it.
    let ours = server.client(&["--duration", "0.2"]).output();
    assert_eq!(report(&ours.unwrap(), 0).protocol, "sennit-test/1");

    let bytes = server
        .client(&["--perf", "--bytes", "3M", "--connections", "2"])
        .output();
    let down = report(&bytes.unwrap(), 0).down.unwrap();
    assert_eq!(down.bytes, 3_000_000);
}

#[test]
fn a_server_without_perf_is_told_from_none() {
    let server = Server::start(&[]);
    let output = server
        .client(&["--perf", "--timeout", "1"])
        .output()
        .unwrap();
    assert_fails(&output, 4, "does not serve `perf`");
    let both = sennit(&["server", "--perf", "--token", "secret"])
        .output()
        .unwrap();
    assert_fails(&both, 2, "--token");
}

#[test]
fn either_stack_is_served_by_either() {
    let ours = Server::start(&[]);
    let quinn = Server::start(&["--stack", "quinn"]);
    for (server, named, client) in [
        (&ours, StackName::Sennit, "quinn"),
        (&quinn, StackName::Quinn, "sennit"),
    ] {
        let mut command = server.client(&["--stack", client, "--duration", "0.3"]);
        let load = ["--direction", "both", "--streams", "2", "--cc", "bbr"];
        let both = report(&command.args(load).output().unwrap(), 0);

        assert_eq!(both.server_stack, Some(named));
        assert_eq!(both.client_stack.to_string(), client);
        for way in [both.up, both.down] {
            let way = way.unwrap();
            assert!(way.bytes > 100_000 && way.flows == 2, "{way:?}");
            assert_eq!(way.controllers, ["bbr"]);
        }
        assert!(both.rtt.loaded.count > 5, "{:?}", both.rtt);
        assert!(both.handshake.zero_rtt_answer_seconds.is_some());
    }
}

#[test]
fn quinn_asks_and_speaks_perf_too() {
    let ours = Server::start(&["--perf"]);
    let quinn = Server::start(&["--perf", "--stack", "quinn"]);
    let test = |server: &Server, stack: &str, args: &[&str]| {
        let mut command = server.client(&["--stack", stack, "--duration", "0.3"]);
        report(&command.args(args).output().unwrap(), 0)
    };

    let asked = test(&quinn, "quinn", &["--requests", "--connections", "2"]);

    assert!(asked.requests.unwrap().answered > 20);
    for (server, stack) in [(&ours, "quinn"), (&quinn, "sennit"), (&quinn, "quinn")] {
        let perf = test(server, stack, &["--perf", "--direction", "both"]);
        for way in [perf.up, perf.down] {
            assert!(way.unwrap().bytes > 100_000, "{stack}");
        }
        assert!(perf.server_stack.is_none());
    }
}

#[test]
fn a_stack_without_a_controller_says_so() {
    let server = Server::start(&["--stack", "quinn"]);
    let here = server
        .client(&["--stack", "quinn", "--cc", "bbr3"])
        .output();
    assert_fails(&here.unwrap(), 2, "quinn has no congestion control `bbr3`");
    let there = server.client(&["--cc", "follow"]).output().unwrap();
    assert_fails(&there, 1, "quinn, has no congestion control `follow`");
}
