//! What packages are made from: that it is there, that deb and rpm carry the same, that systemd
//! takes the units, and that the program takes the commands in them. `tools/try-packages` installs
//! one.

mod openwrt;
mod scripts;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use toml::Table;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn metadata(kind: &str) -> Table {
    let manifest = fs::read_to_string(workspace().join("crates/sennit/Cargo.toml")).unwrap();
    let manifest: Table = manifest.parse().unwrap();
    let of_package = manifest["package"]["metadata"][kind].as_table();
    of_package.unwrap().clone()
}

/// Where each asset comes from, and where it goes.
fn assets(kind: &str) -> BTreeSet<(String, String)> {
    let list = metadata(kind)["assets"].as_array().unwrap().clone();
    let text = |value: &toml::Value| value.as_str().unwrap().trim_start_matches('/').to_owned();
    let pair = list.iter().map(|asset| match asset.as_array() {
        Some(it) => (text(&it[0]), text(&it[1])),
        None => (text(&asset["source"]), text(&asset["dest"])),
    });
    pair.collect()
}

fn units() -> Vec<PathBuf> {
    let units = fs::read_dir(workspace().join("packaging/systemd")).unwrap();
    units.map(|unit| unit.unwrap().path()).collect()
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

#[test]
fn what_is_packed_is_there() {
    for kind in ["deb", "generate-rpm"] {
        for (source, _) in assets(kind) {
            // What the build makes.
            if source.starts_with("target/") || source.contains("packages/shared/") {
                continue;
            }
            let source = workspace().join("crates/sennit").join(source);
            let (folder, pattern) = (source.parent().unwrap(), name(&source));
            let (start, end) = pattern.split_once('*').unwrap_or((pattern, ""));
            let found = fs::read_dir(folder).unwrap();
            let found = found.filter(|it| {
                let path = it.as_ref().unwrap().path();
                name(&path).starts_with(start) && name(&path).ends_with(end)
            });
            assert_ne!(found.count(), 0, "{kind}: {}", source.display());
        }
    }
}

#[test]
fn deb_and_rpm_carry_the_same() {
    // These have other places, by the customs of the two.
    let of_both = |(_, to): &(String, String)| {
        !["share/zsh", "share/doc", "share/licenses"]
            .iter()
            .any(|it| to.contains(it))
    };
    let places = |kind: &str| -> BTreeSet<String> {
        let listed = assets(kind).into_iter().filter(of_both);
        listed
            .map(|(_, to)| to.trim_end_matches("sennit").trim_end_matches('/').into())
            .collect()
    };
    assert_eq!(places("deb"), places("generate-rpm"));
}

#[test]
fn scripts_are_scripts() {
    let mut scripts = vec![
        workspace().join("packaging/after-installation"),
        workspace().join("packaging/before-removal"),
        workspace().join("packaging/make-user"),
    ];
    for folder in ["packaging/deb", "packaging/rpm"] {
        let found = fs::read_dir(workspace().join(folder)).unwrap();
        scripts.extend(found.map(|it| it.unwrap().path()));
    }
    let on_openwrt = [
        "after-installation",
        "before-removal",
        "device-of",
        "functions.sh",
        "sennit.init",
        "sennit-guard.init",
        "sennit.proto",
    ];
    scripts.extend(on_openwrt.map(|name| workspace().join("packaging/openwrt/files").join(name)));
    for script in &scripts {
        let status = Command::new("sh").arg("-n").arg(script).status().unwrap();
        assert!(status.success(), "{}", script.display());
    }
    let rpm = metadata("generate-rpm");
    for key in [
        "post_install_script",
        "pre_uninstall_script",
        "post_uninstall_script",
    ] {
        let file = rpm[key].as_str().unwrap();
        let file = workspace().join("crates/sennit").join(file);
        assert!(file.is_file(), "{key} is a file, and not the script itself");
    }
}

#[test]
fn the_program_takes_what_units_start() {
    let mut taken = 0;
    for unit in units() {
        let text = fs::read_to_string(&unit).unwrap();
        for line in text.lines().filter(|line| line.starts_with("Exec")) {
            let command = line.split_once('=').unwrap().1;
            let words = command.trim_start_matches(['-', '+']).replace("%i", "dock");
            let words: Vec<&str> = words.split_whitespace().collect();
            assert_eq!(words[0], "/usr/bin/sennit", "{}: {line}", unit.display());
            let sennit = Command::new(env!("CARGO_BIN_EXE_sennit"))
                .args(&words[1..])
                .arg("--help")
                .output()
                .unwrap();
            assert!(sennit.status.success(), "{}: {line}", unit.display());
            taken += 1;
        }
    }
    assert_ne!(taken, 0);
}

fn unit(name: &str) -> String {
    fs::read_to_string(workspace().join("packaging/systemd").join(name)).unwrap()
}

#[test]
fn an_instance_is_like_the_only_one_but_for_its_name() {
    for kind in ["edge", "guard"] {
        let of = |name: &str| -> Vec<String> {
            let text = unit(name).replace("sennit-edge@%i.service", "sennit-edge.service");
            let lines = text.replace("%i.toml", "edge.toml");
            let lines = lines.lines().map(str::to_owned);
            lines
                .filter(|line| !line.starts_with('#') && !line.starts_with("Description="))
                .collect()
        };
        let only = of(&format!("sennit-{kind}.service"));
        assert_eq!(only, of(&format!("sennit-{kind}@.service")), "{kind}");
    }
}

#[test]
fn a_guard_stands_at_boot_only_where_its_edge_is_started() {
    let text = unit("sennit-guard.service");
    let (_, install) = text.split_once("[Install]\n").unwrap();
    assert_eq!(install, "WantedBy=sennit-edge.service\n");
    // With a config that has errors the edge is started again and again, and the guard but once.
    assert!(text.contains("\nRemainAfterExit=yes\nSuccessExitStatus=5\n"));
}

#[test]
fn a_daemon_is_started_for_as_long_as_it_takes() {
    for name in ["sennit-hub.service", "sennit-edge.service"] {
        let text = unit(name);
        assert!(text.contains("\nRestart=on-failure\n"), "{name}");
        assert!(text.contains("\nStartLimitIntervalSec=0\n"), "{name}");
    }
}

#[test]
fn daemons_of_units_and_of_the_container_become_a_user_that_is_made_for_them() {
    let read = |name: &str| fs::read_to_string(workspace().join("packaging").join(name)).unwrap();
    let users = read("sysusers.d/sennit.conf");
    let comment = r#""Sennit daemons""#;
    assert!(
        users.contains(&format!("\nu sennit - {comment}\n")),
        "{users}"
    );
    // By which the user that was made is known when it goes.
    assert!(read("make-user").contains(&format!("--comment {comment} sennit\n")));
    assert!(read("deb/postrm").contains(":Sennit daemons:"));

    for name in ["sennit-hub", "sennit-edge", "sennit-edge@"] {
        let text = unit(&format!("{name}.service"));
        let starts = |line: &&str| line.starts_with("ExecStart=");
        let start = text.lines().find(starts).unwrap();
        assert!(start.contains(" --user sennit "), "{name}: {start}");
        for right in ["CAP_SETUID", "CAP_SETGID", "CAP_CHOWN"] {
            assert!(text.contains(right), "{name}: {right}");
        }
        // systemd would see to whose that is.
        assert!(!text.contains("\nStateDirectory"), "{name}");
        assert!(
            text.contains("\nReadWritePaths=-/var/lib/sennit\n"),
            "{name}"
        );
    }
    let made = read("container/Containerfile");
    assert!(made.contains("useradd ") && made.contains(r#""--user", "sennit""#));
    assert!(read("container/compose.yaml").contains(", SETUID, SETGID, CHOWN]"));
}

#[test]
fn systemd_takes_the_units_and_they_expose_little() {
    let root = tempfile::tempdir().unwrap();
    let (bin, folder) = (
        root.path().join("usr/bin"),
        root.path().join("usr/lib/systemd/system"),
    );
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&folder).unwrap();
    fs::copy("/bin/true", bin.join("sennit")).unwrap();
    for unit in units() {
        fs::copy(&unit, folder.join(name(&unit))).unwrap();
    }
    for unit in units() {
        let verified = Command::new("systemd-analyze")
            .arg(format!("--root={}", root.path().display()))
            .args(["verify", "--recursive-errors=no", "--man=no", name(&unit)])
            .output();
        let verified = match verified {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return println!("SKIPPED: needs systemd-analyze");
            }
            other => other.unwrap(),
        };
        let said = String::from_utf8_lossy(&verified.stderr);
        assert!(verified.status.success() && said.is_empty(), "{said}");
        // What a daemon starts with counts, and not that it becomes another user.
        let exposed = Command::new("systemd-analyze")
            .args(["security", "--offline=yes", "--threshold=30", "--no-pager"])
            .arg(folder.join(name(&unit)))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&exposed.stdout);
        assert!(exposed.status.success(), "{}: {said}", unit.display());
    }
}

