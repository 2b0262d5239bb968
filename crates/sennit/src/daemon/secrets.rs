//! Files with secrets that the config names, and those who go by them: the API, and who tells of
//! events.
//!
//! They are read when the daemon starts, as root, and again at each reload, although the config
//! says the same: a certificate is renewed and a token replaced in the file that there is. One that
//! cannot be read then refuses the reload. A daemon that had to start without one has done without
//! it, and goes on so.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
};

use crate::{
    api::{Keys, Locks, Terms},
    config::{ApiConfig, Notify, Print, renewed},
    exit::Failure,
    notify::Targets,
};

/// What was read when the daemon started.
pub(super) struct Read {
    pub(super) keys: Keys,
    /// Whom to tell of events, now and after a reload.
    pub(super) told: (Targets, Receiver<Targets>),
    pub(super) secrets: Arc<Secrets>,
}

/// Who goes by the files, and what was found in them last.
pub(super) struct Secrets {
    locks: Locks,
    teller: Sender<Targets>,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    /// Of the files that [`Targets`] were read from.
    told: Vec<Print>,
    /// Why there is no API since the start.
    no_api: Option<String>,
    /// Who is not told of events, and why.
    untold: BTreeMap<String, String>,
}

/// What a reload has read, for those who are to go by it.
pub(super) struct Fresh {
    /// Nothing if there is no API.
    terms: Option<Terms>,
    targets: Targets,
    untold: BTreeMap<String, String>,
}

impl Secrets {
    /// Reads the files when the daemon starts. The tunnel is worth more than those who look at it:
    /// without a file of theirs the daemon starts, and says what it lacks.
    pub(super) fn load(api: &ApiConfig, notify: &[Notify]) -> Result<Read, Failure> {
        let mut found = Found::default();
        let keys = Keys::load(api).or_else(|error| {
            found.no_api = Some(error.to_string());
            Keys::load(&ApiConfig::default())
        })?;
        let (targets, untold) = load_targets(notify);
        (found.told, found.untold) = (targets.prints(), untold);
        let (teller, changes) = mpsc::channel();
        let secrets = Self {
            locks: keys.locks(),
            teller,
            found: Mutex::new(found),
        };
        Ok(Read {
            keys,
            told: (targets, changes),
            secrets: Arc::new(secrets),
        })
    }

    /// Reads the files again, or says which of them cannot be used.
    pub(super) fn read(&self, api: &ApiConfig, notify: &[Notify]) -> Result<Fresh, String> {
        let found = self.lock();
        let terms = found.no_api.is_none().then(|| Terms::load(api));
        let terms = terms.transpose().map_err(|error| error.to_string())?;
        let (targets, untold) = load_targets(notify);
        let mut lost = untold.iter();
        if let Some((_, error)) = lost.find(|(name, _)| !found.untold.contains_key(*name)) {
            return Err(error.clone());
        }
        Ok(Fresh {
            terms,
            targets,
            untold,
        })
    }

    /// From now on all go by this. Gives the names of the files that hold something else than
    /// before.
    pub(super) fn take(&self, fresh: Fresh) -> Vec<String> {
        let Fresh {
            terms,
            targets,
            untold,
        } = fresh;
        let terms = terms.map(|terms| self.locks.change(terms));
        let mut found = self.lock();
        let prints = targets.prints();
        let told = renewed(&found.told, &prints);
        (found.told, found.untold) = (prints, untold);
        // Whoever tells has ended with the daemon.
        let _ = self.teller.send(targets);
        terms.into_iter().flatten().chain(told).collect()
    }

    /// What the daemon lacks, in sentences.
    pub(super) fn lacks(&self) -> Vec<String> {
        self.told_lacks().map(|(lack, _)| lack).collect()
    }

    /// What an operator should know while it lacks that.
    pub(super) fn notes(&self) -> Vec<String> {
        let told = self.told_lacks();
        told.map(|(lack, then)| format!("{lack}; put that right, then {then}"))
            .collect()
    }

