//! What this processor supports beyond the baseline of its architecture. Part of `sys.rs`; like it, it uses nothing of the crate.
//!
//! Programs are built for the oldest x86-64, which has registers of 16 bytes and cannot reorder bytes within them.

/// Whether [`wide`] uses more than the baseline.
pub fn has_wide_registers() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2");
    // The baseline has wide registers.
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_arch = "aarch64");
}

/// Runs `work`, a loop over bytes, compiled for everything that the processor supports. Only code that is inlined into `work` gains.
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
