//! Sending: HTTP/1.1, over TLS for `https`.

use std::{io, pin::pin, sync::Arc, time::Duration};

use axum::http::{HeaderValue, Request, StatusCode, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    runtime::Runtime,
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// For one attempt, all of it.
const WITHIN: Duration = Duration::from_secs(15);

/// Why the other side has not got a request.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unsent {
    /// It is away.
    #[error("{0}")]
    Away(String),
    /// It is there, and takes nothing for now, or not this one.
    #[error("the answer is {0}")]
    NotTaken(StatusCode),
    /// It will never take this one.
    #[error("the answer is {0}")]
    Refused(StatusCode),
}

impl Unsent {
    fn of(status: StatusCode) -> Self {
        // An address, a token or a proxy may be set right, and then the same is taken.
        const OF_THIS_ONE: [StatusCode; 3] = [
            StatusCode::BAD_REQUEST,
            StatusCode::PAYLOAD_TOO_LARGE,
            StatusCode::UNPROCESSABLE_ENTITY,
        ];
        if OF_THIS_ONE.contains(&status) {
            Self::Refused(status)
        } else {
            Self::NotTaken(status)
        }
    }
}

pub(super) struct Sender {
    runtime: Runtime,
    tls: TlsConnector,
}

impl Sender {
    /// It trusts the roots of this host.
    pub(super) fn new() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let mut roots = RootCertStore::empty();
        let (_, _) =
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            runtime,
            tls: TlsConnector::from(Arc::new(config)),
        })
    }

    /// Sends a request, and says why the other side has not taken it.
    pub(super) fn send(&self, request: Request<String>) -> Result<(), Unsent> {
        let sent = async { timeout(WITHIN, self.exchange(request)).await };
        match self.runtime.block_on(sent) {
            Ok(Ok(status)) if status.is_success() => Ok(()),
            Ok(Ok(status)) => Err(Unsent::of(status)),
            Ok(Err(error)) => Err(Unsent::Away(error.to_string())),
            Err(_) => Err(Unsent::Away("there is no answer in time".into())),
        }
    }

    async fn exchange(&self, mut request: Request<String>) -> io::Result<StatusCode> {
        let uri = request.uri().clone();
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let authority = uri.authority().map_or(host, |it| it.as_str());
        let value = HeaderValue::from_str(authority).map_err(io::Error::other)?;
        request.headers_mut().insert(header::HOST, value);
        let target = uri.path_and_query().map_or("/", |it| it.as_str());
        *request.uri_mut() = target.parse().map_err(io::Error::other)?;
        let stream = TcpStream::connect((host, port)).await?;
        if !secure {
            return talk(stream, request).await;
        }
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        talk(self.tls.connect(name, stream).await?, request).await
    }
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<String>,
) -> io::Result<StatusCode> {
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(io::Error::other)?;
    let mut exchange = pin!(sender.send_request(request));
    let response = tokio::select! {
        biased;
        response = &mut exchange => response,
        // With the last of an answer the other side may close, so there may be one.
        _ = connection => exchange.await,
    };
    Ok(response.map_err(io::Error::other)?.status())
}
