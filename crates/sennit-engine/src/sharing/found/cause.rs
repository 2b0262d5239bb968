//! Why a link is taken to carry what it is.

/// Why the rate of a link is what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// No queue has shown yet, so nobody is held back.
    #[default]
    Unknown,
    /// A queue stands in the link, and drains.
    Queue,
    /// No queue stands there, and not all of it is used.
    Clear,
    /// All of it is used and no queue shows, or one no longer than it shall be, so more is tried.
    Rises,
    /// Nothing arrives: what was known before holds.
    Stalled,
}

impl Cause {
    /// Its number on the wire is its place here.
    const ALL: [Self; 5] = [
        Self::Unknown,
        Self::Queue,
        Self::Clear,
        Self::Rises,
        Self::Stalled,
    ];

    pub(in crate::sharing) fn number(self) -> u8 {
        let mut all = Self::ALL.iter();
        all.position(|&cause| cause == self).unwrap_or(0) as u8
    }

    /// A number that nobody knows yet says nothing.
    pub(in crate::sharing) fn of(number: u8) -> Self {
        let known = Self::ALL.get(usize::from(number));
        known.copied().unwrap_or_default()
    }
}
