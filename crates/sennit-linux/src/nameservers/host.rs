//! Who asks for names on this host, as far as it is told by us.

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{DeviceName, Draft, program};

/// The file that the C library reads.
pub const FILE: &str = "/etc/resolv.conf";
/// Where systemd-resolved has its files, of which this one is there while it runs.
const RESOLVED: &str = "/run/systemd/resolve";
const STUB: &str = "stub-resolv.conf";
/// Where the kernel lists the network devices there are.
const DEVICES: &str = "/sys/class/net";
/// A command takes no longer, also where who looks after names does not answer it.
const PATIENCE: Duration = Duration::from_secs(4);
/// The first line of our file, with the device after it.
const OURS: &str = "# Written by sennit for ";
/// Before each line of the file that was there.
const BEFORE: &str = "#before: ";

/// Who was told of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Resolved,
    Resolvconf,
    File,
}

/// Runs a command with words and input; false if there is no such command.
type Run = Box<dyn Fn(&str, &[&str], &str) -> io::Result<bool>>;

/// The servers that the host is to know because of us.
pub(super) struct Host {
    device: DeviceName,
    servers: Vec<IpAddr>,
    /// How it was told of them, if it was.
    way: Option<Way>,
    /// The log knows that it was not.
    complained: bool,
    /// How often another program has written the file in place of ours.
    overwritten: u32,
    /// The device of another edge here whose file stands in place of ours.
    other: Option<DeviceName>,
    file: PathBuf,
    resolved: PathBuf,
    run: Run,
}

impl Host {
    pub(super) fn new(device: &DeviceName) -> Self {
        restore(device);
        Self {
            device: device.clone(),
            servers: Vec::new(),
            way: None,
            complained: false,
            overwritten: 0,
            other: None,
            file: FILE.into(),
            resolved: RESOLVED.into(),
            run: Box::new(run),
        }
    }

    pub(super) fn set(&mut self, servers: &[IpAddr]) {
        if self.servers != servers {
            self.forget();
            self.servers = servers.to_vec();
            self.complained = false;
            self.overwritten = 0;
            self.tell();
        }
    }

    /// Tells the host of the servers, if it has to be told, by the first way that it has.
    pub(super) fn tell(&mut self) {
        self.look();
        if self.servers.is_empty() || self.way.is_some() {
            return;
        }
        let mut failures = Vec::new();
        for way in [Way::Resolved, Way::Resolvconf, Way::File] {
            match self.tell_by(way) {
                Ok(true) => {
                    let servers = &self.servers;
                    // Two programs that undo each other's work are told of once.
                    if self.overwritten <= 1 {
                        tracing::info!(?servers, by = way.name(), "names are looked up there");
                    }
                    self.way = Some(way);
                    return;
                }
                Ok(false) => {}
                Err(error) => {
                    failures.push(format!("{}: {error}", way.name()));
                    // Half of it may be done.
                    self.undo(way);
                    // Who looks after names here is not to be gone behind.
                    if way == Way::Resolved {
                        break;
                    }
                }
            }
        }
        if !std::mem::replace(&mut self.complained, true) {
            let servers = &self.servers;
            let what = "the host does not learn of the name servers; it is tried again";
            tracing::warn!(?servers, ?failures, "{what}");
        }
    }

    /// Notices that another program has written the file since, as DHCP clients do.
    fn look(&mut self) {
        if self.way != Some(Way::File) {
            return;
        }
        let head = head(self.device.as_str()) + &lines(&self.servers);
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        // Two edges on a host would write it in turns for ever.
        let other = owner_of(&text).filter(|other| *other != self.device);
        self.other = other.filter(|it| Path::new(DEVICES).join(it.as_str()).exists());
        if self.other.is_none() && !text.starts_with(&head) {
            self.way = None;
            self.overwritten = self.overwritten.saturating_add(1);
            if self.overwritten == 1 {
                let file = self.file.display();
                tracing::warn!(%file, "another program has written it: our name servers are put back");
            }
        }
    }

