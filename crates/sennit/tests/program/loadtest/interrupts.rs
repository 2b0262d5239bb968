//! Either end is interrupted.

use super::*;

fn interrupt(child: &Child) {
    let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
}

#[test]
fn whoever_interrupts_gets_what_was_measured_until_then() {
    let server = Server::start(&[]);
    let after = |seconds| {
        let mut command = server.client(&["--duration", "60", "--rate", "4Mbit"]);
        let client = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let client = client.spawn().unwrap();
        thread::sleep(Duration::from_secs(seconds));
        interrupt(&client);
        client.wait_with_output().unwrap()
    };
    // A machine that is very busy may not have begun by the first of them.
    let mut outputs = [2, 10, 30].into_iter().map(after);
    let output = outputs.find(|output| !output.stdout.is_empty());

    let report = report(&output.unwrap(), 130);

    let down = report.down.unwrap();
    assert!(
        report.interrupted && down.seconds < 40.0,
        "{}",
        down.seconds
    );
    assert!(report.goodput_bits_per_second > 1e6, "{down:?}");
}

#[test]
fn a_server_that_is_interrupted_tells_its_clients_and_ends_well() {
    let after = |seconds| {
        let mut server = Server::start(&[]);
        let mut command = server.client(&["--duration", "60", "--rate", "4Mbit"]);
        let client = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let client = client.spawn().unwrap();
        thread::sleep(Duration::from_secs(seconds));
        interrupt(&server.child);
        let output = client.wait_with_output().unwrap();
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
        output
    };
    // A machine that is very busy may not have begun by the first of them.
    let mut outputs = [3, 10, 30].into_iter().map(after);
    let output = outputs.find(|output| !output.stdout.is_empty()).unwrap();

    let told = String::from_utf8_lossy(&output.stderr);
    let found = report(&output, 1);

    let why = "ended the test: the server stops";
    assert!(told.contains(why), "{told}");
    assert!(found.broken.is_some_and(|broken| broken.contains(why)));
    assert!(found.down.unwrap().bytes > 100_000);
}
