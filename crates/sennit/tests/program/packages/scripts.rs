//! The scripts of packages and of `make install`, with stand-ins for what they start.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use super::{is_refused, workspace};

/// Writes a shell script that can be started.
pub(super) fn write_program(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// Makes the programs that are started those of this directory first.
fn beside(directory: &Path) -> String {
    format!("{}:{}", directory.display(), std::env::var("PATH").unwrap())
}

/// Stands in for systemctl where four daemons run, of which one cannot be restarted.
const SYSTEMCTL: &str = r#"
    echo "$@" >>"$AT/log"
    for unit; do :; done
    case $1 in
    list-units)
        for unit in hub edge edge@dock edge@gone; do
            echo "sennit-$unit.service loaded active running Sennit"
        done ;;
    show)
        name=${unit#sennit-} name=${name#edge@}
        echo "{ path=/usr/bin/sennit ; argv[]=/usr/bin/sennit edge --config $AT/${name%.service}.toml ;" \
            "ignore_errors=no ; status=0/0 }" ;;
    try-restart) [ "$unit" != sennit-hub.service ] ;;
    esac"#;

/// Runs a command in the workspace, as root of a host of its own, where systemd runs, as far as
/// /run tells.
fn run_under_systemd(directory: &Path, command: &str) -> Option<Output> {
    let inside = "mount -t tmpfs none /run || exit 99; mkdir -p /run/systemd/system; exec $COMMAND";
    let ran = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", inside])
        .env("PATH", beside(directory))
        .env("AT", directory)
        .env("LOCAL", directory.join("local"))
        .env("MAKE_USER", "true")
        .env("SENNIT", env!("CARGO_BIN_EXE_sennit"))
        .env("COMMAND", command)
        .env_remove("MAKEFLAGS")
        .current_dir(workspace())
        .output();
    match ran {
        Ok(ran) if ran.status.code() != Some(99) && !is_refused(&ran.stderr) => Some(ran),
        _ => {
            println!("SKIPPED: needs user namespaces");
            None
        }
    }
}

#[test]
fn an_upgrade_restarts_what_the_new_program_can_run_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write_program(&at("systemctl"), SYSTEMCTL);
    fs::create_dir_all(at("local/bin")).unwrap();
    fs::write(at("local/bin/sennit"), "").unwrap();
    let good = "[edge]\nhub = ['203.0.113.10:443']\n[[link]]\nname = 'lte'\ninterface = 'lo'\n";
    fs::write(at("edge.toml"), good).unwrap();
    fs::write(at("dock.toml"), format!("{good}teir = 2\n")).unwrap();
    let hub = "[hub]\nlisten = ['127.0.0.1:443']\npool = ['10.200.0.0/16']\n";
    fs::write(at("hub.toml"), hub).unwrap();

    let upgrade = "packaging/after-installation upgrade";
    let Some(ran) = run_under_systemd(folder.path(), upgrade) else {
        return;
    };

    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    let log = fs::read_to_string(at("log")).unwrap();
    let restarted = log
        .lines()
        .filter_map(|line| line.strip_prefix("try-restart "));
    let restarted: Vec<&str> = restarted.collect();
    assert_eq!(
        restarted,
        ["sennit-hub.service", "sennit-edge.service"],
        "{said}"
    );
    for words in [
        "local/bin/sennit, of an earlier `make install`",
        "sennit-hub.service was not restarted",
        "unknown key `teir`",
        "sennit-edge@dock.service goes on with the earlier program",
        "sennit-edge@gone.service goes on with the earlier program",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("sennit-edge.service"), "{said}");
}

