//! Writes what the targets read as a script.

#[derive(Clone, Debug, Default)]
pub(crate) struct Script(Vec<u8>);

impl Script {
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Bytes behind their length.
    pub(crate) fn block(self, bytes: &[u8]) -> Self {
        let len = u16::try_from(bytes.len()).expect("seeds are small");
        self.u16(len).bytes(bytes)
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }
}
