//! How the process allocates.

/// Packets come and go by the megabyte. More than this `M_MMAP_THRESHOLD` does not take.
#[cfg(target_env = "gnu")]
const KEPT: i32 = 32 << 20;

/// Has the allocator keep what is freed. By default it gives 128 KB and more back to the kernel at
/// once, and the next packets get them as new pages: filled with zeros, one fault each.
pub fn keep_freed() {
    #[cfg(target_env = "gnu")]
    if !crate::sys::keep_freed_memory(KEPT) {
        tracing::debug!("the allocator goes on giving freed memory back");
    }
}

/// Gives back what is freed and kept, so that what the process holds is what it uses. It takes
/// milliseconds, in which other threads wait for memory.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    crate::sys::trim_freed_memory();
}
