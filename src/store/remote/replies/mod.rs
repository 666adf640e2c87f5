//! Replies of services and web servers: listings, bodies, refusals, and the outcome of a request.

pub(super) mod bodies;
pub(super) mod failure;
pub(super) mod listing;
pub(super) mod refusal;
