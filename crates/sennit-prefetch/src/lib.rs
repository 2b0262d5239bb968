//! Tells the processor which memory is about to be used.
//!
//! A packet that stands in a queue for some milliseconds leaves the caches meanwhile. Whoever takes
//! it out waits for memory then, line by line, unless it was asked for a little before
//! (`docs/decisions/0018` has what that saves).
//!
//! A crate of its own because the instruction has no safe wrapper in the standard library, and
//! those who need it are pure.

/// Asks for `memory`, to be read or to be written to, and does not wait for it. Where that is not
/// known how, nothing happens.
pub fn prefetch<T>(memory: &[T]) {
    #[cfg(target_arch = "x86_64")]
    x86_64::prefetch(memory.as_ptr_range());
    #[cfg(not(target_arch = "x86_64"))]
    let _ = memory;
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "no safe wrapper of the instruction is stable")]
mod x86_64 {
    use std::{
        arch::x86_64::{_MM_HINT_T0, _mm_prefetch},
        ops::Range,
    };

    /// Bytes that come together.
    const LINE: usize = 64;

    pub(super) fn prefetch<T>(memory: Range<*const T>) {
        let (mut line, end) = (memory.start.cast::<i8>(), memory.end.cast::<i8>());
        while line < end {
            // SAFETY: a prefetch reads nothing that the program could see, and never faults,
            // whatever the address (Intel SDM volume 2, PREFETCHh).
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
            line = line.wrapping_add(LINE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_memory_it_is_stays_as_it_is() {
        let packet: Vec<u8> = (0..200).collect();
        prefetch(&packet);
        prefetch(&packet[199..]);
        prefetch(&packet[200..]);
        prefetch::<u64>(&[]);
        assert!(packet.into_iter().eq(0..200));
    }

    #[test]
    fn places_that_were_never_written_to_can_be_asked_for() {
        let mut places: Vec<u8> = Vec::with_capacity(10_000);
        prefetch(places.spare_capacity_mut());
        assert!(places.is_empty());
    }
}
