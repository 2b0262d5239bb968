//! Kernel switches that a daemon needs, with the values they had before.
//!
//! Each changed switch is written down before it is changed, in a file per daemon, so that it is
//! put back at the end, or after a crash or a restart at the end of the next run. Several daemons
//! of one host may need the same switch: the last of them that runs puts it back, to what it was
//! before the first, also of one that is about to start again. What an administrator changed in the
//! meantime stays.
//!
//! The file names the boot and the network namespace it is about; in any other it means nothing.

use std::{
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    io::{self, Read as _},
    os::unix::fs::{MetadataExt, OpenOptionsExt as _, PermissionsExt as _},
    path::{Component, Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{DeviceName, Draft, Error, error::Doing, instance::is_running};

/// Where all switches are that a daemon sets.
const SET: [&str; 2] = ["net/ipv4/", "net/ipv6/"];
const SUFFIX: &str = ".sysctl";
const LOCK: &str = "sysctl.lock";
/// A record has a line of some fifty bytes for each interface.
const LONGEST: u64 = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(5);

/// A switch below `/proc/sys`, the value it had, and the one that we gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    key: String,
    before: String,
    ours: String,
}

/// The switches that one daemon has changed.
#[derive(Debug)]
pub(crate) struct Sysctls {
    directory: PathBuf,
    device: DeviceName,
    /// Boot and network namespace, as the first line of each file.
    scope: String,
    namespace: u64,
    claims: Vec<Claim>,
}

impl Sysctls {
    /// Takes over what an earlier run with this device has left in `directory`.
    pub(crate) fn open(directory: &Path, device: &DeviceName) -> Result<Self, Error> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .doing(|| "read the boot id".into())?;
        let namespace = namespace()?;
        let mut sysctls = Self {
            directory: directory.to_owned(),
            device: device.clone(),
            scope: format!("boot {} namespace {namespace}", boot.trim()),
            namespace,
            claims: Vec::new(),
        };
        sysctls.claims = sysctls.read_claims(device);
        Ok(sysctls)
    }

    /// Sets the switch `key` (a path below `/proc/sys`) to `value` until [`Sysctls::restore`].
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<(), Error> {
        if self.claims.iter().any(|claim| claim.key == key) {
            return write(key, value);
        }
        let _lock = self.lock()?;
        let current = read(key)?;
        let shared = self.claim_of_another(key, |_| true);
        if current == value && shared.is_none() {
            return Ok(());
        }
        self.claims.push(Claim {
            key: key.to_owned(),
            before: shared.map_or(current, |claim| claim.before),
            ours: value.to_owned(),
        });
        if let Err(error) = self.save() {
            // Nothing is changed that is not written down, also when it is asked for again.
            self.claims.pop();
            return Err(error);
        }
        write(key, value)
    }

    /// Puts back what nobody else needs, last change first.
    pub(crate) fn restore(&mut self) -> Result<(), Error> {
        if self.claims.is_empty() {
            return Ok(());
        }
        let _lock = self.lock()?;
        let mut outcome = Ok(());
        for claim in std::mem::take(&mut self.claims).into_iter().rev() {
            outcome = outcome.and(self.put_back(&claim));
        }
        outcome.and(self.save())
    }

    fn put_back(&self, claim: &Claim) -> Result<(), Error> {
        if self.claim_of_another(&claim.key, is_running).is_some() {
            return Ok(());
        }
        match read(&claim.key) {
            Ok(current) if current == claim.ours => write(&claim.key, &claim.before),
            // Somebody else's decision by now, or an interface that has gone.
            _ => Ok(()),
        }
    }

    /// What another daemon of this network namespace says about a switch, of those that `count`.
    fn claim_of_another(&self, key: &str, count: impl Fn(&DeviceName) -> bool) -> Option<Claim> {
        devices_in(&self.directory, self.namespace)
            .into_iter()
            .filter(|device| *device != self.device && count(device))
            .flat_map(|device| self.read_claims(&device))
            .find(|claim| claim.key == key)
    }

    /// The claims in the file of `device`; none if it is missing, damaged, or about another boot.
    fn read_claims(&self, device: &DeviceName) -> Vec<Claim> {
        let text = read_record(&self.file(device)).unwrap_or_default();
        claims_of(&text, &self.scope)
    }

    /// Replaces our file in one step; without claims there is none.
    fn save(&self) -> Result<(), Error> {
        let file = self.file(&self.device);
        if self.claims.is_empty() {
            return match fs::remove_file(&file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                outcome => outcome.doing(|| format!("delete {}", file.display())),
            };
        }
        let mut text = format!("{}\n", self.scope);
        for claim in &self.claims {
            text.push_str(&claim.line());
        }
        // A link leads where somebody else wants.
        if file.is_symlink() {
            let _ = fs::remove_file(&file);
        }
        Draft::begin(&file)
            .and_then(|draft| draft.finish(&text))
            .doing(|| format!("write {}", file.display()))
    }

    /// Keeps other daemons from reading and changing meanwhile.
    fn lock(&self) -> Result<Lock, Error> {
        fs::create_dir_all(&self.directory)
            .and_then(|()| Lock::take(&self.directory))
            .doing(|| format!("lock the switches in {}", self.directory.display()))
    }

    fn file(&self, device: &DeviceName) -> PathBuf {
        self.directory
            .join(format!("{}-{device}{SUFFIX}", self.namespace))
    }
}

