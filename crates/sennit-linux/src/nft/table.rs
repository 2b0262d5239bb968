//! The table of one device, and whether it still says what it was made to say.
//!
//! Another program may take it away without a word: the file of Debian's `nftables.service` begins
//! with `flush ruleset`, and so a reload of that empties our table too. The kernel numbers each
//! change of any table, so that a look costs one question as long as nobody changes anything.

use super::{apply, generation, list};
use crate::{DeviceName, Error, Rules};

/// A table, as it was made and as it was found after that.
#[derive(Debug)]
pub(crate) struct Table {
    device: DeviceName,
    wanted: Rules,
    /// Nothing if it was not there when it was looked at.
    found: Option<Found>,
}

#[derive(Debug)]
struct Found {
    /// Of the last change of any table before this was listed.
    generation: u32,
    listing: String,
}

impl Table {
    /// The table of a device, of which nothing is wanted yet.
    pub(crate) fn of(device: &DeviceName) -> Self {
        Self {
            device: device.clone(),
            wanted: Rules::default(),
            found: None,
        }
    }

    /// Makes it say exactly this.
    pub(crate) fn set(&mut self, rules: &Rules) -> Result<(), Error> {
        apply(&self.device, rules)?;
        self.wanted = rules.clone();
        // What cannot be looked at now is put there once more at the next look.
        self.found = None;
        if !rules.is_empty() {
            self.found = self.look().ok().flatten();
        }
        Ok(())
    }

    /// Makes it say again what it was made to say, if it does not; true then.
    pub(crate) fn restore(&mut self) -> Result<bool, Error> {
        if self.wanted.is_empty() {
            return Ok(false);
        }
        let known = self.found.as_ref();
        let generation = generation::current()?;
        if known.is_some_and(|known| known.generation == generation) {
            return Ok(false);
        }
        let found = self.look()?;
        let listing = |found: &Option<Found>| found.as_ref().map(|it| it.listing.clone());
        if found.is_some() && listing(&found) == listing(&self.found) {
            self.found = found;
            return Ok(false);
        }
        self.found = None;
        self.set(&self.wanted.clone())?;
        Ok(true)
    }

    /// The number is asked for first: what changes while the table is listed is seen at the next
    /// look.
    fn look(&self) -> Result<Option<Found>, Error> {
        let generation = generation::current()?;
        let listing = list(&self.device)?;
        Ok(listing.map(|listing| Found {
            generation,
            listing,
        }))
    }
}
