//! Hosts for tests: anonymous namespaces, which no crash can leave behind.

use std::{io::Write, process::Command};

use sennit_linux::{netns::Netns, privilege};

/// A host of its own: a network namespace with loopback up.
#[derive(Debug)]
pub(crate) struct Host(Netns);

impl Host {
    /// `None`, said loudly, when this process may not make namespaces.
    pub(crate) fn new() -> Option<Self> {
        if !privilege::has_net_admin() {
            let test = std::thread::current().name().unwrap_or("?").to_owned();
            skipped(&format!("{test} needs root"));
            return None;
        }
        let host = Self(Netns::anonymous().unwrap());
        // Addresses do not change by themselves while a test compares them.
        host.sh("ip link set lo up; sysctl -qw net.ipv6.conf.default.accept_dad=0");
        Some(host)
    }

    pub(crate) fn pair() -> Option<(Self, Self)> {
        Some((Self::new()?, Self::new()?))
    }

    /// Runs `work` on this host.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.run(work).unwrap()
    }

    /// Runs a shell command on this host, which must succeed, and gives its output.
    pub(crate) fn sh(&self, command: &str) -> String {
        let output = self.run(|| Command::new("sh").args(["-c", command]).output().unwrap());
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {complaint}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Lays a cable from `here` on this host to `there` on the other, and brings both ends up.
    pub(crate) fn cable(&self, here: &str, other: &Self, there: &str) {
        let path = other.0.path();
        let path = path.display();
        self.sh(&format!(
            "ip link add {here} type veth peer name {there} netns {path}"
        ));
        self.sh(&format!("ip link set {here} up"));
        other.sh(&format!("ip link set {there} up"));
    }
}

/// Says that a test could not run here, past the capture of the test's output.
#[expect(
    clippy::explicit_write,
    reason = "what the macro prints is lost when the test passes"
)]
pub(crate) fn skipped(why: &str) {
    writeln!(std::io::stderr(), "SKIPPED: {why}").unwrap();
}
