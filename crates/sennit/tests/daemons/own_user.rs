//! Daemons that are not root: what is theirs, what stays root's, and that all works as with root.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use sennit::status::Status;
use sennit_lab::Role;
use serde_json::{Value, json};

use crate::confined::helper_of;
use crate::editing::http;
use crate::traffic::ping;
use crate::world::{Daemon, Edge, HUB_INNER, SENNIT, World, run, traces, wait_for};

/// No account of any host, and no other test's.
const UID: u32 = 617_840;
const GID: u32 = 617_841;

/// Lets every user pass to what daemons keep, as on a real host, or none but root.
fn set_mode(world: &World, mode: u32) {
    let directory = world.path("hub");
    let mode = Permissions::from_mode(mode);
    fs::set_permissions(directory.parent().unwrap(), mode).unwrap();
}

/// Starts a daemon as that user, with a config that only root may read.
fn start<'w>(
    world: &'w World,
    name: &str,
    on: Role,
    (role, user, config): (&str, &str, &str),
) -> Daemon<'w> {
    let file = write_config(world, name, config);
    let mut command = world.host(on).command(SENNIT);
    command.args([role, "--user", user, "--config"]).arg(file);
    world.spawn(name, on, command)
}

fn write_config(world: &World, name: &str, config: &str) -> PathBuf {
    let file = world.write(&format!("{name}.toml"), config);
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    file
}

/// `None`, said loudly, also where rights cannot be taken from a program.
fn world_with_setpriv() -> Option<World> {
    if Command::new("setpriv").arg("--version").output().is_err() {
        #[expect(clippy::explicit_write, reason = "the macro's output is captured")]
        writeln!(io::stderr(), "SKIPPED: needs setpriv of util-linux").unwrap();
        return None;
    }
    World::with_two_links()
}

/// A command of this program with no more rights than the unit of a role gives to it.
fn as_in_unit(world: &World, on: Role, role: &str) -> Command {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let unit = fs::read_to_string(units.join(format!("sennit-{role}.service"))).unwrap();
    let sets = unit
        .lines()
        .filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = sets.flat_map(|set| set.split_whitespace());
    let added = names.map(|name| name.replace("CAP_", ",+").to_lowercase());
    let set = format!("--bounding-set=-all{}", added.collect::<String>());
    let mut command = world.host(on).command("setpriv");
    command.args([&set, "--no-new-privs", SENNIT]);
    command
}

/// Starts a daemon as its unit does, but as the user of these tests.
fn start_as_in_unit<'w>(world: &'w World, name: &str, role: &str, config: &str) -> Daemon<'w> {
    let on = if role == "hub" { Role::Hub } else { Role::Edge };
    let file = write_config(world, name, config);
    let user = format!("{UID}:{GID}");
    let mut command = as_in_unit(world, on, role);
    command.args([role, "--user", &user, "--config"]).arg(file);
    world.spawn(name, on, command)
}

fn start_pair(world: &World) -> (Daemon<'_>, Daemon<'_>) {
    set_mode(world, 0o711);
    let user = format!("{UID}:{GID}");
    world.sennit("hub", &["hub", "init", "--name", "hub.example"]);
    let config = world.hub_config("");
    let hub = start(world, "hub", Role::Hub, ("hub", &user, &config));
    hub.wait_until_up();
    // Root's command writes into what is the hub's by now.
    world.join("van");
    let config = world.edge_config(&Edge::default());
    let edge = start(world, "van", Role::Edge, ("edge", &user, &config));
    edge.wait_until_up();
    (hub, edge)
}

/// The users that a process or thread has: real, effective, saved, for files.
fn users(status: &Path) -> Vec<u32> {
    let text = fs::read_to_string(status).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:"));
    let numbers = line.unwrap().split_whitespace();
    numbers.map(|it| it.parse().unwrap()).collect()
}

