//! What services and web servers answer: names, bodies, refusals, and what became of a request.

pub(super) mod bodies;
pub(super) mod failure;
pub(super) mod listing;
pub(super) mod refusal;
