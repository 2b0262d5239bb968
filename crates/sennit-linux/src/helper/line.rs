//! Questions and answers between two processes, with a descriptor now and then.
//!
//! A message is its length in four bytes (big-endian) and JSON. A descriptor comes with the length.

use std::{
    io::{self, IoSlice, IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    net::Shutdown,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Error, error::Doing};

/// The rules of a hub with many sites are long; this is some hundred thousand prefixes.
const LONGEST: usize = 16 << 20;
const LENGTH: usize = 4;

/// A message, and what came with it.
pub(crate) type Message = (Vec<u8>, Option<OwnedFd>);

/// One end.
#[derive(Debug)]
pub(crate) struct Line(UnixStream);

impl Line {
    pub(crate) fn pair() -> Result<(Self, Self), Error> {
        let pair = UnixStream::pair();
        let (one, other) = pair.doing(|| "make a socket for the helper".into())?;
        Ok((Self(one), Self(other)))
    }

    /// Sends a question and waits for what the other end answers.
    pub(crate) fn ask<T: DeserializeOwned>(
        &mut self,
        question: &impl Serialize,
        about: Option<BorrowedFd<'_>>,
    ) -> Result<T, Error> {
        let answer = self.exchange(question, about);
        let (answer, _) = answer.doing(|| "have the helper change the host".into())?;
        answer
    }

    /// Sends a question that is answered with a descriptor.
    pub(crate) fn ask_for(&mut self, question: &impl Serialize) -> Result<OwnedFd, Error> {
        let answer = self.exchange(question, None);
        let (answer, given) = answer.doing(|| "ask the helper for a file".into())?;
        let (): () = answer?;
        let none = || io::Error::other("it gives none");
        given
            .ok_or_else(none)
            .doing(|| "ask the helper for a file".into())
    }

    fn exchange<T: DeserializeOwned>(
        &mut self,
        question: &impl Serialize,
        about: Option<BorrowedFd<'_>>,
    ) -> io::Result<(Result<T, Error>, Option<OwnedFd>)> {
        self.send(question, about)?;
        let gone = || io::Error::new(io::ErrorKind::BrokenPipe, "it has ended");
        let (answer, given) = self.receive()?.ok_or_else(gone)?;
        Ok((serde_json::from_slice(&answer)?, given))
    }

    pub(crate) fn send(
        &mut self,
        message: &impl Serialize,
        about: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        if text.len() > LONGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let length = text.len() as u32;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let about: Vec<BorrowedFd<'_>> = about.into_iter().collect();
        if !about.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&about));
        }
        let length = length.to_be_bytes();
        let slices = [IoSlice::new(&length)];
        let flags = SendFlags::NOSIGNAL;
        rustix::io::retry_on_intr(|| sendmsg(&self.0, &slices, &mut control, flags))?;
        self.0.write_all(&text)
    }

    /// The next message; nothing at the end.
    pub(crate) fn receive(&mut self) -> io::Result<Option<Message>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut length = [0; LENGTH];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
        let received = rustix::io::retry_on_intr(|| {
            let mut slices = [IoSliceMut::new(&mut length)];
            recvmsg(&self.0, &mut slices, &mut control, flags)
        })?;
        match received.bytes {
            0 => return Ok(None),
            LENGTH => {}
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        let about = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        let length = u32::from_be_bytes(length) as usize;
        if length > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut text = vec![0; length];
        self.0.read_exact(&mut text)?;
        Ok(Some((text, about)))
    }

    /// What ends it for both ends, whoever uses it.
    pub(super) fn end(&self) -> Result<Hook, Error> {
        let hook = self.0.try_clone();
        Ok(Hook(hook.doing(|| "copy a descriptor".into())?))
    }
}

/// Ends a line while somebody may wait for an answer there.
#[derive(Debug)]
pub(super) struct Hook(UnixStream);

impl Hook {
    pub(super) fn hang_up(&self) {
        // It may have ended.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl From<OwnedFd> for Line {
    fn from(socket: OwnedFd) -> Self {
        Self(socket.into())
    }
}

impl From<Line> for OwnedFd {
    fn from(line: Line) -> Self {
        line.0.into()
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