/// The claims of a record, if it is about this boot and network namespace.
fn claims_of(text: &str, scope: &str) -> Vec<Claim> {
    match text.split_once('\n') {
        Some((first, claims)) if first == scope => {
            claims.lines().filter_map(Claim::parse).collect()
        }
        _ => Vec::new(),
    }
}

/// Panics if a record with these lines claims what is none of a daemon's, or is not kept as it was
/// read.
pub(crate) fn try_record(lines: &str) {
    const SCOPE: &str = "boot 0 namespace 0";
    let claims = claims_of(&format!("{SCOPE}\n{lines}"), SCOPE);
    let mut kept = format!("{SCOPE}\n");
    for claim in &claims {
        let path = path(&claim.key);
        let is_inside = SET.iter().any(|place| path.starts_with(self::path(place)));
        let leaves = path.components().any(|it| it == Component::ParentDir);
        assert!(is_inside && !leaves, "{path:?}");
        kept += &claim.line();
    }
    assert_eq!(claims_of(&kept, SCOPE), claims);
    assert_eq!(claims_of(&kept, "boot 1 namespace 0"), []);
}

/// Panics if the switch that is loosened for an interface of this name is another's.
pub(crate) fn try_switch(interface: &str) {
    let claim = Claim {
        key: reverse_path(interface),
        before: "1".into(),
        ours: "2".into(),
    };
    let path = path(&claim.key);
    let folder = path.parent().and_then(Path::parent);
    assert_eq!(folder, Some(Path::new("/proc/sys/net/ipv4/conf")));
    assert_eq!(
        Claim::parse(claim.line().trim_end_matches('\n')),
        Some(claim)
    );
}

/// The switch by which an interface receives what would be answered by another one.
pub(crate) fn reverse_path(interface: &str) -> String {
    format!("net/ipv4/conf/{interface}/rp_filter")
}

/// The devices of daemons of this network namespace that have changed switches, or had.
pub(crate) fn devices(directory: &Path) -> Result<Vec<DeviceName>, Error> {
    Ok(devices_in(directory, namespace()?))
}

fn devices_in(directory: &Path, namespace: u64) -> Vec<DeviceName> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let prefix = format!("{namespace}-");
    let devices = names.filter_map(|name| {
        let device = name.strip_prefix(&prefix)?.strip_suffix(SUFFIX)?;
        device.parse().ok()
    });
    devices.collect()
}

