//! What the writers of all arrays of one process share: the dirty limit, permits to encode, and counts.
//!
//! Uses `unstored_log/`, and `semaphore.rs` and `sync.rs` of `array`.

use std::sync::Arc;
use std::time::Duration;

use crate::array::semaphore::{Permit, Semaphore};
use crate::array::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::array::sync::{Condvar, Mutex, OnceLock};
use crate::array::write::unstored_log::{KeptBytes, UnstoredLog};
use crate::error::Result;

/// What the writers of all arrays share, and the dirty bytes of one member of a catalogue.
pub struct WriteResources {
    common: Arc<CommonResources>,
    /// The dirty bytes of a member of a catalogue, if the writers are of one.
    member: Option<MemberDirty>,
}

/// The dirty bytes of a member of a catalogue.
struct MemberDirty {
    bytes: AtomicU64,
}

struct CommonResources {
    /// How many bytes may be dirty before writers wait.
    dirty_limit_bytes: u64,
    /// Bytes written and not yet stored.
    dirty_bytes: AtomicU64,
    /// How many members of a catalogue have dirty bytes.
    dirty_members: AtomicU64,
    room: RoomSignal,
    /// Limits the threads that encode.
    encoders: Semaphore,
    /// Whether readers keep what they receive, as the kernel's page cache does.
    readers_keep: bool,
    /// What is written and not stored, where it outlives the process.
    unstored_log: OnceLock<Arc<UnstoredLog>>,
    /// What the log has of it.
    kept_bytes: KeptBytes,
    /// Nothing is recorded, although there is a log.
    has_given_up_log: AtomicBool,
    /// A former daemon may have put objects without making their names durable.
    has_former_names: AtomicBool,
    bases_read: AtomicU64,
    chunks_encoded: AtomicU64,
    objects_stored: AtomicU64,
    failed_stores: AtomicU64,
}

/// Wakes writers that wait for room: after each change that may end a wait (fewer dirty bytes of any array, the end of
/// a thread that stores full chunks), [`WriteResources::notify_room`] is called.
#[derive(Default)]
struct RoomSignal {
    /// Held while a writer looks whether there is room, so that no change is missed.
    lock: Mutex<()>,
    changed: Condvar,
}

/// What a writer that found no room does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomWait {
    /// Waits until something changes.
    UntilChange,
    /// Waits until something changes, but no longer than this.
    AtMost(Duration),
    /// Waits no longer.
    Over,
}

impl WriteResources {
    /// Creates resources for `encoders` threads that encode.
    pub fn new(dirty_limit_bytes: u64, encoders: usize, readers_keep: bool, kept_bytes: KeptBytes) -> Self {
        let common = CommonResources {
            dirty_limit_bytes,
            dirty_bytes: AtomicU64::new(0),
            dirty_members: AtomicU64::new(0),
            room: RoomSignal::default(),
            encoders: Semaphore::new(encoders),
            readers_keep,
            unstored_log: OnceLock::new(),
            kept_bytes,
            has_given_up_log: AtomicBool::new(false),
            has_former_names: AtomicBool::new(false),
            bases_read: AtomicU64::new(0),
            chunks_encoded: AtomicU64::new(0),
            objects_stored: AtomicU64::new(0),
            failed_stores: AtomicU64::new(0),
        };
        WriteResources { common: Arc::new(common), member: None }
    }

    /// Returns the resources for one more member of a catalogue.
    pub fn for_member(&self) -> Self {
        let member = Some(MemberDirty { bytes: AtomicU64::new(0) });
        WriteResources { common: Arc::clone(&self.common), member }
    }

    /// Returns how many bytes may be dirty before writers wait.
    pub fn dirty_limit_bytes(&self) -> u64 {
        self.common.dirty_limit_bytes
    }

    /// Returns how many bytes of all arrays are written and not yet stored.
    pub fn dirty_bytes(&self) -> u64 {
        self.common.dirty_bytes.load(Ordering::Acquire)
    }

    /// Returns how many bytes of the arrays in the same member of a catalogue are dirty; of all arrays, if there is no catalogue.
    pub fn own_dirty_bytes(&self) -> u64 {
        self.member.as_ref().map_or_else(|| self.dirty_bytes(), |member| member.bytes.load(Ordering::Acquire))
    }

