//! What writers that were killed have left in the folders of groups: it is removed once in the life of a writable mount, after a group was listed
//! first. A listing does not wait for that, since there may be much. (An array's folder is cleaned when the array is opened for writing.)
//!
//! Uses `hierarchy` and `store`.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::hierarchy::attributes;
use crate::store::Store;

/// Which groups were looked at, and which are next.
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
    /// Has what is left in a group's folder removed soon, by a thread of its own, if that was not done before.
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
                if let Some(writer) = store.writer() {
                    attributes::remove_leftovers(writer, &group);
                }
            }
        });
        // Where no thread can be started, leftovers stay: nobody sees them.
        state.is_running = started.is_ok();
    }
}

/// The group that is next. The thread ends where there is none.
fn next(state: &Mutex<LeftoverState>) -> Option<Arc<str>> {
    let mut state = state.lock();
    let next = state.waiting.pop();
    state.is_running = next.is_some();
    next
}