fn namespace() -> Result<u64, Error> {
    let namespace = fs::metadata("/proc/thread-self/ns/net");
    Ok(namespace
        .doing(|| "find the network namespace".into())?
        .ino())
}

/// Held while files of this directory are read and changed. Its own file goes with the last claim.
struct Lock {
    /// Its lock ends when it is closed.
    _file: File,
    directory: PathBuf,
}

impl Lock {
    fn take(directory: &Path) -> io::Result<Self> {
        let path = directory.join(LOCK);
        loop {
            let file = open_lock(&path)?;
            lock_soon(&file)?;
            // Whoever had it before may have deleted the file that was waited for.
            let ours = file.metadata()?.ino();
            if fs::metadata(&path).is_ok_and(|there| there.ino() == ours) {
                let directory = directory.to_owned();
                return Ok(Self {
                    _file: file,
                    directory,
                });
            }
        }
    }

    fn is_needed(&self) -> bool {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return true;
        };
        let mut names = entries.flatten().map(|entry| entry.file_name());
        names.any(|name| name.to_string_lossy().ends_with(SUFFIX))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if !self.is_needed() {
            // What stays is used again.
            let _ = fs::remove_file(self.directory.join(LOCK));
        }
    }
}

/// A lock file that nobody else can open, as whoever can read a file can lock it for ever.
fn open_lock(path: &Path) -> io::Result<File> {
    const OURS: u32 = 0o600;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(OURS);
    let file = options.custom_flags(libc::O_NOFOLLOW).open(path)?;
    // An older version made it readable for all.
    file.set_permissions(Permissions::from_mode(OURS))?;
    Ok(file)
}

/// Nobody holds it for longer than it takes to read and write a few small files.
fn lock_soon(file: &File) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(LOOK),
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other(
                    "another process holds it and does not let go",
                ));
            }
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => return Ok(()),
        }
    }
}

/// The text of a record. What somebody else has put in its place, as a pipe that never ends or a
/// link to another file, has none.
fn read_record(path: &Path) -> io::Result<String> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok(text)
}

impl Claim {
    fn line(&self) -> String {
        format!("{} {} {}\n", self.key, self.before, self.ours)
    }

    fn parse(line: &str) -> Option<Self> {
        if line.contains(char::is_control) {
            return None;
        }
        let mut words = line.split(' ').map(str::to_owned);
        let (key, before, ours) = (words.next()?, words.next()?, words.next()?);
        // Who can write this file is not to set others by it.
        let ours_to_set = SET.iter().any(|place| key.starts_with(place));
        let inside = ours_to_set && !key.split('/').any(|part| part == "..");
        inside.then_some(Self { key, before, ours })
    }
}

/// The value of a switch, such as `net/ipv4/ip_forward`.
pub(crate) fn read(key: &str) -> Result<String, Error> {
    let value = fs::read_to_string(path(key)).doing(|| format!("read sysctl {key}"))?;
    Ok(value.trim().to_owned())
}

fn write(key: &str, value: &str) -> Result<(), Error> {
    fs::write(path(key), value).doing(|| format!("set sysctl {key} to {value}"))
}

