//! What this processor can do beyond the least of its kind. Part of `sys.rs`, and like it without anything of the crate.
//!
//! Programs are built for the oldest x86-64, whose registers have 16 bytes and which cannot reorder bytes within them.

/// Whether [`wide`] has more to offer than the least of its kind.
pub fn has_wide_registers() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2");
    // What all of them can do is enough.
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_arch = "aarch64");
}

/// Runs `work`, a loop over bytes, compiled for all that the processor can do. Only what is inlined into `work` gains.
#[inline]
pub fn wide<T>(work: impl FnOnce() -> T) -> T {
    #[cfg(target_arch = "x86_64")]
    if has_wide_registers() {
        // SAFETY: the processor has AVX2, which is all that the function asks for.
        return unsafe { with_avx2(work) };
    }
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2<T>(work: impl FnOnce() -> T) -> T {
    work()
}
