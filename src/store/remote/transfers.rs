//! All transfers of a store: the runtime that carries them out, and the limit of simultaneous requests.
//!
//! Uses `origin` and `tokio`. The runtime and the threads of `tokio` stay in this file: callers wait on threads of their own.
//!
//! Invariant: at most `max_connections` requests are in flight.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt, join_all};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::origin::Origin;
use super::replies::failure::{Reply, RequestFailure};
use super::transfer::{Fetched, Request};

/// The number of threads that drive the requests. Decoding has threads of its own.
const RUNTIME_THREADS: usize = 2;

/// The message for a panic of the library.
const PANICKED: &str = "the request cannot be made: check the credentials, the variables of the service in the environment, and the URL; \
                        if they are right, this is a fault of the program";

/// All transfers of one store.
pub(super) struct Transfers {
    /// Present until the store is dropped.
    runtime: Option<Runtime>,
    origin: Arc<Origin>,
    permits: Arc<Semaphore>,
    max_connections: usize,
    /// How long a body may stall.
    stall_time: Duration,
}

impl Transfers {
    /// Creates the transfers from `origin`. Starts threads.
    pub(super) fn new(origin: Origin, max_connections: usize, stall_time: Duration) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(RUNTIME_THREADS)
            .thread_name("zarrfs-transfer")
            .enable_all()
            .build()?;
        let permits = Arc::new(Semaphore::new(max_connections));
        let origin = Arc::new(origin);
        Ok(Transfers { runtime: Some(runtime), origin, permits, max_connections, stall_time })
    }

    /// Returns the number of requests in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.max_connections.saturating_sub(self.permits.available_permits())
    }

    /// Whether no task runs, and no work of a task on the disk cache. Such work goes on when its task is cancelled.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let tasks = self.runtime.as_ref().map_or(0, |runtime| runtime.metrics().num_alive_tasks());
        tasks == 0 && self.in_flight() == 0 && self.origin.is_idle()
    }

    /// Returns the service, with its disk cache.
    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns how long a body may stall.
    pub(super) fn stall_time(&self) -> Duration {
        self.stall_time
    }

    /// Waits for requests, as many at once as there are connections, and returns their results in order.
    pub(super) fn wait_all<T>(
        &self,
        requests: impl Iterator<Item = impl Future<Output = T>>,
    ) -> Reply<Vec<T>> {
        let Some(runtime) = &self.runtime else {
            return Err(RequestFailure::Other(io::ErrorKind::Other, "the store is closed".to_owned()));
        };
        let permitted = requests.map(|request| async {
            let _permit = self.permits.acquire().await;
            request.await
        });
        // The library panics if it cannot build a request, for example with credentials that it just received.
        let all = AssertUnwindSafe(join_all(permitted)).catch_unwind();
        runtime.block_on(all).map_err(|_| RequestFailure::Other(io::ErrorKind::Other, PANICKED.to_owned()))
    }

    /// Waits for one request.
    pub(super) fn wait<T>(&self, request: impl Future<Output = T>) -> Reply<T> {
        let closed = || RequestFailure::Other(io::ErrorKind::Other, "the store is closed".to_owned());
        self.wait_all(std::iter::once(request))?.pop().ok_or_else(closed)
    }

    /// Fetches bytes of an object, and waits for them.
    pub(super) fn fetch(&self, request: &Request<'_>) -> Reply<Fetched> {
        self.wait(self.origin.fetch(request, self.stall_time))?
    }

    /// Starts a request for which no reader waits yet, as soon as there is a connection for it.
    pub(super) fn begin<F>(&self, request: impl FnOnce(Arc<Origin>) -> F) -> Option<AbortHandle>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (runtime, permits) = (self.runtime.as_ref()?, Arc::clone(&self.permits));
        let request = request(Arc::clone(&self.origin));
        let task = runtime.spawn(async move {
            let _permit = permits.acquire().await;
            request.await;
        });
        Some(task.abort_handle())
    }
}

impl Drop for Transfers {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
