//! `zarrfs overlay commit DIR`.
//!
//! Chunks go before documents, and the documents of nodes before those of the groups above them. Removed nodes go last, when no
//! consolidated copy names them any more, unless a new node takes their place. A node that another program has locked is left
//! for the next time.

use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use parking_lot::Mutex;
use zarrfs::error::Result;
use zarrfs::hierarchy::{Tree, author};
use zarrfs::store::Store;
use zarrfs::store::overlay::{Access, Change, Commit, InBase, OverlayStore, Removal};

use super::nodes::{self, NodeChanges};
use super::{OverlayArguments, count};
use crate::cli::exit::{Exit, Outcome};
use crate::cli::output;

/// How many changes are written before they are made durable and leave the overlay.
const BATCH_CHANGES: usize = 1000;
/// Threads that write: to a folder, and to a service.
const THREADS: usize = 8;
const REMOTE_THREADS: usize = 32;

/// Write what the overlay changes into the store
///
/// A chunk, document or removed node that has changed in the store since is left there: its key is listed, the change stays in the
/// overlay, and the exit code is 1. What was committed leaves the overlay. The command can be repeated after a crash.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    overlay: OverlayArguments,
}

/// What became of the changes.
#[derive(Default)]
struct Tally {
    committed: u64,
    kept: u64,
}

impl Arguments {
    /// Commits.
    pub fn run(self) -> Outcome {
        let store = self.overlay.open(Access::Write)?;
        store.base_writer()?;
        let nodes = nodes::by_node(&store, &Tree::for_one_look(store.clone()))?;
        let mut tally = Tally::default();
        let is_at = |path: &str, above: &str| {
            path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let removals: Vec<&Removal> = nodes.values().filter_map(|node| node.removal.as_ref()).collect();
        let is_remade = |removal: &Removal| {
            nodes.iter().any(|(path, node)| is_at(path, &removal.path) && node.all().next().is_some())
        };
        let (first, last): (Vec<&Removal>, Vec<&Removal>) =
            removals.into_iter().partition(|removal| is_remade(removal));
        let mut in_the_way = Vec::new();
        for removal in first {
            if !commit_removal(&store, removal, &mut tally)? {
                in_the_way.push(&removal.path);
            }
        }
        let is_kept = |path: &str| in_the_way.iter().any(|above| is_at(path, above));
        for (path, node) in &nodes {
            if is_kept(path) {
                tally.kept += node.all().count() as u64;
                continue;
            }
            if !nodes::has_same_form(&store, path)? {
                tally.kept += node.objects.len() as u64;
                say(
                    path,
                    "the array in the store has another form than when it was written",
                    node.objects.len(),
                )?;
                continue;
            }
            let kept = tally.kept;
            commit_all(&store, path, &node.objects, Lock::Folder, &mut tally)?;
            if tally.kept == kept {
                store.forget_documents(path)?;
            }
        }
        // From the deepest on, so that groups come after their members.
        let mut of_documents: Vec<(&String, &NodeChanges)> =
            nodes.iter().filter(|(path, _)| !is_kept(path)).collect();
        of_documents.sort_by_key(|(path, _)| {
            std::cmp::Reverse(path.matches('/').count() + usize::from(!path.is_empty()))
        });
        for (path, node) in of_documents {
            for document in node.documents.chunks(1) {
                commit_all(&store, path, document, Lock::Documents, &mut tally)?;
            }
        }
        for removal in last {
            commit_removal(&store, removal, &mut tally)?;
        }
        let Tally { committed, kept } = tally;
        output::note(format_args!(
            "{} committed to {}, {kept} kept",
            count(committed, "change"),
            store.describe()
        ));
        if kept > 0 { Err(Exit::Reported) } else { Ok(()) }
    }
}

/// Removes a node, with all below it, from the base; returns whether it is gone.
fn commit_removal(store: &OverlayStore, removal: &Removal, tally: &mut Tally) -> Outcome<bool> {
    let (path, base) = (removal.path.as_str(), store.base().as_ref());
    let writer = store.base_writer()?;
    match store.find_removed(removal)? {
        InBase::Gone => {}
        InBase::Changed => {
            tally.kept += 1;
            say(path, "was removed, and has changed in the store since", 1)?;
            return Ok(false);
        }
        InBase::Same => {
            let Some(_lock) = writer.lock(path)? else {
                tally.kept += 1;
                say(path, "was removed, and another program has it open for writing: commit it later", 1)?;
                return Ok(false);
            };
            store.begin_removal(removal)?;
            author::remove_without_copies(base, path)?;
        }
    }
    store.forget_removal(removal)?;
    tally.committed += 1;
    Ok(true)
}

/// What excludes other writers of the base, where it has locks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lock {
    /// Of chunks: the folder of their array.
    Folder,
    /// Of documents: these themselves.
    Documents,
}

/// Commits changes of one node.
fn commit_all(
    store: &OverlayStore,
    path: &str,
    changes: &[Change],
    lock: Lock,
    tally: &mut Tally,
) -> Outcome {
    if changes.is_empty() {
        return Ok(());
    }
    let within = existing_folder(store.base().as_ref(), path)?;
    let writer = store.base_writer()?;
    let mut locks = Vec::new();
    match lock {
        Lock::Folder => locks.push(writer.lock(&within)?),
        Lock::Documents => {
            for change in changes {
                if store.base().head_object(&change.key)?.is_some() {
                    locks.push(writer.lock(&change.key)?);
                }
            }
        }
    }
    if locks.iter().any(Option::is_none) {
        tally.kept += changes.len() as u64;
        return say(path, "another program has it open for writing: commit it later", changes.len());
    }
    for batch in changes.chunks(BATCH_CHANGES) {
        let outcomes = commit_batch(store, batch, &within);
        let mut done = Vec::new();
        let mut first_error = None;
        for (change, outcome) in batch.iter().zip(outcomes) {
            match outcome {
                Ok(Commit::Done | Commit::Already) => done.push(change.clone()),
                Ok(Commit::Conflict) => {
                    tally.kept += 1;
                    say(&change.key, "changed in the store since the overlay was written", 1)?;
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        let keys: Vec<String> = done.iter().map(|change| change.key.clone()).collect();
        writer.sync(&keys, &within)?;
        store.forget(&done)?;
        tally.committed += done.len() as u64;
        if let Some(error) = first_error {
            return Err(error.into());
        }
    }
    Ok(())
}

/// The outcomes of changes, in their order.
fn commit_batch(store: &OverlayStore, batch: &[Change], within: &str) -> Vec<Result<Commit>> {
    let threads = if store.is_remote() { REMOTE_THREADS } else { THREADS };
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<(usize, Result<Commit>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..threads.min(batch.len()) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(change) = batch.get(place) else { return };
                    let outcome = store.commit(change, within);
                    outcomes.lock().push((place, outcome));
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner();
    outcomes.sort_by_key(|(place, _)| *place);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// The nearest folder of a path that the base has.
fn existing_folder(base: &dyn Store, path: &str) -> Result<String> {
    let mut folder = path;
    while !folder.is_empty() && !base.is_remote() && base.head(folder)?.is_none() {
        folder = folder.rsplit_once('/').map_or("", |(above, _)| above);
    }
    Ok(folder.to_owned())
}

fn say(key: &str, reason: &str, changes: usize) -> Outcome {
    let kept = if changes == 1 { String::new() } else { format!(" ({})", count(changes as u64, "change")) };
    output::write(format!("{key}: {reason}{kept}\n").as_bytes()).map(|_| ())
}
