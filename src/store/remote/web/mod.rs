//! Web servers between `object_store` and the client: one client over another.

mod headers;
pub(super) mod login;
mod pages;
pub(super) mod queries;
pub(super) mod redirects;
pub(super) mod server;
mod validators;
