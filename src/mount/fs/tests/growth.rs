//! Growth next to another program that makes the same array longer.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use super::hooked_store::{HookedStore, hooked};
use super::*;
use crate::store::Store;

/// Array `t` of four rows, and a program that appends four of its own just before this one's growth is stored.
fn overtaken() -> (Arc<HookedStore>, FileSystem) {
    let has_grown = AtomicBool::new(false);
    let store = hooked(move |objects, key| {
        if key == "t/zarr.json" && !has_grown.swap(true, Ordering::SeqCst) {
            objects.put(key, array(&[8, 3], 9).to_string().as_bytes()).unwrap();
            objects.put("t/c/2/0", chunk(&[12, 13, 14, 15, 16, 17])).unwrap();
            objects.put("t/c/3/0", chunk(&[18, 19, 20, 21, 22, 23])).unwrap();
        }
    });
    store.objects.put("zarr.json", GROUP.as_bytes()).unwrap();
    store.objects.put("t/zarr.json", array(&[4, 3], 9).to_string().as_bytes()).unwrap();
    store.objects.put("t/c/0/0", chunk(&[0, 1, 2, 3, 4, 5])).unwrap();
    store.objects.put("t/c/1/0", chunk(&[6, 7, 8, 9, 10, 11])).unwrap();
    let mut options = Options::new("/data/sample.zarr", "/mnt");
    (options.writable, options.create, options.revalidate_seconds) = (true, true, 0.0);
    let fs = FileSystem::new(Arc::new(options), store.clone());
    (store, fs)
}

fn find(fs: &FileSystem) -> Attributes {
    let root = fs.attributes(ROOT, Blocking::Yes).unwrap().attributes.inode;
    fs.lookup(root, "t", Blocking::Yes).unwrap().attributes
}

fn read(fs: &FileSystem, handle: u64) -> Vec<u8> {
    let mut buffer = ReplyBuffer::default();
    fs.read(handle, 0, 1 << 10, &mut buffer, &Cancellation::never()).unwrap().to_vec()
}

#[test]
fn an_append_never_lands_on_rows_that_another_program_appended_meanwhile() {
    let (store, fs) = overtaken();
    let open = |flags| fs.opens().open(find(&fs).inode, flags, &Cancellation::never()).unwrap().handle;
    let handle = open(libc::O_RDWR | libc::O_APPEND);
    let append = |offset| fs.write(handle, offset, &[1; 6], false).map_err(|failure| failure.errno());
    assert_eq!(append(24), Err(libc::ESTALE));
    assert_eq!(find(&fs).size_bytes, 48, "the other's rows are whole");
    assert_eq!(append(24), Err(libc::ESTALE), "as long as the kernel has the old size");
    assert_eq!(append(48), Ok(6));
    fs.opens().release(handle);
    let handle = open(libc::O_RDONLY);
    assert_eq!(read(&fs, handle), [bytes_of(0..24), vec![1; 6]].concat());
    fs.opens().release(handle);
    let document = store.objects.get("t/zarr.json", 1 << 16).unwrap().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&document).unwrap()["shape"], json!([9, 3]));
}

/// The bug: an array that became longer was replaced in the table only after the copies of its document. A flush in between went to the
/// shorter one, which stores nothing any more, and close(2) was ESTALE. The document that it then looked up did not show the change yet: at
/// a service, the copies come first.
#[test]
fn a_flush_waits_for_an_array_that_is_becoming_longer() {
    let folder = tempfile::tempdir().unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    std::fs::create_dir(folder.path().join("t")).unwrap();
    for (key, text) in [("zarr.json", GROUP.to_owned()), ("t/zarr.json", array(&[4, 3], 9).to_string())] {
        let mut file = std::fs::File::create(folder.path().join(key)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.set_modified(long_ago).unwrap();
    }
    std::fs::File::open(folder.path().join("t")).unwrap().set_modified(long_ago).unwrap();
    let mut options = Options::new("/data/sample.zarr", "/mnt");
    (options.writable, options.create) = (true, true);
    let store = crate::store::open(folder.path().to_str().unwrap(), true).unwrap();
    let fs = FileSystem::new(Arc::new(options), store);
    let handle = fs.opens().open(find(&fs).inode, libc::O_RDWR, &Cancellation::never()).unwrap().handle;
    let inode = fs.inodes.get_or_add(&Entity::array(None, "t".to_owned()));
    let opened = inode.array().unwrap();
    let arrays = fs.names().arrays.clone();
    let (inside, is_inside) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let (inode, opened) = (&inode, &opened);
        scope.spawn(move || {
            let update_copies = || {
                inside.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(100));
                Ok(())
            };
            let shared = inode.state().shared.as_ref().unwrap();
            let longer = opened.longer(48).unwrap();
            arrays.lengthen(shared, opened, longer, (|| Ok(()), update_copies), || {}).unwrap();
        });
        is_inside.recv().unwrap();
        let flush = |array: &Array| {
            let is_over = array.size_bytes() == 24;
            if is_over { Err(Error::Stale { key: "t/zarr.json".to_owned() }) } else { Ok(array.size_bytes()) }
        };
        let flushed = fs.opens().array_files.served().run_on_current(inode, opened, flush);
        assert_eq!(flushed.unwrap(), 48);
    });
    fs.opens().release(handle);
}

#[test]
fn a_write_at_an_offset_goes_into_the_rows_that_another_program_appended_meanwhile() {
    let (_store, fs) = overtaken();
    let handle = fs.opens().open(find(&fs).inode, libc::O_RDWR, &Cancellation::never()).unwrap().handle;
    assert_eq!(fs.write(handle, 24, &[1; 6], false).unwrap(), 6);
    assert_eq!(find(&fs).size_bytes, 48);
    assert_eq!(read(&fs, handle), [bytes_of(0..12), vec![1; 6], bytes_of(15..24)].concat());
    fs.opens().release(handle);
}
