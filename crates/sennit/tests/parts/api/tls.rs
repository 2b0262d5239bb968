//! TLS on the TCP port.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sennit::config::{ApiConfig, TlsFiles};

use super::world::{Answer, READER, World, secret, talk};

/// What a client is answered that knows this certificate, if it takes the one that it is shown.
fn ask(world: &World, certificate: &str, request: &str) -> std::io::Result<Answer> {
    let mut roots = RootCertStore::empty();
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    roots.add(der).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("router.lan").unwrap();
    let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = world.connect();
    tls.complete_io(&mut stream)?;
    Ok(talk(StreamOwned::new(tls, stream), request))
}

#[test]
fn with_a_certificate_the_port_speaks_tls_and_nothing_else() {
    let made = rcgen::generate_simple_self_signed(vec!["router.lan".into()]).unwrap();
    let certificate = made.cert.pem();
    let world = World::with(|dir| ApiConfig {
        tls: Some(TlsFiles {
            certificate: secret(dir, "cert.pem", &certificate),
            key: secret(dir, "key.pem", &made.signing_key.serialize_pem()),
        }),
        read_token: Some(secret(dir, "read", READER)),
        hosts: vec!["router.lan".into()],
        ..ApiConfig::default()
    });
    let request = format!(
        "GET /v1/status HTTP/1.1\r\nhost: router.lan\r\nauthorization: Bearer {READER}\r\n\
         connection: close\r\n\r\n"
    );

    let answer = ask(&world, &certificate, &request).unwrap();

    assert_eq!(answer.code, 200, "{answer:?}");
    let mut plain = world.connect();
    plain.write_all(request.as_bytes()).unwrap();
    let mut said = Vec::new();
    // It may be reset.
    let _ = plain.read_to_end(&mut said);
    assert!(!said.starts_with(b"HTTP"), "without TLS there is no answer");
}

#[test]
fn a_certificate_that_was_renewed_is_shown_after_a_reload() {
    let [first, second] =
        [(); 2].map(|()| rcgen::generate_simple_self_signed(vec!["router.lan".into()]).unwrap());
    let write = |dir: &tempfile::TempDir, made: &rcgen::CertifiedKey<rcgen::KeyPair>| TlsFiles {
        certificate: secret(dir, "cert.pem", &made.cert.pem()),
        key: secret(dir, "key.pem", &made.signing_key.serialize_pem()),
    };
    let world = World::with(|dir| ApiConfig {
        tls: Some(write(dir, &first)),
        hosts: vec!["router.lan".into()],
        ..ApiConfig::default()
    });
    let request = "GET /healthz HTTP/1.1\r\nhost: router.lan\r\nconnection: close\r\n\r\n";
    let shown = |made: &rcgen::CertifiedKey<rcgen::KeyPair>| {
        ask(&world, &made.cert.pem(), request).is_ok_and(|answer| answer.code == 200)
    };
    assert!(shown(&first) && !shown(&second));

    write(&world.dir, &second);
    assert_eq!(world.reload().len(), 2);

    assert!(shown(&second) && !shown(&first));
}