#[test]
fn an_upgrade_leaves_running_what_could_not_start_as_the_user_of_its_unit() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    set_mode(folder.path(), 0o711);
    write_program(
        &at("systemctl"),
        &SYSTEMCTL.replace("edge --config", "edge --user 7:8 --config"),
    );
    for (name, mode) in [("hub", 0o700), ("edge", 0o755), ("dock", 0o700)] {
        let state = at(&format!("of-{name}"));
        fs::create_dir(&state).unwrap();
        set_mode(&state, mode);
        let token = at(if name == "dock" {
            "of-dock/token"
        } else {
            "token"
        });
        let (state, token) = (state.display(), token.display());
        let of_role = match name {
            "hub" => "[hub]\nlisten = ['127.0.0.1:443']\npool = ['10.200.0.0/16']",
            _ => "[edge]\nhub = ['203.0.113.10:443']",
        };
        let links = if name == "hub" {
            ""
        } else {
            "[[link]]\nname = 'lte'\ninterface = 'lo'\n"
        };
        let text =
            format!("{of_role}\nstate = '{state}'\n{links}[api]\nread_token = 'file:{token}'\n");
        fs::write(at(&format!("{name}.toml")), text).unwrap();
    }

    let upgrade = "packaging/after-installation upgrade";
    let Some(ran) = run_under_systemd(folder.path(), upgrade) else {
        return;
    };

    let said = String::from_utf8_lossy(&ran.stderr);
    let log = fs::read_to_string(at("log")).unwrap();
    let restarts: Vec<&str> = log
        .lines()
        .filter(|line| line.starts_with("try-restart"))
        .collect();
    assert_eq!(restarts, ["try-restart sennit-hub.service"], "{said}");
    for words in [
        "of-edge is open to others",
        "of-dock/token: move it out of",
        "as user 7:8: mend that",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// Runs `make-user` for a host that is in this directory, and says whom that has then.
fn make_user(host: &Path, found_first: &Path) -> String {
    fs::create_dir_all(host.join("etc")).unwrap();
    let script = "packaging/make-user";
    let ran = Command::new("unshare")
        .args(["--user", "--map-root-user", script])
        .arg(host)
        .env("PATH", beside(found_first))
        .current_dir(workspace())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    fs::read_to_string(host.join("etc/passwd")).unwrap_or_default()
}

#[test]
fn a_user_is_made_once_and_so_is_a_directory_for_states_which_stays_whose_it_is() {
    let namespaces = Command::new("unshare")
        .args(["--user", "--map-root-user", "true"])
        .status();
    if !namespaces.is_ok_and(|it| it.success()) {
        return println!("SKIPPED: needs user namespaces");
    }
    let folder = tempfile::tempdir().unwrap();
    let (stand_in, host) = (folder.path().join("bin"), folder.path().join("host"));
    fs::create_dir(&stand_in).unwrap();
    // Of a real one the user has a number of its own choice.
    let line = "sennit:x:998:998:Sennit daemons:/:/usr/sbin/nologin";
    let script = format!("grep -q '^u sennit - ' && echo '{line}' >>\"${{1#--root=}}/etc/passwd\"");
    write_program(&stand_in.join("systemd-sysusers"), &script);

    assert_eq!(make_user(&host, &stand_in), format!("{line}\n"));

    let state = host.join("var/lib/sennit");
    let mode = || fs::metadata(&state).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o700);
    fs::set_permissions(&state, Permissions::from_mode(0o750)).unwrap();
    assert_eq!(
        make_user(&host, &stand_in),
        format!("{line}\n"),
        "it is there"
    );
    assert_eq!(mode(), 0o750);
}

#[test]
fn a_purge_takes_the_user_that_was_made_and_no_other_of_that_name() {
    let purge = |comment: &str| {
        let folder = tempfile::tempdir().unwrap();
        write_program(&folder.path().join("userdel"), r#"echo "$@" >>"$AT/log""#);
        write_program(&folder.path().join("systemctl"), "");
        let inside = r#"
            for at in /etc /var/lib; do mount -t tmpfs none $at || exit 99; done
            echo "sennit:x:998:998:$COMMENT:/:/usr/sbin/nologin" >/etc/passwd
            mkdir -p /etc/sennit /var/lib/sennit/dock
            packaging/deb/postrm purge && [ ! -e /etc/sennit ] && [ ! -e /var/lib/sennit ]"#;
        write_program(
            &folder.path().join("inside"),
            &format!("COMMENT='{comment}'\n{inside}"),
        );
        let ran = run_under_systemd(
            folder.path(),
            folder.path().join("inside").to_str().unwrap(),
        )?;
        assert!(ran.status.success(), "{ran:?}");
        Some(fs::read_to_string(folder.path().join("log")).unwrap_or_default())
    };

    let Some(of_ours) = purge("Sennit daemons") else {
        return;
    };
    assert_eq!(of_ours, "sennit\n");
    assert_eq!(purge("").unwrap(), "");
}

#[test]
fn an_upgrade_restarts_also_what_does_not_fit_the_host_and_started_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    write_program(&folder.path().join("systemctl"), SYSTEMCTL);
    fs::write(folder.path().join("edge.toml"), crate::OVERLAPPING).unwrap();

    let upgrade = || run_under_systemd(folder.path(), "packaging/after-installation upgrade");
    let Some(Some(ran)) = crate::where_it_overlaps(upgrade) else {
        return;
    };

    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("try-restart sennit-edge.service\n"), "{ran:?}");
}

