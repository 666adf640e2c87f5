//! What a remote store has asked of its service. Uses nothing.

/// Counts since the store was opened, and two states of now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Requests sent, repetitions included.
    pub requests: u64,
    /// Requests that got no reply, or one that asks to try again later (429, 5xx).
    pub failed_requests: u64,
    /// Seconds from sending requests to the heads of their replies, in all.
    pub reply_seconds: f64,
    /// Bytes in the bodies of replies, as the service announced them.
    pub received_bytes: u64,
    /// Requests under way now.
    pub in_flight: u64,
    /// Memory of bytes that were transferred, or are on their way, ahead of their readers.
    pub ahead_bytes: u64,
}