#[track_caller]
fn assert_whose(daemon: &Daemon<'_>) {
    let threads = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    for thread in threads.flatten() {
        assert_eq!(users(&thread.path().join("status")), [UID; 4]);
    }
    let helper = helper_of(daemon).expect("somebody changes the host");
    let status = format!("/proc/{helper}/status");
    assert_eq!(users(Path::new(&status)), [0; 4]);
    assert_eq!(daemon.status().confinement.unwrap().uid, UID);
}

/// Whose a directory is with all that is in it.
#[track_caller]
fn assert_his(path: &Path) {
    let Ok(found) = fs::symlink_metadata(path) else {
        // Files beside a database come and go.
        return;
    };
    let his = (found.uid(), found.gid());
    assert_eq!(his, (UID, GID), "{}", path.display());
    if found.is_dir() {
        let entries = fs::read_dir(path).unwrap().flatten();
        entries.for_each(|it| assert_his(&it.path()));
    }
}

/// What a hub says of the rotation of its authority.
fn says(status: &Status, what: &str) -> bool {
    status.notes.iter().any(|note| note.contains(what))
}

#[test]
fn a_daemon_that_is_not_root_carries_traffic_stops_and_starts_again() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let before = [Role::Hub, Role::Edge].map(|role| traces(world.host(role)));
    let (mut hub, mut van) = start_pair(&world);

    for _ in 0..2 {
        ping(van.host, HUB_INNER[0]);
        for (daemon, name) in [(&hub, "hub"), (&van, "van")] {
            assert_whose(daemon);
            assert_his(&world.path(name));
            let role = if name == "hub" { "hub" } else { "edge" };
            let history = world.path(name).join(format!("{role}-history.db"));
            wait_for("a history", || history.exists(), |is_there| *is_there);
        }
        for (daemon, name) in [(&mut van, "van"), (&mut hub, "hub")] {
            assert_eq!(daemon.stop().code(), Some(0));
            for left in ["sock", "sock.lock"] {
                let left = world.path(&format!("{name}.{left}"));
                assert!(!left.exists(), "{}", left.display());
            }
            assert_his(&world.path(name));
        }
        let after = [Role::Hub, Role::Edge].map(|role| traces(world.host(role)));
        assert_eq!(after, before);
        hub.start_again();
        hub.wait_until_up();
        van.start_again();
        van.wait_until_up();
    }
}

#[test]
fn a_daemon_with_the_rights_of_its_unit_gets_at_what_is_its_users_by_now() {
    let Some(world) = world_with_setpriv() else {
        return;
    };
    let before = [Role::Hub, Role::Edge].map(|role| traces(world.host(role)));
    set_mode(&world, 0o711);
    world.sennit("hub", &["hub", "init", "--name", "hub.example"]);
    let token = world.write("token", &"t".repeat(40));
    fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
    let token = format!("[api]\nread_token = 'file:{}'\n", token.display());
    let config = world.hub_config(&token);
    for round in 0..2 {
        let hub = start_as_in_unit(&world, "hub", "hub", &config);
        hub.wait_until_up();
        if round == 0 {
            world.join("van");
        }
        let records = world.path("van").join("records");
        let edge = Edge {
            more: &format!("records = '{}'", records.display()),
            ..Edge::default()
        };
        let edge_config = world.edge_config(&edge);
        let van = start_as_in_unit(&world, "van", "edge", &edge_config);
        van.wait_until_up();
        ping(van.host, HUB_INNER[0]);
        for (mut daemon, name, role, on) in [
            (van, "van", "edge", Role::Edge),
            (hub, "hub", "hub", Role::Hub),
        ] {
            assert_whose(&daemon);
            assert_his(&world.path(name));
            let mut reload = as_in_unit(&world, on, role);
            reload.args(["reload", "--config"]);
            let reloaded = run(reload.arg(world.path(&format!("{name}.toml"))));
            assert_eq!(reloaded.code, Some(0), "{}", reloaded.stderr);
            assert_eq!(daemon.stop().code(), Some(0));
            assert!(!world.path(&format!("{name}.sock")).exists());
            leave_behind(&world.path(name));
        }
        let after = [Role::Hub, Role::Edge].map(|role| traces(world.host(role)));
        assert_eq!(after, before);
    }
}

