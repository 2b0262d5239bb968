//! How exact the emulator was.

use std::time::Duration;

/// How hard it was for the emulator to be exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Strain {
    /// Batches of packets written.
    pub batches: u64,
    /// Batches whose first packet left more than a millisecond after the model's time.
    pub over_1ms: u64,
    /// Packets written; none of earlier builds, which counted batches only.
    #[serde(default)]
    pub packets: u64,
    /// Packets of batches whose first one left more than 1, 2, … 10 ms after the model's time, or
    /// that may have waited so much longer than they should before a link.
    #[serde(default)]
    pub packets_over_ms: [u64; 10],
    /// The most that a packet was late.
    pub late_max_seconds: f64,
    /// CPU time of the emulator.
    pub cpu_seconds: f64,
}

impl Strain {
    /// A batch of so many packets leaves, the first of them so late.
    pub(super) fn note(&mut self, late: Duration, packets: u64) {
        self.batches += 1;
        self.over_1ms += u64::from(late > Duration::from_millis(1));
        self.packets += packets;
        self.count(late, packets);
    }

    /// So many packets were read, so much later than they could have been: for all that is known
    /// they came at once after the look before, and waited.
    pub(super) fn note_read(&mut self, late: Duration, packets: u64) {
        if packets > 0 {
            self.count(late, packets);
        }
    }

    fn count(&mut self, late: Duration, packets: u64) {
        for (over, milliseconds) in self.packets_over_ms.iter_mut().zip(1..) {
            *over += packets * u64::from(late > Duration::from_millis(milliseconds));
        }
        self.late_max_seconds = self.late_max_seconds.max(late.as_secs_f64());
    }

    /// The part of the packets that waited or left over so many milliseconds late, of 1 to 10: at
    /// most, as the first of a batch speaks for all of it, and who waited may also leave late.
    /// Earlier builds only tell of batches over 1 ms.
    pub(crate) fn late_ratio(&self, milliseconds: usize) -> f64 {
        let over = || self.packets_over_ms.get(milliseconds.saturating_sub(1));
        let (late, all) = match self.packets {
            0 => (self.over_1ms, self.batches),
            all => (over().copied().unwrap_or(all), all),
        };
        late as f64 / all.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_waited_before_a_link_was_late_as_what_left_it() {
        let mut strain = Strain::default();
        strain.note(MS / 2, 96);
        strain.note(MS * 7 / 2, 4);

        strain.note_read(MS * 11 / 2, 10);
        strain.note_read(MS * 900, 0);

        assert_eq!(strain.packets, 100);
        assert_eq!(strain.packets_over_ms, [14, 14, 14, 10, 10, 0, 0, 0, 0, 0]);
        assert_eq!(strain.late_max_seconds, 0.0055);
        assert_eq!(strain.late_ratio(5), 0.1);
    }
}