fn path(key: &str) -> PathBuf {
    Path::new("/proc/sys").join(key)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_claim_survives_its_file() {
        let claim = Claim {
            key: "net/ipv4/conf/eth0.7/rp_filter".into(),
            before: "1".into(),
            ours: "2".into(),
        };

        assert_eq!(Claim::parse(claim.line().trim_end()), Some(claim));
    }

    #[test]
    fn nobody_else_can_lock_what_keeps_daemons_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LOCK);
        let mode = |file: &File| file.metadata().unwrap().mode() & 0o777;

        assert_eq!(mode(&open_lock(&path).unwrap()), 0o600);

        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(mode(&open_lock(&path).unwrap()), 0o600);
    }

    #[test]
    fn what_is_put_in_the_way_as_a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let theirs = folder.path().join("theirs");
        fs::write(&theirs, "theirs").unwrap();
        std::os::unix::fs::symlink(&theirs, folder.path().join(LOCK)).unwrap();
        assert!(open_lock(&folder.path().join(LOCK)).is_err());

        let directory = folder.path().join("records");
        fs::create_dir(&directory).unwrap();
        let mut switches = Sysctls::open(&directory, &"sennit0".parse().unwrap()).unwrap();
        let record = switches.file(&switches.device);
        std::os::unix::fs::symlink(&theirs, &record).unwrap();
        switches.claims.push(Claim {
            key: "net/ipv4/ip_forward".into(),
            before: "0".into(),
            ours: "1".into(),
        });
        switches.save().unwrap();

        assert!(record.is_file() && !record.is_symlink());
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs");
    }

    #[test]
    fn a_switch_that_cannot_be_written_down_is_not_changed_however_often_it_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let namespace = match crate::netns::Netns::anonymous() {
            Ok(namespace) => namespace,
            Err(error) => return eprintln!("SKIPPED: a switch that cannot be written: {error}"),
        };
        let tried = namespace.run(|| {
            const KEY: &str = "net/ipv4/ip_forward";
            let before = read(KEY).unwrap();
            let other = if before == "1" { "0" } else { "1" };
            let mut switches = Sysctls::open(folder.path(), &"sennit0".parse().unwrap()).unwrap();
            // A directory is in the way of the record.
            fs::create_dir(switches.file(&switches.device)).unwrap();
            for _ in 0..2 {
                switches.set(KEY, other).unwrap_err();
                assert_eq!(read(KEY).unwrap(), before);
            }
            fs::remove_dir(switches.file(&switches.device)).unwrap();
            switches.set(KEY, other).unwrap();
            assert_eq!(read(KEY).unwrap(), other);
            switches.restore().unwrap();
            assert_eq!(read(KEY).unwrap(), before);
        });
        tried.unwrap();
    }

    #[test]
    fn the_lock_leaves_no_file_behind_and_keeps_daemons_apart_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let (there, counter) = (folder.path().join(LOCK), folder.path().join("counter"));
        fs::write(&counter, "0").unwrap();
        let count = || {
            for _ in 0..200 {
                let lock = Lock::take(folder.path()).unwrap();
                let so_far: u32 = fs::read_to_string(&counter).unwrap().parse().unwrap();
                std::thread::yield_now();
                fs::write(&counter, (so_far + 1).to_string()).unwrap();
                drop(lock);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(count);
            }
        });

        assert_eq!(fs::read_to_string(&counter).unwrap(), "800");
        assert!(!there.exists());
        fs::write(folder.path().join(format!("1-other{SUFFIX}")), "").unwrap();
        drop(Lock::take(folder.path()).unwrap());
        assert!(there.exists(), "another daemon has claims");
    }

    #[test]
    fn what_is_no_small_file_of_its_own_is_no_record_and_nobody_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let [pipe, link, long] = ["pipe", "link", "long"].map(|it| folder.path().join(it));
        let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        std::os::unix::fs::symlink("/proc/version", &link).unwrap();
        fs::write(&long, "x".repeat(LONGEST as usize + 1)).unwrap();

        assert!(read_record(&pipe).is_err());
        assert!(read_record(&link).is_err());
        assert_eq!(read_record(&long).unwrap().len() as u64, LONGEST);
    }

    #[test]
    fn a_damaged_file_claims_nothing_and_nothing_outside_the_tree() {
        for line in [
            "",
            "net/ipv4/ip_forward",
            "a b",
            "net/ipv4/ip_forward 0 1\r",
            "../../etc/passwd 0 1",
            "/etc/passwd 0 1",
            "kernel/modprobe /tmp/mine /sbin/modprobe",
            "net/ipv4/../../kernel/modprobe /tmp/mine /sbin/modprobe",
        ] {
            assert_eq!(Claim::parse(line), None, "{line}");
        }
    }
}
