//! A connection whose client has to take what it is sent.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use super::seats::Client;

/// Who takes nothing for so long is cut off: what it was sent is memory of the daemon.
const TAKES_WITHIN: Duration = Duration::from_secs(30);

/// A connection that fails once its client takes nothing any more.
pub(super) struct Reader<T> {
    io: T,
    client: Arc<Client>,
    /// Runs while something waits for the client.
    limit: Option<Pin<Box<Sleep>>>,
}

impl<T> Reader<T> {
    pub(super) fn new(io: T, client: &Arc<Client>) -> Self {
        Self {
            io,
            client: Arc::clone(client),
            limit: None,
        }
    }

    /// What becomes of sending, of which this much is known.
    fn judge<R>(
        &mut self,
        sent: Poll<io::Result<R>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<R>> {
        self.client.note(sent.is_ready());
        if sent.is_ready() {
            self.limit = None;
            return sent;
        }
        let limit = || Box::pin(sleep(TAKES_WITHIN));
        ready!(self.limit.get_or_insert_with(limit).as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Reader<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Reader<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.io).poll_write(context, bytes);
        self.judge(sent, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.io).poll_write_vectored(context, bytes);
        self.judge(sent, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = Pin::new(&mut self.io).poll_flush(context);
        self.judge(sent, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = Pin::new(&mut self.io).poll_shutdown(context);
        self.judge(sent, context)
    }
}