    pub(super) fn note(&self) -> Option<String> {
        if self.servers.is_empty() {
            return None;
        }
        let servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
        let servers = servers.join(", ");
        let again = match self.overwritten {
            0 => String::new(),
            1 => ", put back after another program had written it".to_owned(),
            times => format!(", put back {times} times after another program had written it"),
        };
        Some(match (self.way, &self.other) {
            (Some(_), Some(other)) => {
                format!("names are looked up where the edge of {other} says, and not at {servers}")
            }
            (Some(way), None) => {
                format!("names are looked up at {servers}, by {}{again}", way.name())
            }
            (None, _) => format!("names are not looked up at {servers}: see the log"),
        })
    }

    /// Tells the host; false if it has not this way.
    fn tell_by(&self, way: Way) -> io::Result<bool> {
        let (device, run) = (self.device.as_str(), &self.run);
        match way {
            Way::Resolved if !self.resolved.join(STUB).exists() => Ok(false),
            Way::Resolved => {
                let servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
                let mut words = vec!["dns", device];
                words.extend(servers.iter().map(String::as_str));
                Ok(run("resolvectl", &words, "")?
                    && run("resolvectl", &["domain", device, "~."], "")?
                    && run("resolvectl", &["default-route", device, "yes"], "")?)
            }
            Way::Resolvconf => run("resolvconf", &["-a", device], &lines(&self.servers)),
            Way::File if leads_into(&self.file, &self.resolved) => {
                Err(io::Error::other("the file is systemd-resolved's own"))
            }
            Way::File => replace(&self.file, device, &self.servers).map(|()| true),
        }
    }

    fn forget(&mut self) {
        if let Some(way) = self.way.take() {
            self.undo(way);
        }
        self.servers.clear();
    }

    fn undo(&self, way: Way) {
        let (device, run) = (self.device.as_str(), &self.run);
        let done = match way {
            Way::Resolved => run("resolvectl", &["revert", device], ""),
            Way::Resolvconf => run("resolvconf", &["-d", device], ""),
            Way::File => put_back(&self.file, device),
        };
        // It may be tried again every few seconds.
        if let Err(error) = done
            && !self.complained
        {
            tracing::warn!(%error, "the host may still know our name servers");
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.forget();
    }
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Resolved => "systemd-resolved",
            Self::Resolvconf => "resolvconf",
            Self::File => FILE,
        }
    }
}

/// Puts back what a run with this device left behind when it was killed. What systemd-resolved was
/// told is gone with the device.
pub fn restore(device: &DeviceName) {
    let device = device.as_str();
    match put_back(Path::new(FILE), device) {
        Ok(true) => tracing::info!("{FILE} is as it was before"),
        Ok(false) => {}
        Err(error) => tracing::warn!(%error, "cannot put back {FILE}"),
    }
    // Nobody may have told it anything.
    let _ = run("resolvconf", &["-d", device], "");
}

/// The daemon that has written the file of the host, if one has, by its device.
pub fn owner() -> Option<DeviceName> {
    owner_of(&fs::read_to_string(FILE).ok()?)
}

fn owner_of(text: &str) -> Option<DeviceName> {
    let (device, _) = text.strip_prefix(OURS)?.split_once(';')?;
    device.parse().ok()
}

/// The text of a file as it was before us.
pub fn before(text: &str) -> String {
    if !text.starts_with(OURS) {
        return text.to_owned();
    }
    let kept = text.lines().filter_map(|line| line.strip_prefix(BEFORE));
    kept.map(|line| format!("{line}\n")).collect()
}

fn lines(servers: &[IpAddr]) -> String {
    let lines = servers
        .iter()
        .map(|server| format!("nameserver {server}\n"));
    lines.collect()
}

/// Whether a file is a link to one in this directory, which need not be there yet.
fn leads_into(file: &Path, directory: &Path) -> bool {
    let there = fs::canonicalize(file).or_else(|_| end_of(file));
    let directory = fs::canonicalize(directory);
    matches!((&there, &directory), (Ok(there), Ok(directory)) if there.starts_with(directory))
}

/// Where a link leads to that leads to nothing.
fn end_of(link: &Path) -> io::Result<PathBuf> {
    let end = link.parent().unwrap_or(link).join(fs::read_link(link)?);
    let folder = fs::canonicalize(end.parent().unwrap_or(&end))?;
    Ok(folder.join(end.file_name().unwrap_or_default()))
}

/// Writes our servers into the file, and keeps what was there.
fn replace(file: &Path, device: &str, servers: &[IpAddr]) -> io::Result<()> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    write(file, &ours(device, servers, &text))
}