    fn told_lacks(&self) -> impl Iterator<Item = (String, &'static str)> {
        let found = self.lock();
        let api = found.no_api.iter();
        let api = api.map(|error| {
            let lack = format!("the API does not listen: {error}");
            (lack, "restart the daemon")
        });
        let told = found.untold.iter();
        let told = told.map(|(name, error)| {
            let lack = format!("`{name}` is not told of events: {error}");
            (lack, "`sennit reload`")
        });
        let lacks: Vec<(String, &str)> = api.chain(told).collect();
        lacks.into_iter()
    }

    fn lock(&self) -> MutexGuard<'_, Found> {
        // A panic elsewhere leaves what was found as it was.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn load_targets(notify: &[Notify]) -> (Targets, BTreeMap<String, String>) {
    let (targets, left_out) = Targets::load(notify);
    let left_out = left_out.into_iter();
    let untold = left_out.map(|(name, error)| (name, error.to_string()));
    (targets, untold.collect())
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File, Permissions},
        io::Write as _,
        net::TcpListener,
        os::unix::fs::{FileExt as _, PermissionsExt as _},
        path::{Path, PathBuf},
        process::{Command, Stdio},
    };

    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use zeroize::Zeroizing;

    use super::*;
    use crate::config::NotifyKind;

    /// A file of a folder with this mode.
    fn file(folder: &tempfile::TempDir, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    fn ops(secret: PathBuf) -> Notify {
        Notify {
            name: "ops".into(),
            kind: NotifyKind::Ntfy,
            url: "https://ntfy.example.org/vans".into(),
            secret: Some(secret),
            events: Vec::new(),
        }
    }

    /// A van was cut off at its next power cycle, over the token of somebody who looks at it.
    #[test]
    fn a_daemon_starts_without_what_only_its_viewers_need_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let open = file(&folder, "open", "", 0o644);
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let lacks = |api: &ApiConfig, notify: &[Notify]| {
            let read = Secrets::load(api, notify).unwrap();
            read.secrets.lacks()
        };

        let mut api = ApiConfig {
            read_token: Some(folder.path().join("gone")),
            ..ApiConfig::default()
        };
        let said = lacks(&api, &[ops(open)]);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("the API does not listen: cannot read "));
        assert!(said[1].starts_with("`ops` is not told of events: "));

        api = ApiConfig {
            listen: vec![taken.local_addr().unwrap()],
            ..ApiConfig::default()
        };
        let said = lacks(&api, &[]);
        assert!(said[0].starts_with("the API does not listen: cannot listen on "));
        assert_eq!(lacks(&ApiConfig::default(), &[]), [""; 0]);
    }

    /// A leaked token stayed good until a restart, which drops every tunnel.
    #[test]
    fn files_that_were_rotated_are_named_and_one_that_cannot_be_read_refuses_them_all() {
        let folder = tempfile::tempdir().unwrap();
        let token = |text: &str| file(&folder, "token", &text.repeat(30), 0o600);
        let secret = |text: &str, mode| file(&folder, "secret", text, mode);
        let api = ApiConfig {
            admin_token: Some(token("a")),
            ..ApiConfig::default()
        };
        let notify = [ops(secret("one", 0o600))];
        let Read {
            secrets,
            told: (_, changes),
            ..
        } = Secrets::load(&api, &notify).unwrap();
        let reload = || secrets.read(&api, &notify).map(|it| secrets.take(it));
        assert_eq!(reload(), Ok(Vec::new()), "nothing has changed");

        token("b");
        let named = vec![folder.path().join("token").display().to_string()];
        assert_eq!(reload(), Ok(named));

        token("c");
        secret("two", 0o644);
        let refused = reload().unwrap_err();
        assert!(refused.contains("chmod 600"), "{refused}");
        assert_eq!(changes.try_iter().count(), 2, "nothing was changed then");

        secret("two", 0o600);
        assert_eq!(reload().unwrap().len(), 2, "both are taken now");
        assert_eq!(secrets.notes(), [""; 0]);
    }

    /// Letters turned by half the alphabet: as this test may know a secret.
    fn turned(byte: u8) -> u8 {
        match byte {
            b'a'..=b'm' | b'A'..=b'M' => byte + 13,
            b'n'..=b'z' | b'N'..=b'Z' => byte - 13,
            _ => byte,
        }
    }

    /// A file with a fresh secret, which another process has turned back; and it as it was.
    fn secret_file(folder: &Path, name: &str, begins: &str) -> (PathBuf, Vec<u8>) {
        let mut random = [0; 60];
        aws_lc_rs::rand::fill(&mut random).unwrap();
        let secret = STANDARD.encode(random).into_bytes();
        let path = folder.join(name);
        fs::write(&path, begins).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let mut tr = Command::new("tr");
        tr.args(["A-Za-z", "N-ZA-Mn-za-m"]).stdin(Stdio::piped());
        let mut tr = tr
            .stdout(File::options().append(true).open(&path).unwrap())
            .spawn()
            .unwrap();
        tr.stdin.take().unwrap().write_all(&secret).unwrap();
        assert!(tr.wait().unwrap().success());
        (path, secret)
    }

    /// Whether the midst of a secret is somewhere in this process; allocators write over the ends
    /// of what is given back.
    fn is_in_memory(secret: &[u8]) -> bool {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let memory = File::open("/proc/self/mem").unwrap();
        let written = maps.lines().filter(|line| line.contains(" rw-p "));
        let mut regions = written.filter_map(|line| {
            let (from, to) = line.split(' ').next()?.split_once('-')?;
            Some([from, to].map(|it| u64::from_str_radix(it, 16).unwrap()))
        });
        let is_it = |bytes: &[u8]| {
            let found = bytes.iter().map(|byte| turned(*byte));
            found.eq(secret[40..64].iter().copied())
        };
        regions.any(|[from, to]| {
            // What is found here must not be found again later.
            let mut bytes = Zeroizing::new(vec![0; (to - from) as usize]);
            let there = memory.read_exact_at(&mut bytes, from).is_ok();
            there && bytes.windows(24).any(is_it)
        })
    }

    #[test]
    fn nothing_of_tokens_and_secrets_stays_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let [token, secret, key] = [("token", ""), ("secret", ""), ("key", "whsec_")]
            .map(|(name, begins)| secret_file(folder.path(), name, begins));
        let api = ApiConfig {
            admin_token: Some(token.0),
            ..ApiConfig::default()
        };
        let mut webhook = ops(key.0);
        webhook.kind = NotifyKind::Webhook;

        let read = Secrets::load(&api, &[ops(secret.0), webhook]).unwrap();
        assert_eq!(read.secrets.notes(), [""; 0]);
        assert!(!is_in_memory(&token.1), "of a token its hash is kept");
        assert!(!is_in_memory(&key.1), "a key is kept as it is used");
        assert!(is_in_memory(&secret.1), "that is what is sent");

        drop(read);
        assert!(!is_in_memory(&secret.1));
    }

    #[test]
    fn who_could_not_be_told_since_the_start_refuses_no_reload_and_is_told_once_he_can() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder, "secret", "x", 0o644);
        let (api, notify) = (ApiConfig::default(), [ops(path.clone())]);
        let Read { secrets, .. } = Secrets::load(&api, &notify).unwrap();
        assert_eq!(secrets.notes().len(), 1);
        secrets.take(secrets.read(&api, &notify).unwrap());
        assert_eq!(secrets.notes().len(), 1);

        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        secrets.take(secrets.read(&api, &notify).unwrap());

        assert_eq!(secrets.notes(), [""; 0]);
    }
}
