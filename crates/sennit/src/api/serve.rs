//! Connections: accepting, TLS, timeouts.

use std::{
    convert::Infallible,
    future::Future,
    net::TcpListener as StdListener,
    os::unix::net::UnixStream,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    http::{Method, Request, header},
    response::IntoResponse as _,
};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::mpsc::UnboundedReceiver,
    time::{sleep, timeout},
};
use tower::ServiceExt as _;

use super::{
    Shared,
    access::{Peer, Wish},
    call, page, portions,
    problem::Problem,
    reader::Reader,
    router,
    seats::{Busy, Seat},
};

/// For the head of a request, and for the handshake of TLS. Whoever is slower is not there, or
/// keeps others out.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// A head is a few hundred bytes; a browser's with many cookies has a few thousand.
const HEAD_BYTES: usize = 16 << 10;
/// What the kernel takes for a client that does not read. By itself it would take megabytes, and
/// such a client would pass for one that reads for minutes. Linux doubles it, and says that there
/// is room again once a third is free: within 3 s at 64 kbit/s, which is no standstill.
const SEND_BUFFER: usize = 32 << 10;
/// Accepting fails for want of descriptors, which takes a while to pass.
const RETRY: Duration = Duration::from_millis(100);

/// Serves until the future is dropped.
pub(super) async fn run(
    listeners: Vec<StdListener>,
    mut unix: UnboundedReceiver<UnixStream>,
    shared: Arc<Shared>,
) {
    let router = router::router(&shared);
    for listener in listeners {
        match TcpListener::from_std(listener) {
            Ok(listener) => {
                tokio::spawn(accept(listener, Arc::clone(&shared), router.clone()));
            }
            Err(error) => tracing::error!(%error, "the API cannot listen"),
        }
    }
    while let Some(client) = unix.recv().await {
        let (shared, router) = (Arc::clone(&shared), router.clone());
        tokio::spawn(async move {
            let opened = client.set_nonblocking(true);
            let opened = opened.and_then(|()| tokio::net::UnixStream::from_std(client));
            match (opened, Seat::take(&shared)) {
                (Ok(client), Some(seat)) => {
                    let client = Reader::new(client, &seat.client);
                    converse(client, Peer::Local, seat, shared, router).await;
                }
                (Err(error), _) => tracing::debug!(%error, "API client"),
                (_, None) => tracing::debug!("the API is full"),
            }
        });
    }
    // The control socket is gone, and the others are served on.
    std::future::pending::<()>().await;
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, router: Router) {
    loop {
        let (client, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "the API cannot accept a client");
                sleep(RETRY).await;
                continue;
            }
        };
        let Some(seat) = Seat::take(&shared) else {
            tracing::debug!(%address, "the API is full");
            continue;
        };
        tune(&client);
        let client = Reader::new(client, &seat.client);
        let peer = Peer::Remote(address.ip());
        // The certificate of now: the one before it may have been renewed.
        let tls = shared.access.locks().terms().tls.clone();
        let (shared, router) = (Arc::clone(&shared), router.clone());
        tokio::spawn(async move {
            match tls {
                None => converse(client, peer, seat, shared, router).await,
                Some(tls) => {
                    let own = Arc::clone(&seat.client);
                    let handshake = timeout(HEAD_WITHIN, tls.accept(client));
                    tokio::select! {
                        () = own.leave.notified() => {}
                        shaken = handshake => if let Ok(Ok(client)) = shaken {
                            converse(client, peer, seat, shared, router).await;
                        }
                    }
                }
            }
        });
    }
}

/// A socket that soon shows whether its client reads.
fn tune(client: &TcpStream) {
    let _ = client.set_nodelay(true);
    let _ = sockopt::set_socket_send_buffer_size(client, SEND_BUFFER);
}

/// Answers one client until it goes, is too slow, or has to leave.
async fn converse(
    client: impl AsyncRead + AsyncWrite + Unpin,
    peer: Peer,
    seat: Seat,
    shared: Arc<Shared>,
    router: Router,
) {
    let own = Arc::clone(&seat.client);
    let seat = Arc::new(seat);
    let service = service_fn(|request: Request<Incoming>| {
        let busy = seat.serve();
        let (shared, router) = (Arc::clone(&shared), router.clone());
        async move { Ok::<_, Infallible>(answer(request, peer, busy, &shared, router).await) }
    });
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES);
    let connection = pin!(server.serve_connection(TokioIo::new(client), service));
    tokio::select! {
        () = own.leave.notified() => {}
        done = connection => if let Err(error) = done {
            tracing::debug!(%error, "API client");
        }
    }
}

fn answer(
    request: Request<Incoming>,
    peer: Peer,
    busy: Busy,
    shared: &Arc<Shared>,
    router: Router,
) -> impl Future<Output = axum::response::Response> + use<> {
    let host = request.uri().authority().map(|it| it.as_str().to_owned());
    let headers = request.headers();
    let is_of_page = request.method() == Method::GET && page::has(request.uri().path());
    let wish = if is_of_page {
        Wish::PageFile
    } else {
        Wish::Anything
    };
    let shown = shared
        .access
        .admit(peer, wish, headers, host.as_deref(), Instant::now());
    let shared = Arc::clone(shared);
    async move {
        let client = Arc::clone(busy.client());
        let mut request = request.map(Body::new);
        match shown {
            Ok(shown) => {
                let caller = call::Caller {
                    role: shared.access.locks().terms().role_of(&shown),
                    shown,
                    client: Arc::clone(&client),
                };
                request.extensions_mut().insert(caller);
                let answer = router.oneshot(request).await.into_response();
                let of = answer.headers().get(header::CONTENT_TYPE);
                if of.is_none_or(|it| it != "text/event-stream") {
                    // Who takes it slowly is idle.
                    return portions::send(answer, &shared, &client).await;
                }
                // Who looks at live data is not, and there is room for so many.
                let until_sent = move |frame| {
                    let _ = &busy;
                    frame
                };
                answer.map(|body| Body::new(body.map_frame(until_sent)))
            }
            Err(problem) => Problem::into_response(problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpSocket;

    use super::*;

    /// At 64 kbit/s, in half of the time after which a client counts as one that takes nothing.
    const READ_AT_MOST: usize = 8_000 * 5;

    #[test]
    fn a_client_on_a_slow_link_is_seen_to_read() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(read_until_seen());
    }

    async fn read_until_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        // Little is on its way.
        socket.set_recv_buffer_size(4 << 10).unwrap();
        let client = socket.connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let (client, (server, _)) = (client.unwrap(), accepted.unwrap());
        tune(&server);
        let full = Duration::from_millis(500);
        while let Ok(writable) = timeout(full, server.writable()).await {
            writable.unwrap();
            while server.try_write(&[7; 4096]).is_ok() {}
        }

        let (mut read, mut buffer) = (0, [0; 1024]);
        let soon = Duration::from_millis(50);
        while timeout(soon, server.writable()).await.is_err() {
            client.readable().await.unwrap();
            read += client.try_read(&mut buffer).unwrap_or(0);
            assert!(read <= READ_AT_MOST, "{read} bytes, and it is not seen");
        }
        assert_ne!(read, 0, "it was full");
    }
}