/// Writes the file as a [`Draft`], which is never empty meanwhile; or the end of a link that leads
/// to nothing.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let end = end_of(file).ok().filter(|_| !file.exists());
    Draft::begin(end.as_deref().unwrap_or(file))?.finish(text)
}

/// The text of our file in place of this one.
fn ours(device: &str, servers: &[IpAddr], text: &str) -> String {
    let kept = before(text);
    let kept = kept.lines().map(|line| format!("{BEFORE}{line}\n"));
    head(device) + &lines(servers) + &kept.collect::<String>()
}

fn head(device: &str) -> String {
    format!("{OURS}{device}; what was here before follows as comments.\n")
}

/// Panics if our file in place of one with this text is not known as ours, or the text does not
/// come back.
pub(crate) fn try_file(device: &DeviceName, servers: &[IpAddr], text: &str) {
    let written = ours(device.as_str(), servers, text);
    assert_eq!(owner_of(&written).as_ref(), Some(device));
    let back = before(&written);
    assert!(back.lines().eq(before(text).lines()));
    let again = ours(device.as_str(), servers, &written);
    assert_eq!(again, written, "there is one, however often it is written");
}

/// Puts back what was in the file, if it is ours; whether it was.
fn put_back(file: &Path, device: &str) -> io::Result<bool> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        read => read?,
    };
    let ours = format!("{OURS}{device};");
    if !text.starts_with(&ours) {
        return Ok(false);
    }
    write(file, &before(&text)).map(|()| true)
}

