//! The command line's end.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::{Refused, Request, Response};

/// An answer of a hub with thousands of tunnels is a few megabytes.
const MAX_ANSWER_BYTES: u64 = 64 << 20;

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    path: PathBuf,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no daemon answers at {}: {source}", path.display())]
    Unreachable { path: PathBuf, source: io::Error },
    #[error("this user may not ask the daemon at {}: {source}", path.display())]
    Denied { path: PathBuf, source: io::Error },
    #[error("the daemon at {} has ended meanwhile", path.display())]
    Ended { path: PathBuf },
    #[error("the daemon at {} does not answer in time", path.display())]
    Silent { path: PathBuf },
    #[error("what answers at {} is no daemon of Sennit: {source}", path.display())]
    Garbled {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl Client {
    /// Connects; each request gets `patience` to be answered.
    pub fn connect(path: &Path, patience: Duration) -> Result<Self, ClientError> {
        let failed = |source: io::Error| {
            let path = path.into();
            match source.kind() {
                io::ErrorKind::PermissionDenied => ClientError::Denied { path, source },
                _ => ClientError::Unreachable { path, source },
            }
        };
        let stream = UnixStream::connect(path).map_err(failed)?;
        // A timeout of zero would mean to wait for ever.
        let patience = Some(patience.max(Duration::from_millis(1)));
        stream
            .set_read_timeout(patience)
            .and_then(|()| stream.set_write_timeout(patience))
            .map_err(failed)?;
        Ok(Self {
            stream: BufReader::new(stream),
            path: path.into(),
        })
    }

    /// Sends a request and waits for its document.
    pub fn request(&mut self, request: &Request) -> Result<Value, ClientError> {
        let mut line = serde_json::to_vec(request).expect("a request becomes JSON");
        line.push(b'\n');
        let mut answer = Vec::new();
        let exchanged = self.stream.get_mut().write_all(&line).and_then(|()| {
            (&mut self.stream)
                .take(MAX_ANSWER_BYTES)
                .read_until(b'\n', &mut answer)
        });
        match exchanged {
            Ok(0) => return Err(self.ended()),
            Ok(_) => {}
            Err(error)
                if [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset]
                    .contains(&error.kind()) =>
            {
                return Err(self.ended());
            }
            Err(error)
                if [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&error.kind()) =>
            {
                return Err(ClientError::Silent {
                    path: self.path.clone(),
                });
            }
            Err(error) => return Err(self.unreachable(error)),
        }
        match Response::parse(&answer) {
            Ok(Response::Document(document)) => Ok(document),
            Ok(Response::Refused(refused)) => Err(refused.into()),
            Err(source) => Err(ClientError::Garbled {
                path: self.path.clone(),
                source,
            }),
        }
    }

    fn ended(&self) -> ClientError {
        ClientError::Ended {
            path: self.path.clone(),
        }
    }

    fn unreachable(&self, source: io::Error) -> ClientError {
        ClientError::Unreachable {
            path: self.path.clone(),
            source,
        }
    }
}
