//! What a config needs of the host that it is to run on: interfaces, an identity, and the files
//! that hold secrets.
//!
//! Without the files a daemon has no API, or does not tell somebody of events. They are read by
//! what reads them at the start.

use std::{error::Error, io, path::Path};

use crate::{
    api::{self, ApiError},
    config::{self, ApiConfig, EdgeConfig, HostFinding, HubConfig, Notify, Severity},
    identity::{EdgeIdentity, HubIdentity},
    notify::{self, NotifyError},
};

/// Compares an edge's config with this host; nothing where it may not look.
pub(crate) fn look_at_edge(edge: &EdgeConfig) -> Vec<HostFinding> {
    let mut findings = config::look_at_interfaces(edge);
    // Trust in a proxy needs no identity.
    if edge.proxy.is_none() && is_missing(&edge.state) {
        findings.extend(no_identity(EdgeIdentity::load(&edge.state), "sennit join"));
    }
    findings.extend(look_at_files(&edge.api, &edge.notify));
    findings
}

/// Compares a hub's config with this host; nothing where it may not look.
pub(crate) fn look_at_hub(hub: &HubConfig) -> Vec<HostFinding> {
    let mut findings = Vec::new();
    if is_missing(&hub.state) {
        let loaded = HubIdentity::load(&hub.state);
        findings.extend(no_identity(loaded, "sennit hub init"));
    }
    findings.extend(look_at_files(&hub.api, &hub.notify));
    findings
}

fn is_missing(directory: &Path) -> bool {
    matches!(directory.try_exists(), Ok(false))
}

fn no_identity<T>(loaded: Result<T, impl Error>, maker: &str) -> Option<HostFinding> {
    Some(HostFinding {
        severity: Severity::Warning,
        message: loaded.err()?.to_string(),
        help: Some(format!("`{maker}` makes one, in the directory `state`")),
        named: None,
    })
}

/// Files with secrets that are missing, open to others, or no such files.
pub(crate) fn look_at_files(api: &ApiConfig, notify: &[Notify]) -> Vec<HostFinding> {
    let asked = api::look_at_files(api)
        .into_iter()
        .filter(|error| !matches!(error, ApiError::File { source, .. } if is_kept_from_us(source)));
    let told = notify::look_at_files(notify).into_iter().filter(
        |error| !matches!(error, NotifyError::File { source, .. } if is_kept_from_us(source)),
    );
    let finding = |message: String, help: &str| HostFinding {
        severity: Severity::Error,
        message,
        help: Some(help.into()),
        named: None,
    };
    let asked = asked.map(|error| finding(error.to_string(), "a daemon that starts so has no API"));
    let silent = "a daemon that starts so does not tell this target of events";
    let told = told.map(|error| finding(error.to_string(), silent));
    asked.chain(told).collect()
}

/// Whoever checks a config need not be who may read its secrets.
fn is_kept_from_us(source: &io::Error) -> bool {
    source.kind() == io::ErrorKind::PermissionDenied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_which_a_daemon_lacks_something_are_named_with_the_words_of_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(at("open"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(at("open"), mode).unwrap();
        let [state, token, pem, open] = ["state", "token", "pem", "open"].map(at);
        let text = format!(
            "[hub]\nlisten = ['127.0.0.1:443']\npool = ['10.200.0.0/16']\nstate = '{state}'\n\
             [api]\nread_token = 'file:{token}'\ntls_certificate = '{pem}'\ntls_key = '{pem}'\n\
             [[notify]]\nname = 'us'\nurl = 'http://127.0.0.1/'\nsecret = 'file:{open}'\n"
        );
        let hub = HubConfig::parse("hub.toml", text.as_bytes()).unwrap();

        let findings = look_at_hub(&hub.config);

        let expected = [
            format!("{state} holds no hub's identity"),
            format!("cannot read {pem}: "),
            format!("cannot read {token}: "),
            format!("{open} holds a secret, and others may read it: chmod 600"),
        ];
        assert_eq!(findings.len(), expected.len(), "{findings:?}");
        for (finding, expected) in findings.iter().zip(expected) {
            assert!(finding.message.starts_with(&expected), "{finding}");
        }
        let errors: Vec<bool> = findings.iter().map(HostFinding::is_error).collect();
        assert_eq!(
            errors,
            [false, true, true, true],
            "an identity may come later"
        );
    }
}
