//! Other tunnels between edge and hub, over the first link.
//!
//! Each end is one program that makes a TUN device; addresses and routes are ours.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Daemons, UP, log, spawn};
use crate::error::{Doing, Error};
use crate::host::{self, Role, feed, run};
use crate::lab::{Lab, LinkHandle};
use crate::plan::{self, Dual};
use crate::programs::{self, Program};
use crate::scratch::Scratch;
use crate::sockets;

/// The UDP port of both ends.
const PORT: u16 = 51820;

/// What wireguard-go and `wg-quick` give a device over 1500 bytes.
const WIREGUARD_MTU: u32 = 1420;

/// Debian 12's: it has no offloads, and carries a fourth of what v0.0.20250522 does (measured).
/// Those in between were not.
const WITHOUT_OFFLOADS: &str = "v0.0.20220316";

/// What else it takes to set up wireguard-go.
const WIREGUARD_TOOLS: Program = programs::program("wg", "wireguard-tools");

/// An error if wireguard-go or what sets it up is not installed.
pub(super) fn require_wireguard(program: &Path) -> Result<(), Error> {
    programs::require(&[WIREGUARD_TOOLS])?;
    match programs::is_there(program) {
        true => Ok(()),
        false => Err(Error::Tunnel(format!(
            "{} not found: install the package wireguard-go, or say where it is by --wireguard-go",
            program.display()
        ))),
    }
}

