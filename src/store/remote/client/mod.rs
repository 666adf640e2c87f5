//! The client of a service: its location, settings and credentials. `http.rs` next to it is the HTTP client below `object_store`.

pub(super) mod location;

mod aws_profile;
mod setting;
