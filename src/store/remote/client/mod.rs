//! The client of a service: its location and settings, credentials, and the HTTP client below `object_store`.

pub(super) mod counters;
pub(super) mod http;
pub(super) mod location;
pub(super) mod sent_request;

mod aws_profile;
mod setting;
