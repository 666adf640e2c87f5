//! A look at the root of a mount that its callers wait for, but not long. Uses `node.rs`.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::node::CachedNode;

/// How long callers wait for the store.
const PATIENCE: Duration = Duration::from_secs(1);

/// The look that is under way, and what was found before.
#[derive(Default)]
pub(super) struct RootLook {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// When the look began that is under way.
    began_at: Option<Instant>,
    /// The last node that could be read.
    readable: Option<Arc<CachedNode>>,
}

/// What a caller has waited for.
pub(super) enum Looked {
    /// The look has ended. It began at this time.
    Since(Instant),
    /// The store has not responded for a while. This could be read last.
    NotYet(Arc<CachedNode>),
}

/// Ends the look that is under way when it is dropped, after a panic too.
struct LookEnd(Arc<Shared>);

impl Drop for LookEnd {
    fn drop(&mut self) {
        self.0.state.lock().began_at = None;
        self.0.ended.notify_all();
    }
}

impl RootLook {
    /// Calls `look` on a thread of its own, unless a look is under way, and waits for it. The root was `known` before.
    pub fn within_patience(
        &self,
        known: &Arc<CachedNode>,
        look: impl FnOnce() + Send + 'static,
    ) -> io::Result<Looked> {
        let mut state = self.shared.state.lock();
        if !known.is_failure {
            state.readable = Some(known.clone());
        }
        let began_at = match state.began_at {
            Some(began_at) => began_at,
            None => {
                let (shared, began_at) = (self.shared.clone(), Instant::now());
                std::thread::Builder::new().name("zarrfs-root".to_owned()).spawn(move || {
                    let _end = LookEnd(shared);
                    look();
                })?;
                *state.began_at.insert(began_at)
            }
        };
        while state.began_at == Some(began_at) {
            if self.shared.ended.wait_until(&mut state, began_at + PATIENCE).timed_out() {
                return Ok(Looked::NotYet(state.readable.as_ref().unwrap_or(known).clone()));
            }
        }
        Ok(Looked::Since(began_at))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_look_that_panics_is_not_the_last() {
        let (root, known) = (RootLook::default(), Arc::new(CachedNode::absent(Instant::now())));
        let is_over = |look: fn()| matches!(root.within_patience(&known, look).unwrap(), Looked::Since(_));
        assert!(is_over(|| panic!("as a library")) && is_over(|| {}));
    }
}