/// Leaves in a directory what root has brought there, as from a backup.
fn leave_behind(state: &Path) {
    let folder = state.join("restored");
    fs::create_dir_all(&folder).unwrap();
    for file in [state.join("leftover"), folder.join("deeper")] {
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        chown(&file, Some(0), Some(0)).unwrap();
    }
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    chown(&folder, Some(0), Some(0)).unwrap();
}

#[test]
fn a_token_of_roots_that_was_replaced_is_read_again_for_a_daemon_that_is_not_root() {
    let Some(world) = world_with_setpriv() else {
        return;
    };
    set_mode(&world, 0o711);
    world.sennit("hub", &["hub", "init", "--name", "hub.example"]);
    let write = |text: &str, mode| {
        let file = world.write("token", &text.repeat(40));
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        file
    };
    let token = write("a", 0o600);
    let api = format!("[api]\nread_token = 'file:{}'\n", token.display());
    let hub = start_as_in_unit(&world, "hub", "hub", &world.hub_config(&api));
    hub.wait_until_up();
    assert!(hub.tell(&["reload"]).contains("nothing has changed"));

    write("b", 0o600);
    let said = hub.tell(&["reload"]);
    let named = format!("{}: read anew", token.display());
    assert!(said.contains(&named), "{said}");

    let assert_refused = |words: &str| {
        let mut reload = hub.host.command(SENNIT);
        reload.args(["reload", "--control"]).arg(&hub.control);
        let refused = run(&mut reload);
        assert_eq!(refused.code, Some(5), "{}", refused.stderr);
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    };
    write("c", 0o644);
    assert_refused("others may read it");

    write("c", 0o600);
    let other = world.write("other", &"d".repeat(40));
    fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
    let named = format!("{api}operate_token = 'file:{}'\n", other.display());
    write_config(&world, "hub", &world.hub_config(&named));
    assert_refused("restart the daemon");
}

#[test]
fn what_another_device_has_left_goes_with_the_rights_of_the_unit() {
    let Some(world) = world_with_setpriv() else {
        return;
    };
    let before = traces(world.host(Role::Hub));
    set_mode(&world, 0o711);
    world.sennit("hub", &["hub", "init", "--name", "hub.example"]);
    let config = world.hub_config("");
    let mut killed = start_as_in_unit(&world, "hub", "hub", &config);
    killed.wait_until_up();
    killed.kill();

    let other = config.replace("device = 'hub'", "device = 'other'");
    let mut hub = start_as_in_unit(&world, "hub", "hub", &other);
    hub.wait_until_up();

    hub.wait_for_log(&["nothing is left of the earlier device"]);
    assert_eq!(hub.stop().code(), Some(0));
    assert_eq!(traces(world.host(Role::Hub)), before);
}

#[test]
fn what_the_unit_runs_when_a_daemon_has_ended_finds_its_earlier_device_in_a_state_of_that_user() {
    let Some(world) = world_with_setpriv() else {
        return;
    };
    let before = traces(world.host(Role::Hub));
    set_mode(&world, 0o711);
    world.sennit("hub", &["hub", "init", "--name", "hub.example"]);
    let config = world.hub_config("");
    let mut killed = start_as_in_unit(&world, "hub", "hub", &config);
    killed.wait_until_up();
    killed.kill();
    let other = config.replace("device = 'hub'", "device = 'other'");
    let file = write_config(&world, "hub", &other);

    let mut cleanup = as_in_unit(&world, Role::Hub, "hub");
    let cleaned = run(cleanup.args(["cleanup", "--config"]).arg(file));

    assert_eq!(cleaned.code, Some(0), "{}", cleaned.stderr);
    for device in ["other", "hub"] {
        let words = format!("Nothing of {device} is left");
        assert!(cleaned.stderr.contains(&words), "{}", cleaned.stderr);
    }
    assert_eq!(traces(world.host(Role::Hub)), before);
}