/// What this wireguard-go calls itself, with a word on one that is too old to compare with.
pub(super) fn wireguard_version(program: &Path) -> Result<String, Error> {
    let output = run(Command::new(program).arg("--version"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(version(text.lines().next().unwrap_or_default()))
}

fn version(line: &str) -> String {
    let version = line.split_whitespace().nth(1);
    if version.is_none_or(|version| version > WITHOUT_OFFLOADS) {
        return line.to_owned();
    }
    format!(
        "{line}, which has no offloads: a later one is four times as fast, name it by --wireguard-go"
    )
}

/// An error if the ideal tunnel was not built.
pub(super) fn require_ideal(program: &Path) -> Result<(), Error> {
    match program.exists() {
        true => Ok(()),
        false => Err(Error::Tunnel(format!(
            "{} not found: build it by `cargo build --package sennit-lab --bin ideal-tunnel`, \
             or say where it is by --ideal",
            program.display()
        ))),
    }
}

/// Both ends of a tunnel that is not ours.
#[derive(Debug)]
pub(super) struct Rival {
    pub(super) daemons: Daemons,
    /// Outlives the daemons, which may be killed and then leave their sockets.
    _sockets: Option<Sockets>,
}

/// One end, before it runs.
struct End<'a> {
    lab: &'a Lab,
    role: Role,
    /// Called the same nowhere else on this machine.
    device: String,
    /// On the link.
    address: Dual,
    inner: Dual,
}

impl Rival {
    pub(super) fn ideal(lab: &Lab, program: &Path, logs: &Path) -> Result<Self, Error> {
        require_ideal(program)?;
        let [hub, edge] = ends(lab)?;
        let start = |own: &End<'_>, other: &End<'_>| {
            let socket = |end: &End<'_>| format!("{}:{PORT}", end.address.v4);
            let mut command = lab.host(own.role).command(program);
            command.args([&own.device, &socket(own), &socket(other)]);
            spawn(&mut command, &log(logs, &own.role.to_string()))
        };
        let mut daemons = Daemons::new(start(&hub, &edge)?, logs);
        daemons.add(&edge.role.to_string(), start(&edge, &hub)?);
        let mut tunnel = Self {
            daemons,
            _sockets: None,
        };
        for end in [&hub, &edge] {
            tunnel.until("made no device", end.role, || end.has_device())?;
            end.address_device("")?;
        }
        tunnel.until_hub_answers(lab)?;
        Ok(tunnel)
    }

    pub(super) fn wireguard(lab: &Lab, program: &Path, logs: &Path) -> Result<Self, Error> {
        require_wireguard(program)?;
        let [hub, edge] = ends(lab)?;
        let sockets = Sockets([&hub, &edge].map(|end| end.device.clone()));
        let start = |end: &End<'_>| {
            let mut command = lab.host(end.role).command(program);
            command.args(["--foreground", &end.device]);
            command.env("LOG_LEVEL", "error");
            spawn(&mut command, &log(logs, &end.role.to_string()))
        };
        let mut daemons = Daemons::new(start(&hub)?, logs);
        daemons.add(&edge.role.to_string(), start(&edge)?);
        let mut tunnel = Self {
            daemons,
            _sockets: Some(sockets),
        };
        let keys = Scratch::create()?;
        let (hub_key, edge_key) = (Key::create(&keys, "hub")?, Key::create(&keys, "edge")?);
        for (own, key, other, public) in [
            (&hub, &hub_key, &edge, &edge_key.public),
            (&edge, &edge_key, &hub, &hub_key.public),
        ] {
            tunnel.until("made no device", own.role, || {
                own.has_device() && sockets::of(&own.device).exists()
            })?;
            own.set_peer(&key.private, other, public)?;
            own.address_device(&format!("mtu {WIREGUARD_MTU}"))?;
        }
        tunnel.until_hub_answers(lab)?;
        Ok(tunnel)
    }

    fn until_hub_answers(&mut self, lab: &Lab) -> Result<(), Error> {
        let hub = plan::INNER_HUB.v4.to_string();
        self.until("did not reach the hub", Role::Edge, || {
            lab.exec(Role::Edge, &["ping", "-n", "-c1", "-W1", &hub])
                .is_ok()
        })
    }

    /// A daemon that ends meanwhile is the reason at once.
    fn until(
        &mut self,
        otherwise: &str,
        role: Role,
        condition: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + UP;
        while !condition() {
            self.daemons.check_alive()?;
            if Instant::now() > deadline {
                return Err(self.daemons.failed(&role.to_string(), otherwise));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// Hub and edge on the first link.
fn ends(lab: &Lab) -> Result<[End<'_>; 2], Error> {
    let first = lab.links().next().as_ref().map(LinkHandle::subnet);
    let subnet = first.ok_or_else(|| Error::Scenario("a tunnel needs a link".into()))?;
    let prefix = host::unique_prefix();
    let end = |role, letter, address, inner| End {
        lab,
        role,
        device: format!("{prefix}{letter}"),
        address,
        inner,
    };
    Ok([
        end(Role::Hub, 'h', subnet.hub(), plan::INNER_HUB),
        end(Role::Edge, 'e', subnet.edge(), plan::INNER_EDGE),
    ])
}

impl End<'_> {
    fn has_device(&self) -> bool {
        self.lab.host(self.role).show_link(&self.device).is_ok()
    }

    fn address_device(&self, settings: &str) -> Result<(), Error> {
        let (Dual { v4, v6 }, device) = (self.inner, &self.device);
        self.lab.host(self.role).ip(&format!(
            "link set {device} {settings} up\n\
             address add {v4}/24 dev {device}\n\
             address add {v6}/64 dev {device} nodad\n"
        ))
    }

    fn set_peer(&self, private: &Path, peer: &Self, public: &str) -> Result<(), Error> {
        let port = PORT.to_string();
        let endpoint = format!("{}:{PORT}", peer.address.v4);
        let mut command = self.lab.host(self.role).command("wg");
        command.args(["set", &self.device, "listen-port", &port, "private-key"]);
        command.arg(private).args(["peer", public]);
        command.args(["endpoint", &endpoint, "allowed-ips", "0.0.0.0/0,::/0"]);
        run(&mut command).map(drop)
    }
}

/// A key of WireGuard.
struct Key {
    private: PathBuf,
    public: String,
}

impl Key {
    fn create(directory: &Scratch, name: &str) -> Result<Self, Error> {
        let private = directory.path().join(name);
        let key = run(Command::new("wg").arg("genkey"))?.stdout;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let written = std::fs::write(&private, &key);
        written.doing(|| format!("write {}", private.display()))?;
        let public = text(&feed(Command::new("wg").arg("pubkey"), &text(&key))?.stdout);
        Ok(Self { private, public })
    }
}

/// The sockets of wireguard-go for these devices; it leaves them behind when it is killed.
#[derive(Debug)]
struct Sockets([String; 2]);

impl Drop for Sockets {
    fn drop(&mut self) {
        for device in &self.0 {
            let _ = std::fs::remove_file(sockets::of(device));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wireguard_go_without_offloads_is_told_of() {
        assert_eq!(
            version("wireguard-go v0.0.20250522"),
            "wireguard-go v0.0.20250522"
        );
        let old = version("wireguard-go v0.0.20220316");
        assert!(old.starts_with("wireguard-go v0.0.20220316, which has no offloads"));
        assert!(old.contains("--wireguard-go"));
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_what_to_do() {
        let error = |found: Result<(), Error>| found.expect_err("it is missing").to_string();
        let nowhere = Path::new("/nowhere/tunnel");

        let ideal = error(require_ideal(nowhere));
        let wireguard = error(require_wireguard(nowhere));

        assert!(
            ideal.contains("/nowhere/tunnel not found: build it"),
            "{ideal}"
        );
        // Whichever of the two is looked for first.
        assert!(wireguard.contains("install"), "{wireguard}");
        assert!(wireguard.contains("wireguard"), "{wireguard}");
    }
}
