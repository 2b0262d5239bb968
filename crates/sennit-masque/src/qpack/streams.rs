//! The peer's QPACK streams, of which a table of capacity zero leaves almost nothing.

use super::integer::MAX_CONTINUATION;
use crate::error::{Code, ConnectionError};

/// The peer's encoder stream (RFC 9204 §4.3).
#[derive(Debug, Default)]
pub(crate) struct EncoderStream;

impl EncoderStream {
    /// "Set capacity to zero", one byte, is the only instruction that a table of capacity zero
    /// allows: every insertion is larger than the table, and there is nothing to duplicate.
    pub(crate) fn handle(&self, bytes: &[u8]) -> Result<(), ConnectionError> {
        const SET_CAPACITY_ZERO: u8 = 0b0010_0000;
        if bytes.iter().all(|&byte| byte == SET_CAPACITY_ZERO) {
            return Ok(());
        }
        let reason = "an insertion into a dynamic table of capacity zero";
        Err(ConnectionError::new(
            Code::QPACK_ENCODER_STREAM_ERROR,
            reason,
        ))
    }
}

/// The peer's decoder stream (RFC 9204 §4.4).
#[derive(Debug, Default)]
pub(crate) struct DecoderStream {
    /// Bytes that the stream id of a cancellation has taken after its first.
    continuation: Option<usize>,
}

impl DecoderStream {
    /// A stream cancellation may always be sent and means nothing to us. We never insert, so there
    /// is nothing to acknowledge.
    pub(crate) fn handle(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        bytes.iter().try_for_each(|&byte| match self.continuation {
            Some(taken) => self.go_on(byte, taken + 1),
            None => self.begin(byte),
        })
    }

    fn begin(&mut self, byte: u8) -> Result<(), ConnectionError> {
        if byte >> 6 != 0b01 {
            return Err(Self::error("an acknowledgement of an insertion never made"));
        }
        self.continuation = (byte & 0x3f == 0x3f).then_some(0);
        Ok(())
    }

    fn go_on(&mut self, byte: u8, taken: usize) -> Result<(), ConnectionError> {
        if taken > MAX_CONTINUATION {
            return Err(Self::error("a stream id over 62 bits"));
        }
        self.continuation = (byte & 0x80 != 0).then_some(taken);
        Ok(())
    }

    const fn error(reason: &'static str) -> ConnectionError {
        ConnectionError::new(Code::QPACK_DECODER_STREAM_ERROR, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoder_may_only_set_the_capacity_to_zero() {
        assert_eq!(EncoderStream.handle(&[0x20, 0x20]), Ok(()));
        // set capacity 1, insert with static name, insert literal, duplicate
        for instruction in [0x21, 0xc1, 0x41, 0x00] {
            let error = EncoderStream
                .handle(&[instruction])
                .expect_err("must be refused");
            assert_eq!(error.code, Code::QPACK_ENCODER_STREAM_ERROR);
        }
    }

    #[test]
    fn a_decoder_may_cancel_streams_but_acknowledge_nothing() {
        let mut stream = DecoderStream::default();
        assert_eq!(stream.handle(&[0x44, 0x7f]), Ok(()));
        assert_eq!(stream.handle(&[0xff, 0x01, 0x48]), Ok(()));
        for instruction in [0x80, 0x00, 0x01] {
            let error = DecoderStream::default()
                .handle(&[instruction])
                .expect_err("refused");
            assert_eq!(error.code, Code::QPACK_DECODER_STREAM_ERROR);
        }
    }

    #[test]
    fn a_cancelled_stream_id_without_an_end_is_refused() {
        let mut stream = DecoderStream::default();
        assert_eq!(stream.handle(&[0x7f]), Ok(()));
        assert_eq!(stream.handle(&[0x80; MAX_CONTINUATION]), Ok(()));
        assert!(stream.handle(&[0x80]).is_err());
    }
}
