//! Web servers between `object_store` and the client: one client over another.

mod headers;
pub(super) mod redirects;
pub(super) mod server;
mod validators;
