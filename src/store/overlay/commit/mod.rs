//! Commits of an overlay: its changes are written back into its base (`target.rs`, `removals.rs`), or become a snapshot of a base that
//! keeps versions (`publisher.rs`). The order of the changes, and what users hear of conflicts, is in `hierarchy/commit`.

mod census;
mod gate;
mod publisher;
mod removals;
mod target;

pub(super) use self::census::{census, info_without_owner, is_committable, is_folder, removal_time};
pub use self::gate::RecordedChanges;
pub(super) use self::publisher::WriteScope;
pub use self::publisher::{Frozen, Publisher, Recording};
pub use self::removals::RemovalState;
pub(super) use self::removals::has_documents;
pub use self::target::{ChangeOutcome, CommitTarget};
