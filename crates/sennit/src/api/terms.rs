//! What the config says of the API, and the files that it names: by which certificate it is known,
//! and which tokens may do what.
//!
//! Files change while a daemon runs, as a certificate that was renewed or a token that somebody
//! else has got. So a reload reads them again ([`Terms::load`]), and who has the [`Locks`] puts the
//! new terms in the place of the old ones. What is asked from then on goes by these, and what is
//! still being sent to somebody whose token is gone ends.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use aws_lc_rs::{constant_time::verify_slices_are_equal, digest};
use rustls::{
    ServerConfig,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::ApiError;
use crate::config::{ApiConfig, NamedFile, Print, TlsFiles, renewed};

/// Characters that a token has at least: 128 bits in base64.
const SHORTEST_TOKEN: usize = 22;

/// What somebody may do; each may also do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look.
    Read,
    /// Do what ends by itself or can be undone: pause a link, try a failover.
    Operate,
    /// Everything.
    Admin,
}

/// What somebody has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Credential {
    /// Nothing.
    #[default]
    None,
    /// They are on this host.
    ThisHost,
    /// They may open the control socket.
    Socket,
    /// A token, of which this is SHA-256.
    Token([u8; 32]),
}

impl Credential {
    pub(super) fn of_token(token: &str) -> Self {
        Self::Token(hash(token))
    }
}

/// What holds until the next reload.
pub struct Terms {
    pub(super) tls: Option<TlsAcceptor>,
    /// SHA-256 of each token.
    tokens: Vec<(Role, [u8; 32])>,
    pub(super) hosts: Vec<String>,
    /// Of the files that this was read from.
    prints: Vec<Print>,
}

impl Terms {
    /// Reads the files.
    ///
    /// # Errors
    /// If one is missing, open to others, or holds something else.
    pub fn load(config: &ApiConfig) -> Result<Self, ApiError> {
        let mut terms = Self {
            tls: None,
            tokens: Vec::new(),
            hosts: config.hosts.clone(),
            prints: Vec::new(),
        };
        if let Some(files) = &config.tls {
            terms.tls = Some(read_tls(files, &mut terms.prints)?);
        }
        for (role, path) in token_files(config) {
            let found = read_tokens(path, &mut terms.prints)?;
            terms.tokens.extend(found.map(|token| (role, token)));
        }
        Ok(terms)
    }

    /// What whoever has shown this may do.
    pub(super) fn role_of(&self, shown: &Credential) -> Option<Role> {
        match shown {
            Credential::None => None,
            Credential::ThisHost => self.tokens.is_empty().then_some(Role::Read),
            Credential::Socket => Some(Role::Admin),
            Credential::Token(shown) => {
                let same =
                    |(_, known): &&(Role, [u8; 32])| verify_slices_are_equal(known, shown).is_ok();
                let roles = self.tokens.iter().filter(same).map(|(role, _)| *role);
                roles.max()
            }
        }
    }
}

/// The terms of an API, which may be others after a reload.
#[derive(Clone)]
pub struct Locks(Arc<watch::Sender<Arc<Terms>>>);

impl Locks {
    pub(super) fn new(terms: Terms) -> Self {
        Self(Arc::new(watch::Sender::new(Arc::new(terms))))
    }

    /// From now on these hold. Gives the names of the files that say something else than before.
    pub fn change(&self, terms: Terms) -> Vec<String> {
        let before = self.terms();
        let names = renewed(&before.prints, &terms.prints);
        self.0.send_replace(Arc::new(terms));
        names
    }

    pub(super) fn terms(&self) -> Arc<Terms> {
        Arc::clone(&self.0.borrow())
    }

    /// For whoever has to know when they change.
    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<Terms>> {
        self.0.subscribe()
    }
}

/// What is wrong with the files, as [`Terms::load`] would say it.
pub(super) fn look_at_files(config: &ApiConfig) -> Vec<ApiError> {
    let mut prints = Vec::new();
    let tls = config.tls.as_ref();
    let tls = tls.and_then(|files| read_tls(files, &mut prints).err());
    let tokens = token_files(config);
    let tokens = tokens.filter_map(|(_, path)| read_tokens(path, &mut prints).err());
    tls.into_iter().chain(tokens).collect()
}

fn token_files(config: &ApiConfig) -> impl Iterator<Item = (Role, &Path)> {
    let files = [
        (Role::Read, &config.read_token),
        (Role::Operate, &config.operate_token),
        (Role::Admin, &config.admin_token),
    ];
    let files = files.into_iter();
    files.filter_map(|(role, file)| Some((role, file.as_deref()?)))
}

fn read(path: &Path) -> Result<NamedFile, ApiError> {
    NamedFile::read(path).map_err(|source| ApiError::File {
        path: path.into(),
        source,
    })
}

/// SHA-256 of the tokens of a file, one a line; what begins with `#` is not one.
fn read_tokens(
    path: &Path,
    prints: &mut Vec<Print>,
) -> Result<impl Iterator<Item = [u8; 32]> + use<>, ApiError> {
    let file = read(path)?;
    let bad = |what: &str| bad_file(path, what.into());
    if file.is_open() {
        return Err(bad("holds tokens, and others may read it: chmod 600"));
    }
    let text = file.text().map_err(|source| ApiError::File {
        path: path.into(),
        source,
    })?;
    let lines = text.lines().map(str::trim);
    let tokens = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let tokens: Vec<&str> = tokens.collect();
    if tokens.is_empty() {
        return Err(bad("holds no token"));
    }
    let short = |token: &&str| token.len() < SHORTEST_TOKEN || token.contains(' ');
    if tokens.iter().any(short) {
        return Err(bad(
            "holds a token that can be guessed: make one by `openssl rand -base64 32`",
        ));
    }
    prints.push(file.print());
    let hashes: Vec<[u8; 32]> = tokens.into_iter().map(hash).collect();
    Ok(hashes.into_iter())
}

/// The certificate and key of the config.
fn read_tls(files: &TlsFiles, prints: &mut Vec<Print>) -> Result<TlsAcceptor, ApiError> {
    let [certificate, key] = [&files.certificate, &files.key].map(|path| read(path));
    let [certificate, key_file] = [certificate?, key?];
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate.bytes()).collect();
    let chain = chain.map_err(|error| pem_error(&files.certificate, "certificate", &error))?;
    let key = PrivateKeyDer::from_pem_slice(key_file.bytes())
        .map_err(|error| pem_error(&files.key, "private key", &error))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
    let mut tls =
        tls.map_err(|error| bad_file(&files.certificate, format!("cannot be used: {error}")))?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    prints.extend([certificate.print(), key_file.print()]);
    Ok(TlsAcceptor::from(Arc::new(tls)))
}

fn pem_error(path: &Path, kind: &str, error: &pem::Error) -> ApiError {
    bad_file(path, format!("holds no {kind} in PEM: {error}"))
}

fn bad_file(path: &Path, what: String) -> ApiError {
    ApiError::BadFile {
        path: PathBuf::from(path),
        what,
    }
}

fn hash(token: &str) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, token.as_bytes());
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
impl Terms {
    pub(super) fn of(tokens: &[(Role, &str)], hosts: &[&str]) -> Self {
        Self {
            tls: None,
            tokens: tokens.iter().map(|(role, it)| (*role, hash(it))).collect(),
            hosts: hosts.iter().map(ToString::to_string).collect(),
            prints: Vec::new(),
        }
    }
}
