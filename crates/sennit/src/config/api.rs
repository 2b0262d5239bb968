//! `[api]`.

use std::net::SocketAddr;
use std::path::PathBuf;

use toml::Spanned;

use super::finding::Finding;
use super::section::Section;
use super::values::{self, Wrong};

/// Where the API listens besides the control socket, and who may ask there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiConfig {
    pub listen: Vec<SocketAddr>,
    pub tls: Option<TlsFiles>,
    /// File with the tokens of those who may look.
    pub read_token: Option<PathBuf>,
    /// File with the tokens of those who may also pause links and the like.
    pub operate_token: Option<PathBuf>,
    /// File with the tokens of those who may do everything.
    pub admin_token: Option<PathBuf>,
    /// Names under which browsers know this host.
    pub hosts: Vec<String>,
}

impl ApiConfig {
    /// What holds without a restart if `wanted` is to: all of it, unless it listens elsewhere. Then
    /// what keeps strangers out there need not be what keeps them out here.
    pub(crate) fn next(&self, wanted: &Self) -> Self {
        let stays = self.listen == wanted.listen;
        if stays { wanted } else { self }.clone()
    }
}

/// What TLS needs, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

pub(super) fn read(
    file: &mut Section<'_, '_>,
    text: &str,
    findings: &mut Vec<Finding>,
) -> ApiConfig {
    let section = file
        .value("api")
        .and_then(|value| Section::open("[api]", value, text, findings));
    let Some(mut api) = section else {
        return ApiConfig::default();
    };
    let listen = api.strings("listen", values::listen, findings);
    let certificate = api.string("tls_certificate", values::path, findings);
    let key = api.string("tls_key", values::path, findings);
    let mut token = |key| api.string(key, values::secret_file, findings);
    let tokens = ["read_token", "operate_token", "admin_token"].map(&mut token);
    let hosts = api.strings("hosts", host, findings);
    let tls = read_tls(certificate, key, findings);
    let config = ApiConfig {
        tls,
        hosts: inner(hosts),
        ..with_tokens(tokens)
    };
    let listen = listen.unwrap_or_default();
    check_listen(&listen, &config, findings);
    check_unheard(&api, findings);
    api.finish(findings);
    ApiConfig {
        listen: inner(Some(listen)),
        ..config
    }
}

fn with_tokens(tokens: [Option<Spanned<PathBuf>>; 3]) -> ApiConfig {
    let [read_token, operate_token, admin_token] = tokens.map(|it| it.map(Spanned::into_inner));
    ApiConfig {
        read_token,
        operate_token,
        admin_token,
        ..ApiConfig::default()
    }
}

fn read_tls(
    certificate: Option<Spanned<PathBuf>>,
    key: Option<Spanned<PathBuf>>,
    findings: &mut Vec<Finding>,
) -> Option<TlsFiles> {
    let (alone, missing) = match (certificate, key) {
        (Some(certificate), Some(key)) => {
            return Some(TlsFiles {
                certificate: certificate.into_inner(),
                key: key.into_inner(),
            });
        }
        (Some(certificate), None) => (certificate, ("tls_certificate", "tls_key")),
        (None, Some(key)) => (key, ("tls_key", "tls_certificate")),
        (None, None) => return None,
    };
    let (key, missing) = missing;
    findings.push(
        Finding::error(alone.span(), format!("`{key}` needs `{missing}`"))
            .help("both are PEM files: the certificate with its chain, and its private key"),
    );
    None
}

/// Whatever others on the network can reach needs TLS and a token.
fn check_listen(listen: &[Spanned<SocketAddr>], api: &ApiConfig, findings: &mut Vec<Finding>) {
    let any_token = [&api.read_token, &api.operate_token, &api.admin_token];
    let any_token = any_token.iter().any(|token| token.is_some());
    for (n, address) in listen.iter().enumerate() {
        let ip = address.get_ref();
        if listen[..n].iter().any(|other| other.get_ref() == ip) {
            findings.push(Finding::error(
                address.span(),
                format!("`listen` names {ip} twice"),
            ));
        }
        if ip.ip().to_canonical().is_loopback() {
            continue;
        }
        let missing = match (api.tls.is_some(), any_token) {
            (true, true) => continue,
            (false, true) => "tls_certificate and tls_key",
            (true, false) => "a token",
            (false, false) => "tls_certificate, tls_key and a token",
        };
        findings.push(
            Finding::error(address.span(), format!("others can reach {ip}"))
                .label(format!("this needs {missing}"))
                .help(
                    "listen on 127.0.0.1 or [::1], or give a certificate and \
                     read_token = \"file:/etc/sennit/read-token\"",
                ),
        );
    }
}

/// Who may ask over TCP says nothing where nobody can.
fn check_unheard(api: &Section<'_, '_>, findings: &mut Vec<Finding>) {
    let mut keys = [
        "tls_certificate",
        "read_token",
        "operate_token",
        "admin_token",
        "hosts",
    ]
    .into_iter();
    if let (false, Some(key)) = (api.has("listen"), keys.find(|key| api.has(key))) {
        let message = format!("`{key}` has no effect without `listen`");
        findings.push(Finding::warning(api.header(), message).help(
            "the control socket takes whoever may open it; listen = [\"127.0.0.1:8479\"] has the API \
             on TCP too",
        ));
    }
}

/// A host name without a port.
fn host(typed: &str) -> Result<String, Wrong> {
    if typed.contains([':', '/', ' ', '[']) {
        return Err(
            Wrong::new(format!("`{}` is no host name", typed.escape_debug()))
                .help("write the name alone, like router.lan; addresses need not be named"),
        );
    }
    values::server_name(typed).map_err(|_| {
        Wrong::new(format!("`{}` is no host name", typed.escape_debug()))
            .help("write the name alone, like router.lan")
    })
}

fn inner<T>(list: Option<Vec<Spanned<T>>>) -> Vec<T> {
    let list = list.unwrap_or_default();
    list.into_iter().map(Spanned::into_inner).collect()
}