#[test]
fn a_reload_with_the_rights_of_the_unit_opens_links_routes_and_classes() {
    let Some(world) = world_with_setpriv() else {
        return;
    };
    let before = traces(world.host(Role::Edge));
    set_mode(&world, 0o711);
    world.sennit("hub", &["hub", "init", "--name", "hub.example"]);
    let hub = start_as_in_unit(&world, "hub", "hub", &world.hub_config(""));
    hub.wait_until_up();
    world.join("van");
    let one = Edge {
        links: &[("a", "wan-a", "")],
        routes: &["10.200.0.0/16"],
        ..Edge::default()
    };
    let mut van = start_as_in_unit(&world, "van", "edge", &world.edge_config(&one));
    van.wait_until_up();

    let more = Edge {
        classes: "[[class]]\nname = 'calls'\nmatch = ['udp port 5060']\n[[class]]\nname = 'default'\n",
        ..Edge::default()
    };
    let file = write_config(&world, "van", &world.edge_config(&more));
    let mut reload = as_in_unit(&world, Role::Edge, "edge");
    let reloaded = run(reload.args(["reload", "--config"]).arg(file));
    assert_eq!(reloaded.code, Some(0), "{}", reloaded.stderr);

    van.wait_until_up();
    let status = van.status();
    assert_eq!(status.links.len(), 2);
    assert!(
        status.links.iter().all(|it| it.address.is_some()),
        "{status:?}"
    );
    let out = van.host.exec(&["ip", "route", "get", "203.0.113.77"]);
    let out = String::from_utf8(out.unwrap().stdout).unwrap();
    assert!(out.contains("dev van"), "{out}");
    assert_whose(&van);
    assert_eq!(van.stop().code(), Some(0));
    assert_eq!(traces(world.host(Role::Edge)), before);
}

#[test]
fn an_authority_is_rotated_and_a_config_read_again_for_daemons_that_are_not_root() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, van) = start_pair(&world);

    world.sennit("hub", &["hub", "authority", "rotate"]);
    van.wait_for_log(&["certificate renewed", "other_authority=true"]);
    hub.wait("all sites to have moved", |status| {
        says(status, "all sites know the present one")
    });
    assert_his(&world.path("hub"));
    world.sennit("hub", &["hub", "authority", "finish"]);
    hub.wait("the rotation to be over", |status| {
        !says(status, "being rotated")
    });
    ping(van.host, HUB_INNER[0]);
    for name in ["hub", "van"] {
        assert_his(&world.path(name));
    }

    let file = world.path("van.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        text.replace("interface = 'wan-b'", "interface = 'wan-b'\ntier = 2"),
    )
    .unwrap();
    let said = van.tell(&["reload"]);
    assert!(said.contains("tier"), "{said}");
    assert_eq!(van.status().links[1].tier, 2);
    // A link's socket and routes come from the helper.
    for state in ["down", "up"] {
        let line = ["ip", "link", "set", "wan-b", state];
        van.host.exec(&line).unwrap();
        van.wait("the link to follow", |status| {
            status.links[1].address.is_some() == (state == "up")
        });
    }
    van.wait_until_up();
    let mut doctor = van.host.command(SENNIT);
    let said = run(doctor.args(["doctor", "--config"]).arg(&file)).stdout;
    assert!(
        said.contains("the edge runs as a user of its own"),
        "{said}"
    );
    world.invite("ship");
    world.sennit("hub", &["revoke", "ship"]);
    assert_whose(&hub);
}