/// Runs a command with this input; false if there is no such command.
fn run(name: &str, words: &[&str], input: &str) -> io::Result<bool> {
    match program::run(name, words, input, PATIENCE) {
        Ok(said) if said.success => Ok(true),
        Ok(said) => Err(io::Error::other(format!("{name}: {}", said.complaint))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(io::Error::new(error.kind(), format!("{name}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use super::*;

    const PLAIN: &str = "# by DHCP\nsearch example.org\nnameserver 192.168.8.1\n";

    fn servers() -> Vec<IpAddr> {
        vec!["10.200.0.1".parse().unwrap(), "fd5e:1::1".parse().unwrap()]
    }

    #[test]
    fn a_link_into_the_directory_of_another_program_is_told_also_before_its_file_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let (link, theirs) = (dir.path().join("resolv.conf"), dir.path().join("run"));
        fs::create_dir(&theirs).unwrap();
        std::os::unix::fs::symlink("run/stub.conf", &link).unwrap();
        assert!(leads_into(&link, &theirs));
        fs::write(theirs.join("stub.conf"), PLAIN).unwrap();
        assert!(leads_into(&link, &theirs));
        fs::remove_file(&link).unwrap();
        fs::write(&link, PLAIN).unwrap();
        assert!(!leads_into(&link, &theirs));
    }

    #[test]
    fn what_was_in_the_file_comes_back_also_after_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("resolv.conf");
        fs::write(&file, PLAIN).unwrap();

        replace(&file, "sennit0", &servers()).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let names: Vec<&str> = text
            .lines()
            .filter(|it| it.starts_with("nameserver"))
            .collect();
        assert_eq!(names, ["nameserver 10.200.0.1", "nameserver fd5e:1::1"]);
        assert_eq!(before(&text), PLAIN, "the hub's name is looked up there");
        let owner = [owner_of(&text), owner_of(PLAIN)].map(|it| it.map(|it| it.to_string()));
        assert_eq!(owner, [Some("sennit0".to_owned()), None]);

        // It was killed and starts again: what it keeps is not its own.
        replace(&file, "sennit0", &servers()[..1]).unwrap();
        assert!(!put_back(&file, "sennit1").unwrap(), "another edge's");
        assert!(put_back(&file, "sennit0").unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), PLAIN);
        assert!(!put_back(&file, "sennit0").unwrap());
    }

    #[test]
    fn what_somebody_else_has_written_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("resolv.conf");
        replace(&file, "sennit0", &servers()).unwrap();
        fs::write(&file, PLAIN).unwrap();

        assert!(!put_back(&file, "sennit0").unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), PLAIN);
    }

    /// A host where commands with these words fail, systemd-resolved runs if `stub` is there, and
    /// what is run is written down.
    struct Fake {
        directory: tempfile::TempDir,
        ran: Rc<RefCell<Vec<String>>>,
        fails: Rc<RefCell<Option<&'static str>>>,
    }

    impl Fake {
        fn host(&self) -> Host {
            let (ran, fails) = (Rc::clone(&self.ran), Rc::clone(&self.fails));
            let run = move |program: &str, words: &[&str], _: &str| {
                let line = format!("{program} {}", words.join(" "));
                ran.borrow_mut().push(line.clone());
                match *fails.borrow() {
                    Some(what) if line.contains(what) => Err(io::Error::other("busy")),
                    Some(_) | None => Ok(program == "resolvectl"),
                }
            };
            Host {
                device: "sennit0".parse().unwrap(),
                servers: Vec::new(),
                way: None,
                complained: false,
                overwritten: 0,
                other: None,
                file: self.file(),
                resolved: self.directory.path().join("resolve"),
                run: Box::new(run),
            }
        }

        /// `/etc/resolv.conf` is a link to systemd-resolved's.
        fn with_resolved(fails: Option<&'static str>) -> Self {
            let fake = Self {
                directory: tempfile::tempdir().unwrap(),
                ran: Rc::default(),
                fails: Rc::new(RefCell::new(fails)),
            };
            let resolved = fake.directory.path().join("resolve");
            fs::create_dir(&resolved).unwrap();
            fs::write(resolved.join(STUB), PLAIN).unwrap();
            std::os::unix::fs::symlink(resolved.join(STUB), fake.file()).unwrap();
            fake
        }

        fn file(&self) -> PathBuf {
            self.directory.path().join("resolv.conf")
        }

        fn text(&self) -> String {
            fs::read_to_string(self.file()).unwrap()
        }
    }

    #[test]
    fn what_was_told_by_half_is_taken_back_and_tried_again() {
        let fake = Fake::with_resolved(Some("domain"));
        let mut host = fake.host();

        host.set(&servers());

        let last = fake.ran.borrow().last().cloned();
        assert_eq!(last.as_deref(), Some("resolvectl revert sennit0"));
        assert_eq!(fake.text(), PLAIN);
        assert_eq!(host.way, None);

        fake.fails.take();
        host.tell();
        assert_eq!(host.way, Some(Way::Resolved));
        fake.ran.borrow_mut().clear();
        host.tell();
        assert_eq!(*fake.ran.borrow(), [""; 0], "once is enough");
    }

    #[test]
    fn the_file_of_systemd_resolved_is_never_written() {
        let fake = Fake::with_resolved(None);
        let mut host = fake.host();
        // It runs, and there is no command to tell it.
        host.run = Box::new(|_, _, _| Ok(false));

        host.set(&servers());

        assert_eq!(fake.text(), PLAIN);
        assert_eq!(host.way, None);
    }

    #[test]
    fn what_another_program_writes_there_is_replaced_and_comes_back_at_the_end() {
        const LEASED: &str = "nameserver 192.168.9.1\n";
        let fake = Fake::with_resolved(None);
        // Nobody but the file tells who is asked.
        fs::remove_file(fake.file()).unwrap();
        fs::remove_file(fake.directory.path().join("resolve").join(STUB)).unwrap();
        fs::write(fake.file(), PLAIN).unwrap();
        let mut host = fake.host();
        host.set(&servers());
        host.tell();
        let (ours, note) = (fake.text(), host.note().unwrap());
        assert!(!note.contains("put back"), "{note}");

        // A lease is renewed.
        fs::write(fake.file(), LEASED).unwrap();
        host.tell();

        assert!(
            fake.text()
                .starts_with(&(head("sennit0") + &lines(&servers())))
        );
        assert_ne!(fake.text(), ours);
        let note = host.note().unwrap();
        assert!(
            note.ends_with("put back after another program had written it"),
            "{note}"
        );
        drop(host);
        assert_eq!(fake.text(), LEASED);
    }

    #[test]
    fn a_link_that_leads_to_nothing_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let [link, end] = ["resolv.conf", "run.conf"].map(|name| dir.path().join(name));
        std::os::unix::fs::symlink("run.conf", &link).unwrap();

        replace(&link, "sennit0", &servers()).unwrap();

        assert!(link.is_symlink());
        assert_eq!(
            owner_of(&fs::read_to_string(end).unwrap()),
            "sennit0".parse().ok()
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
