//! SETTINGS, RFC 9114 §7.2.4, of which four matter to us.

use crate::error::{Code, ConnectionError};
use crate::{MAX_FIELD_SECTION, varint};
use bytes::BytesMut;
use std::collections::BTreeSet;

const QPACK_MAX_TABLE_CAPACITY: u64 = 0x01;
const MAX_FIELD_SECTION_SIZE: u64 = 0x06;
const QPACK_BLOCKED_STREAMS: u64 = 0x07;
const ENABLE_CONNECT_PROTOCOL: u64 = 0x08;
const H3_DATAGRAM: u64 = 0x33;

/// What one side announces. A setting that is absent has its default value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings {
    /// A server accepts extended CONNECT (RFC 9220 §3).
    pub enable_connect_protocol: bool,
    /// HTTP datagrams in QUIC DATAGRAM frames (RFC 9297 §2.1.1).
    pub h3_datagram: bool,
    /// The largest header section accepted; `None` means any (RFC 9114 §7.2.4.1).
    pub max_field_section_size: Option<u64>,
}

impl Settings {
    /// What Sennit announces. A client's extended CONNECT setting means nothing, so it sends none.
    pub(crate) const fn ours(enable_connect_protocol: bool) -> Self {
        Self {
            enable_connect_protocol,
            h3_datagram: true,
            max_field_section_size: Some(MAX_FIELD_SECTION as u64),
        }
    }

    /// The payload of a SETTINGS frame. The QPACK settings are spelled out although zero is their
    /// default, for whoever reads the wire.
    pub(crate) fn encode(&self) -> BytesMut {
        let mut out = BytesMut::new();
        let mut put = |id, value| {
            varint::put(&mut out, id);
            varint::put(&mut out, value);
        };
        put(QPACK_MAX_TABLE_CAPACITY, 0);
        put(QPACK_BLOCKED_STREAMS, 0);
        if let Some(size) = self.max_field_section_size {
            put(MAX_FIELD_SECTION_SIZE, size);
        }
        if self.enable_connect_protocol {
            put(ENABLE_CONNECT_PROTOCOL, 1);
        }
        put(H3_DATAGRAM, u64::from(self.h3_datagram));
        out
    }

    /// Reads the payload of a SETTINGS frame. Unknown and GREASE settings are ignored, except that
    /// none may come twice (RFC 9114 §7.2.4).
    pub(crate) fn decode(mut payload: &[u8]) -> Result<Self, ConnectionError> {
        let mut settings = Self::default();
        let mut seen = BTreeSet::new();
        while !payload.is_empty() {
            let (id, value) = varint::take(&mut payload)
                .zip(varint::take(&mut payload))
                .ok_or(ConnectionError::new(
                    Code::H3_FRAME_ERROR,
                    "a setting is cut short",
                ))?;
            if !seen.insert(id) {
                return Err(error("a setting comes twice"));
            }
            settings.apply(id, value)?;
        }
        Ok(settings)
    }

    fn apply(&mut self, id: u64, value: u64) -> Result<(), ConnectionError> {
        match id {
            MAX_FIELD_SECTION_SIZE => self.max_field_section_size = Some(value),
            // RFC 9220 §3 (RFC 8441 §3)
            ENABLE_CONNECT_PROTOCOL => self.enable_connect_protocol = flag(value)?,
            // RFC 9297 §2.1.1
            H3_DATAGRAM => self.h3_datagram = flag(value)?,
            // RFC 9114 §7.2.4.1: settings of HTTP/2 that have no meaning here
            0x00 | 0x02..=0x05 => return Err(error("a setting of HTTP/2")),
            // What the peer's QPACK decoder could hold is its own affair: we never insert.
            _ => {}
        }
        Ok(())
    }
}

fn flag(value: u64) -> Result<bool, ConnectionError> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(error("a setting that must be 0 or 1 is neither")),
    }
}

const fn error(reason: &'static str) -> ConnectionError {
    ConnectionError::new(Code::H3_SETTINGS_ERROR, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn code_of(payload: &[u8]) -> Code {
        Settings::decode(payload).expect_err("must be refused").code
    }

    #[test]
    fn ours_survive_the_round_trip() {
        for connect in [false, true] {
            let settings = Settings::ours(connect);
            assert_eq!(Settings::decode(&settings.encode()), Ok(settings));
        }
    }

    #[test]
    fn absent_settings_have_their_defaults_and_grease_is_ignored() {
        let grease = [0x40, 0x40, 0x07, 0x33, 0x01];
        let settings = Settings::decode(&grease).expect("legal");
        assert_eq!(
            settings,
            Settings {
                h3_datagram: true,
                ..Settings::default()
            }
        );
    }

    #[test]
    fn a_duplicate_a_bad_flag_and_a_setting_of_http_2_are_settings_errors() {
        assert_eq!(
            code_of(&[0x40, 0x40, 0, 0x40, 0x40, 0]),
            Code::H3_SETTINGS_ERROR
        );
        assert_eq!(code_of(&[0x08, 2]), Code::H3_SETTINGS_ERROR);
        assert_eq!(code_of(&[0x33, 2]), Code::H3_SETTINGS_ERROR);
        for http2 in [0x00, 0x02, 0x03, 0x04, 0x05] {
            assert_eq!(code_of(&[http2, 0]), Code::H3_SETTINGS_ERROR);
        }
    }

    #[test]
    fn a_setting_cut_short_is_a_frame_error() {
        for cut in [&[0x33][..], &[0x40], &[0x33, 0x40]] {
            assert_eq!(code_of(cut), Code::H3_FRAME_ERROR);
        }
    }

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn any_bytes_are_settings_or_one_of_two_errors(payload: Vec<u8>) {
            if let Err(error) = Settings::decode(&payload) {
                prop_assert!([Code::H3_FRAME_ERROR, Code::H3_SETTINGS_ERROR].contains(&error.code));
            }
        }
    }
}