    /// Returns whether more is dirty than the limit allows. A member of a catalogue may always have its share of the limit: otherwise
    /// its writers would wait for the store of another one, which may hang.
    pub fn is_over_dirty_limit(&self) -> bool {
        let limit_bytes = self.common.dirty_limit_bytes;
        if self.dirty_bytes() <= limit_bytes {
            return false;
        }
        let Some(member) = &self.member else { return true };
        let members = self.common.dirty_members.load(Ordering::Acquire).max(1);
        member.bytes.load(Ordering::Acquire) > limit_bytes / members
    }

    /// Counts an attempt to store something that failed.
    pub fn record_failed_store(&self) {
        self.common.failed_stores.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many attempts to store something have failed.
    pub fn failed_stores(&self) -> u64 {
        self.common.failed_stores.load(Ordering::Relaxed)
    }

    /// Counts more dirty bytes.
    pub fn add_dirty(&self, bytes: u64) {
        self.common.dirty_bytes.fetch_add(bytes, Ordering::AcqRel);
        if let Some(member) = &self.member
            && bytes > 0
            && member.bytes.fetch_add(bytes, Ordering::AcqRel) == 0
        {
            self.common.dirty_members.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Counts fewer dirty bytes, and wakes writers that wait for room.
    pub fn remove_dirty(&self, bytes: u64) {
        self.common.dirty_bytes.fetch_sub(bytes, Ordering::AcqRel);
        if let Some(member) = &self.member
            && bytes > 0
            && member.bytes.fetch_sub(bytes, Ordering::AcqRel) == bytes
        {
            self.common.dirty_members.fetch_sub(1, Ordering::AcqRel);
        }
        self.notify_room();
    }

    /// Wakes writers that wait for room.
    pub fn notify_room(&self) {
        drop(self.common.room.lock.lock());
        self.common.room.changed.notify_all();
    }

    /// Waits as `decide` says, and asks it again after each change, until it says that the wait is over.
    pub fn wait_for_room(&self, mut decide: impl FnMut() -> RoomWait) {
        let mut lock = self.common.room.lock.lock();
        loop {
            match decide() {
                RoomWait::UntilChange => self.common.room.changed.wait(&mut lock),
                RoomWait::AtMost(time) => {
                    let _ = self.common.room.changed.wait_for(&mut lock, time);
                }
                RoomWait::Over => return,
            }
        }
    }

    /// Records what is written from now on, until it is stored. Must be called before the first write.
    pub fn keep_unstored_log(&self, log: Arc<UnstoredLog>) {
        let _ = self.common.unstored_log.set(log);
    }

    /// Records that a former daemon may have put objects without making their names durable.
    pub fn mark_former_names(&self) {
        self.common.has_former_names.store(true, Ordering::Release);
    }

    /// Makes the names of a former daemon's objects durable with `sync`, unless that was done.
    pub fn sync_former_names(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.common.has_former_names.load(Ordering::Acquire) {
            sync()?;
            self.common.has_former_names.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Records nothing any more, because the session ends with this process. Must be called before the first write.
    pub fn give_up_unstored_log(&self) {
        self.common.has_given_up_log.store(true, Ordering::Release);
    }

    /// Returns the log of unstored bytes, if there is one.
    pub fn unstored_log(&self) -> Option<&Arc<UnstoredLog>> {
        self.common.unstored_log.get().filter(|_| !self.common.has_given_up_log.load(Ordering::Acquire))
    }

    /// Returns what the log has of what is written.
    pub fn kept_bytes(&self) -> KeptBytes {
        self.common.kept_bytes
    }

    /// Waits for a permit to encode.
    pub fn encoder(&self) -> Permit<'_> {
        self.common.encoders.take()
    }

    /// Returns whether readers keep what they receive, as the kernel's page cache does.
    pub fn readers_keep(&self) -> bool {
        self.common.readers_keep
    }

    /// Counts a chunk that was loaded because a write covered only a part of it.
    pub fn record_base(&self) {
        self.common.bases_read.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an object that was put or deleted, for which this many chunks were encoded.
    pub fn record_object(&self, chunks: usize) {
        self.common.objects_stored.fetch_add(1, Ordering::Relaxed);
        self.common.chunks_encoded.fetch_add(chunks as u64, Ordering::Relaxed);
    }

    /// Returns how many chunks were loaded because a write covered only a part of them.
    pub fn bases_read(&self) -> u64 {
        self.common.bases_read.load(Ordering::Relaxed)
    }

    /// Returns how many chunks were encoded.
    pub fn chunks_encoded(&self) -> u64 {
        self.common.chunks_encoded.load(Ordering::Relaxed)
    }

    /// Returns how many objects were put or deleted.
    pub fn objects_stored(&self) -> u64 {
        self.common.objects_stored.load(Ordering::Relaxed)
    }
}
