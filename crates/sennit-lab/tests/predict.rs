//! What is predicted beside what emulated links of the real kernel give.

use std::process::{Command, Output};

/// Namespaces need root; without it a test says so and proves nothing.
fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: needs root");
    }
    root
}

fn predict(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sennit-lab"));
    let output = command.arg("predict").args(line.split(' ')).output();
    output.expect("the program starts")
}

fn measured(line: &str) -> serde_json::Value {
    measured_and_said(line).0
}

fn measured_and_said(line: &str) -> (serde_json::Value, String) {
    let output = predict(line);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let measured = serde_json::from_slice(&output.stdout).expect("it is JSON");
    (measured, said)
}

#[test]
fn goodput_on_a_shared_medium_is_what_its_headers_leave() {
    if !root() {
        return;
    }
    let checked = measured("tcp --rate 10Mbit --half-duplex --check --seconds 5 --json");

    if checked["remarks"]
        .as_array()
        .is_some_and(|all| !all.is_empty())
    {
        eprintln!("SKIPPED: {}", checked["remarks"]);
        return;
    }
    let difference = checked["difference"].as_f64().expect("it was measured");
    // Both ways on one wire: without the acknowledgements it would be 3 % more.
    assert!(difference.abs() < 0.02, "{checked}");
}

#[test]
fn a_sweep_finds_the_rate_of_an_emulated_link() {
    if !root() {
        return;
    }
    let sweep = "rtt-sweep --link 2/5 --check --json --count 5 --sizes 56,700,1472,4000";
    let (swept, said) = measured_and_said(sweep);

    let fit = |what: &str| swept["fit"][what].as_f64().expect("a line fits");
    let (capacity, fixed) = (fit("capacity_bits_per_second"), fit("fixed_seconds"));
    let is_right = (capacity / 2e6 - 1.0).abs() < 0.03 && (0.0095..0.015).contains(&fixed);
    if !is_right && said.contains("NOT EXACT") {
        eprintln!("SKIPPED: {}", said.lines().last().unwrap_or_default());
        return;
    }
    assert!(is_right, "{swept}");
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_is_built() {
    let output = predict("tunnel --rate 10Mbit --bare --check");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("number their packets"),
        "{said}"
    );
}