#[test]
fn a_first_installation_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    write_program(&folder.path().join("systemctl"), SYSTEMCTL);

    let Some(ran) = run_under_systemd(folder.path(), "packaging/after-installation") else {
        return;
    };

    assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert_eq!(log, "daemon-reload\n");
}

#[test]
fn what_make_installs_names_the_program_that_it_installs() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("target/release")).unwrap();
    write_program(&at("target/release/sennit"), "");

    // As under sudo, which does not find the cargo of who has built it.
    let installed = Command::new("make")
        .args(["--silent", "install", "PREFIX=/opt/sennit"])
        .arg(format!("DESTDIR={}", at("host").display()))
        .current_dir(workspace())
        .env("CARGO_TARGET_DIR", at("target"))
        .env("SUDO_USER", "somebody")
        .env_remove("MAKEFLAGS")
        .env_remove("TUNED")
        .output()
        .unwrap();

    let said = String::from_utf8_lossy(&installed.stderr);
    assert!(installed.status.success(), "{said}");
    assert!(at("host/opt/sennit/bin/sennit").is_file() && at("host/etc/sennit").is_dir());
    assert!(at("host/opt/sennit/lib/sysusers.d/sennit.conf").is_file());
    let mut units = 0;
    for unit in fs::read_dir(at("host/opt/sennit/lib/systemd/system")).unwrap() {
        let text = fs::read_to_string(unit.unwrap().path()).unwrap();
        assert!(text.contains("ExecStart=/opt/sennit/bin/sennit "), "{text}");
        assert!(!text.contains("/usr/bin/sennit"), "{text}");
        units += 1;
    }
    assert_eq!(units, super::units().len());
}

#[test]
fn what_make_installed_goes_and_systemd_and_the_operator_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write_program(&at("systemctl"), SYSTEMCTL);
    let there = [
        "opt/bin/sennit",
        "opt/lib/systemd/system/sennit-hub.service",
        "opt/lib/sysusers.d/sennit.conf",
    ];
    for file in there {
        fs::create_dir_all(at(file).parent().unwrap()).unwrap();
        fs::write(at(file), "").unwrap();
    }

    let uninstall = format!("make --silent uninstall PREFIX={}", at("opt").display());
    let Some(ran) = run_under_systemd(folder.path(), &uninstall) else {
        return;
    };

    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    assert!(there.iter().all(|file| !at(file).exists()));
    let log = fs::read_to_string(at("log")).unwrap();
    assert!(log.starts_with("daemon-reload\n"), "{log}");
    assert!(
        said.contains("goes on with the program that was deleted"),
        "{said}"
    );
}

#[test]
fn a_page_that_could_not_be_built_is_told_even_if_an_earlier_one_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("tools")).unwrap();
    fs::create_dir_all(at("web/dist")).unwrap();
    fs::copy(workspace().join("tools/page"), at("tools/page")).unwrap();
    fs::write(at("web/dist/index.html"), "").unwrap();
    write_program(&at("node"), "echo v24.0.0");
    let page = |word: &str, npm: &str| {
        write_program(&at("npm"), npm);
        let mut page = Command::new(at("tools/page"));
        let ran = page.arg(word).env("PATH", beside(folder.path())).output();
        let ran = ran.unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        (ran.status.success(), said)
    };

    assert!(!page("build", "[ $1 != run ]").0);
    let (_, said) = page("missing", "");
    assert!(
        said.contains("of an earlier build: it could not be built"),
        "{said}"
    );

    assert!(page("build", "").0);
    assert_eq!(page("missing", ""), (true, String::new()));
}

#[test]
fn where_node_is_too_old_it_is_said_which_one_there_has_to_be_and_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    write_program(&folder.path().join("node"), "echo v18.19.1");
    write_program(&folder.path().join("npm"), "exit 1");

    let built = Command::new(workspace().join("tools/page"))
        .arg("build")
        .env("PATH", beside(folder.path()))
        .output()
        .unwrap();

    assert!(!built.status.success());
    let said = String::from_utf8_lossy(&built.stderr);
    for words in ["NO PAGE", "v18.19.1", "20.19", "https://nodejs.org"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}
