//! Pages that the kernel must drop although the request that made them outdated has failed.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::error::Result;
use crate::mount::fs::attributes::SetAttr;
use crate::store::Store;
use crate::test_store::{Hook, Hooked, Operation, Request};

/// A disk that is full for as long as a test wants it.
#[derive(Default)]
struct Full(AtomicBool);

impl Hook for Full {
    fn before(&self, request: &Request<'_>) -> Result<()> {
        if request.operation == Operation::Put && self.0.load(Ordering::SeqCst) {
            let full = std::io::Error::from_raw_os_error(libc::ENOSPC);
            return Err(Error::store(request.key(), "write", full));
        }
        Ok(())
    }
}

/// The bug: a write made the gap before it zero, and then failed. The next open let the kernel keep the old pages of the gap.
#[test]
fn a_gap_that_is_zero_shows_although_the_write_after_it_failed() {
    let objects = Arc::new(MemoryStore::new());
    objects.put("zarr.json", GROUP.as_bytes()).unwrap();
    objects.put("t/zarr.json", array(&[4, 3], 9).to_string().as_bytes()).unwrap();
    let store = Hooked::new(objects as Arc<dyn Store>, Full::default());
    let mut options = Options::new("/data/sample.zarr", "/mnt");
    (options.writable, options.dirty_limit_bytes, options.writeback_delay) = (true, 1, None);
    let fs = FileSystem::new(Arc::new(options), store.clone());
    let root = fs.attributes(ROOT, Blocking::Yes).unwrap().attributes.inode;
    let inode = fs.lookup(root, "t", Blocking::Yes).unwrap().attributes.inode;
    let never = Cancellation::never();
    let open = |flags| fs.opens().open(inode, flags, &never).unwrap();
    let writer = open(libc::O_RDWR);
    fs.set_attributes(inode, SetAttr { size_bytes: Some(0), ..SetAttr::default() }).unwrap();
    assert!(open(libc::O_RDONLY).keeps_cache, "nothing has changed");
    store.0.store(true, Ordering::SeqCst);
    // The gap fills the dirty limit. The rest would first have to store it.
    let failure = fs.write(writer.handle, 12, &[1; 12], false).unwrap_err();
    assert_eq!(failure.errno(), libc::ENOSPC);
    let mut buffer = ReplyBuffer::default();
    let gap = fs.read(writer.handle, 0, 12, &mut buffer, &never).unwrap();
    assert_eq!(gap[..], [0; 12]);
    assert!(!open(libc::O_RDONLY).keeps_cache);
}
