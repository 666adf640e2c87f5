//! Leftovers: files that killed writers have left in the folders of groups.
//!
//! A writable mount removes them after the first listing of each group, or after the first change of a name in it. Neither waits for
//! that, since there may be many. (The folder of an array is cleaned when the array is opened for writing.) This file uses `hierarchy` and `store`.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::hierarchy::attributes;
use crate::store::{Store, store_at};

/// The groups that were cleaned, and those that wait for it.
#[derive(Default)]
pub struct Leftovers {
    state: Arc<Mutex<LeftoverState>>,
}

#[derive(Default)]
struct LeftoverState {
    seen: HashSet<Arc<str>>,
    waiting: Vec<Arc<str>>,
    is_running: bool,
}

impl Leftovers {
    /// Removes the leftovers of a group soon, on another thread, unless that was done before.
    pub fn remove_soon(&self, store: &Arc<dyn Store>, group: &str) {
        let mut state = self.state.lock();
        let group: Arc<str> = group.into();
        if !state.seen.insert(group.clone()) {
            return;
        }
        state.waiting.push(group);
        if state.is_running {
            return;
        }
        let (store, shared) = (store.clone(), self.state.clone());
        let started = std::thread::Builder::new().name("leftovers".to_owned()).spawn(move || {
            while let Some(group) = next(&shared) {
                if let Some(writer) = store_at(&store, &group).writer() {
                    attributes::remove_leftovers(writer, &group);
                }
            }
        });
        // If no thread can be started, leftovers stay. The mount does not show them.
        state.is_running = started.is_ok();
    }
}

/// Takes the next group. If there is none, the thread ends.
fn next(state: &Mutex<LeftoverState>) -> Option<Arc<str>> {
    let mut state = state.lock();
    let next = state.waiting.pop();
    state.is_running = next.is_some();
    next
}