/// The config that a unit has its daemon read.
fn config_of(unit: &str) -> String {
    let text = self::unit(unit);
    let line = text.lines().find(|line| line.starts_with("ExecStart="));
    let (_, file) = line.unwrap().split_once("--config ").unwrap();
    file.to_owned()
}

#[test]
fn what_hub_init_and_join_write_is_what_the_units_read() {
    let script = format!(
        "mount -t tmpfs none /etc && mount -t tmpfs none /var/lib || exit 99
         set -e
         \"$SENNIT\" hub init 2>/dev/null
         \"$SENNIT\" check --strict {hub}
         token=$(\"$SENNIT\" invite van-07 --hub 203.0.113.10:443 2>/dev/null)
         \"$SENNIT\" join \"$token\" --offline --force --link lte=lo --route-all 2>/dev/null
         \"$SENNIT\" check {edge}",
        hub = config_of("sennit-hub.service"),
        edge = config_of("sennit-edge.service"),
    );
    // A host of its own, as far as these two folders go.
    let ran = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .env("SENNIT", env!("CARGO_BIN_EXE_sennit"))
        .output();
    let ran = match ran {
        Ok(ran) if ran.status.code() != Some(99) && !is_refused(&ran.stderr) => ran,
        _ => return println!("SKIPPED: needs user namespaces"),
    };
    let said = String::from_utf8_lossy(&ran.stdout);
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}{errors}");
    for words in ["hub.toml: a hub", "edge.toml: an edge with 1 link"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn the_compose_file_mounts_what_is_there_names_images_by_tag_and_holds_no_secret() {
    let folder = workspace().join("packaging/container");
    let text = fs::read_to_string(folder.join("compose.yaml")).unwrap();
    let after = |sign: &str| -> Vec<String> {
        let lines = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix(sign));
        lines.map(str::to_owned).collect()
    };

    let mounts = after("- ../");
    assert_eq!(mounts.len(), 2, "{mounts:?}");
    for mount in &mounts {
        let (source, place) = mount.split_once(':').unwrap();
        assert!(folder.join("..").join(source).is_dir(), "{source}");
        assert!(place.ends_with(":ro"), "{mount}");
    }
    let images = after("image: ");
    assert_eq!(images.len(), 3, "{images:?}");
    for image in images {
        assert!(image.contains(':') && !image.contains('@'), "{image}");
    }
    let lines = text.lines().filter(|line| !line.trim().starts_with('#'));
    for line in lines {
        let line = line.to_lowercase();
        let is_secret = ["password", "token", "secret"].map(|word| line.contains(word));
        assert_eq!(is_secret, [false; 3], "{line}");
    }

    // Grafana looks for both where its folder is mounted.
    let provider = folder.join("../grafana/provisioning/dashboards/sennit.yml");
    let provider = fs::read_to_string(provider).unwrap();
    let place = "/usr/share/sennit/grafana";
    assert!(mounts.iter().any(|it| *it == format!("grafana:{place}:ro")));
    assert!(provider.contains(&format!("path: {place}\n")));
    assert!(text.contains(&format!("PROVISIONING: {place}/provisioning\n")));
}

fn is_refused(said: &[u8]) -> bool {
    String::from_utf8_lossy(said).starts_with("unshare:")
}
