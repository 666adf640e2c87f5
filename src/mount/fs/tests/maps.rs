//! Memory maps next to direct writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::{Condvar, Mutex};

use super::hooked_store::hooked;
use super::*;
use crate::store::Store;

/// Where puts wait while it is closed.
#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    changed: Condvar,
    has_waited: AtomicBool,
}

impl Gate {
    fn open(&self) {
        *self.is_closed.lock() = false;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut is_closed = self.is_closed.lock();
        while *is_closed {
            self.has_waited.store(true, Ordering::SeqCst);
            self.changed.wait(&mut is_closed);
        }
    }
}

#[test]
fn a_direct_write_that_waits_for_room_is_not_undone_by_a_page_of_a_map() {
    let gate = Arc::new(Gate::default());
    let passed = gate.clone();
    let store = hooked(move |_, _| passed.pass());
    store.objects.put("zarr.json", GROUP.as_bytes()).unwrap();
    store.objects.put("t/zarr.json", array(&[4, 3], 9).to_string().as_bytes()).unwrap();
    store.objects.put("t/c/1/0", chunk(&[6, 7, 8, 9, 10, 11])).unwrap();
    let mut options = Options::new("/data/sample.zarr", "/mnt");
    (options.writable, options.dirty_limit_bytes, options.writeback_delay) = (true, 1, None);
    let fs = FileSystem::new(Arc::new(options), store.clone());
    fs.cache_policy().allow_direct_writes();
    let root = fs.attributes(ROOT, Blocking::Yes).unwrap().attributes.inode;
    let inode = fs.lookup(root, "t", Blocking::Yes).unwrap().attributes.inode;
    let never = Cancellation::never();
    let direct = fs.opens().open(inode, libc::O_WRONLY, &never).unwrap();
    assert!(direct.is_direct);
    *gate.is_closed.lock() = true;
    let tail = 12..24;
    thread::scope(|scope| {
        // Fills the dirty limit, so that the next write waits for the store.
        assert_eq!(fs.write(direct.handle, 0, &[1; 12], false).unwrap(), 12);
        let write = scope.spawn(|| fs.write(direct.handle, tail.start + 2, &[5; 10], false).unwrap());
        while !gate.has_waited.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        let mapped = fs.opens().open(inode, libc::O_RDWR, &never).unwrap();
        let mut buffer = ReplyBuffer::default();
        drop(fs.record_page_read(mapped.handle, tail.start, 12));
        let mut page = fs.read(mapped.handle, tail.start, 12, &mut buffer, &never).unwrap().to_vec();
        page[..2].fill(3);
        gate.open();
        assert_eq!(write.join().unwrap(), 10);
        fs.write(mapped.handle, tail.start, &page, true).unwrap();
        fs.sync(direct.handle).unwrap();
        fs.opens().release(mapped.handle);
    });
    fs.opens().release(direct.handle);
    let stored = store.objects.get("t/c/1/0", 1 << 10).unwrap().unwrap();
    assert_eq!(stored[..12], [3, 3, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5]);
}
