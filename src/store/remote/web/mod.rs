//! Web servers between `object_store` and the client: one client over another.

pub(super) mod redirects;
pub(super) mod server;
