//! The hierarchy's nodes as they were last seen, looked at again after `revalidate` seconds.
//!
//! Between the file system and `hierarchy::Tree`, which reads the store at each call. Invariants: nothing older
//! than `revalidate` is given out; what is told to the kernel expires there when it expires here
//! ([`Seen::valid_for`]), so that the two delays do not add up; a failure of the store is never remembered.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::hierarchy::{Child, Node, Tree};
use crate::mount::failure::{Answer, Failure, Reach};
use crate::store::{Info, ObjectVersion, Store};

/// What is told of a generated file without opening it.
#[derive(Clone, Copy, Debug)]
pub struct GeneratedFile {
    /// Owner, mode and time, from the documents that it is made of.
    pub info: Info,
    /// Its length.
    pub size_bytes: u64,
}

/// One path as it stood in the store.
#[derive(Debug)]
pub struct Seen {
    /// The node; `None` where there is none.
    pub node: Option<Node>,
    /// The version of its documents, taken before they were read.
    pub version: Option<ObjectVersion>,
    /// When the store was asked.
    pub read_at: Instant,
    /// Its sidecar, made when first asked for.
    pub sidecar: OnceLock<GeneratedFile>,
    /// The same below `__formats__/json/`, where the way to the data is another.
    pub mirrored_sidecar: OnceLock<GeneratedFile>,
    /// The documents were old enough when read that any later change shows in their version.
    is_settled: bool,
}

/// What was written more recently may be written again without a new time stamp.
const SETTLING: Duration = Duration::from_secs(2);

impl Seen {
    /// How long this may still be believed.
    pub fn valid_for(&self, revalidate: Duration) -> Duration {
        revalidate.saturating_sub(self.read_at.elapsed())
    }

    /// The same, seen again.
    fn again(&self, read_at: Instant) -> Self {
        Seen {
            node: self.node.clone(),
            version: self.version,
            read_at,
            sidecar: self.sidecar.clone(),
            mirrored_sidecar: self.mirrored_sidecar.clone(),
            is_settled: self.is_settled,
        }
    }
}

fn is_settled(version: Option<ObjectVersion>) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i128;
    version.is_none_or(|version| (now - version.mtime_ns).unsigned_abs() > SETTLING.as_nanos())
}

/// The most paths kept before the expired ones are thrown out.
const SWEEP_AT: usize = 4096;
/// From so many paths on, those without a node are thrown out too: anybody can ask for names that are not there.
const NEGATIVE_LIMIT: usize = 65_536;

/// Nodes by path.
pub struct NodeCache {
    tree: Tree,
    revalidate: Duration,
    known: Mutex<Known>,
}

struct Known {
    by_path: HashMap<Arc<str>, Arc<Seen>>,
    sweep_at: usize,
}

impl NodeCache {
    /// Over a store's tree.
    pub fn new(tree: Tree, revalidate: Duration) -> Self {
        let known = Known { by_path: HashMap::new(), sweep_at: SWEEP_AT };
        NodeCache { tree, revalidate, known: Mutex::new(known) }
    }

    /// The store behind it.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.tree.store()
    }

    /// For how long what is given out now holds.
    pub fn revalidate(&self) -> Duration {
        self.revalidate
    }

    /// The node at a path, at most `revalidate` old.
    pub fn get(&self, path: &str, reach: Reach) -> Answer<Arc<Seen>> {
        let known = self.known(path);
        match known {
            Some(seen) if !seen.valid_for(self.revalidate).is_zero() => Ok(seen),
            _ if reach == Reach::Memory => Err(Failure::NeedsStore),
            known => self.look(path, known),
        }
    }

    /// The node at a path as it stands in the store at this moment, for open(2).
    pub fn current(&self, path: &str) -> Answer<Arc<Seen>> {
        self.look(path, self.known(path))
    }

    /// What was seen last, however long ago.
    pub fn known(&self, path: &str) -> Option<Arc<Seen>> {
        self.known.lock().by_path.get(path).cloned()
    }

    /// The version of the documents behind a path now.
    pub fn version(&self, path: &str) -> Answer<Option<ObjectVersion>> {
        Ok(self.tree.version(path)?)
    }

    /// The names below a group, as the store lists them now.
    pub fn children(&self, path: &str) -> Answer<Vec<Child>> {
        Ok(self.tree.children(path)?)
    }

    /// Forgets everything: the next look reads the store.
    pub fn expire(&self) {
        self.known.lock().by_path.clear();
    }

    /// Forgets one path: the next look at it reads the store.
    pub fn forget(&self, path: &str) {
        self.known.lock().by_path.remove(path);
    }

    /// Reads a node, unless it is the one that is known.
    fn look(&self, path: &str, known: Option<Arc<Seen>>) -> Answer<Arc<Seen>> {
        let read_at = Instant::now();
        let version = self.tree.version(path)?;
        let seen = match known {
            Some(known) if known.version == version && known.is_settled => known.again(read_at),
            _ => {
                let is_settled = is_settled(version);
                let node = self.tree.node(path)?;
                let (sidecar, mirrored_sidecar) = (OnceLock::new(), OnceLock::new());
                Seen { node, version, read_at, sidecar, mirrored_sidecar, is_settled }
            }
        };
        let seen = Arc::new(seen);
        let mut known = self.known.lock();
        if known.by_path.len() >= known.sweep_at {
            let revalidate = self.revalidate;
            let keeps_negative = known.by_path.len() < NEGATIVE_LIMIT;
            known.by_path.retain(|_, seen| {
                (keeps_negative || seen.node.is_some()) && !seen.valid_for(revalidate).is_zero()
            });
            known.sweep_at = SWEEP_AT.max(2 * known.by_path.len());
        }
        known.by_path.insert(path.into(), seen.clone());
        Ok(seen)
    }
}