#[test]
fn a_page_edits_a_config_of_roots_and_names_no_other_files_in_it() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    set_mode(&world, 0o711);
    world.sennit("hub", &["hub", "init", "--name", "hub.example"]);
    let (config, user) = (world.hub_config(""), format!("{UID}:{GID}"));
    let mut hub = start(&world, "hub", Role::Hub, ("hub", &user, &config));
    hub.wait_until_up();
    let file = world.path("hub.toml");
    let put = |text: &str, seconds: Option<u32>| {
        let (_, shown) = http(&hub, "GET", "/v1/config", &Value::Null);
        let wish = json!({ "text": text, "version": shown["version"], "confirm_seconds": seconds });
        http(&hub, "PUT", "/v1/config", &wish)
    };

    let edited = format!("{config}reach = ['hub'] # for now\n");
    let (code, applied) = put(&edited, Some(60));
    assert_eq!(
        (code, &applied["applied"]),
        (200, &json!(true)),
        "{applied}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), config, "it is on trial");
    let (code, kept) = http(&hub, "POST", "/v1/config/keep", &Value::Null);
    assert_eq!(code, 200, "{kept}");
    assert_eq!(fs::read_to_string(&file).unwrap(), edited);
    let (code, applied) = put(&config, Some(60));
    assert_eq!(code, 200, "{applied}");
    http(&hub, "POST", "/v1/config/revert", &Value::Null);
    assert_eq!(fs::read_to_string(&file).unwrap(), edited);
    let elsewhere = edited.replace("control = ", "state = '/root'\n# ");
    let elsewhere = elsewhere.replacen("state = ", "# ", 1);
    let (code, refused) = put(&elsewhere, None);
    assert_eq!(
        (code, &refused["code"]),
        (409, &json!("cannot_write")),
        "{refused}"
    );
    assert!(refused.to_string().contains("by hand"), "{refused}");

    let found = fs::metadata(&file).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o777), (0, 0o600));
    assert_eq!(hub.stop().code(), Some(0));
    let names = fs::read_dir(file.parent().unwrap()).unwrap().flatten();
    let left: Vec<PathBuf> = names.map(|it| it.path()).collect();
    let drafts = left
        .iter()
        .filter(|it| it.to_string_lossy().contains("draft"));
    assert_eq!(drafts.count(), 0, "{left:?}");
}

#[test]
fn a_daemon_says_why_it_cannot_be_a_user_and_stays_root_if_it_is_told_to() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    world.sennit("hub", &["hub", "init", "--name", "hub.example"]);
    let config = world.write("hub.toml", &world.hub_config(""));
    let ended = |user: &str| {
        let mut command = world.host(Role::Hub).command(SENNIT);
        run(command
            .args(["hub", "--user", user, "--config"])
            .arg(&config))
    };

    let unknown = ended("snt-nobody-at-all");
    assert_eq!(unknown.code, Some(2), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("useradd"), "{}", unknown.stderr);
    set_mode(&world, 0o700);
    let kept_out = ended(&UID.to_string());
    assert_eq!(kept_out.code, Some(1), "{}", kept_out.stderr);
    assert!(kept_out.stderr.contains("chmod o+x"), "{}", kept_out.stderr);
    set_mode(&world, 0o711);
    let token = world.write("hub/token", &"t".repeat(40));
    let named = format!("[api]\nread_token = 'file:{}'\n", token.display());
    world.write("hub.toml", &world.hub_config(&named));
    let misplaced = ended(&UID.to_string());
    assert_eq!(misplaced.code, Some(1), "{}", misplaced.stderr);
    let said = misplaced.stderr;
    assert!(said.contains("/token: move it out of"), "{said}");
    let state = fs::metadata(world.path("hub")).unwrap();
    assert_eq!(state.uid(), 0, "nothing was handed over");

    let hub = start(
        &world,
        "hub",
        Role::Hub,
        ("hub", "root", &world.hub_config("")),
    );
    hub.wait_until_up();
    assert_eq!(hub.status().confinement.unwrap().uid, 0);
}
