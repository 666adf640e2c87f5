//! Growth next to another program that makes the same array longer.

use std::sync::atomic::{AtomicBool, Ordering};

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

#[test]
fn a_write_at_an_offset_goes_into_the_rows_that_another_program_appended_meanwhile() {
    let (_store, fs) = overtaken();
    let handle = fs.opens().open(find(&fs).inode, libc::O_RDWR, &Cancellation::never()).unwrap().handle;
    assert_eq!(fs.write(handle, 24, &[1; 6], false).unwrap(), 6);
    assert_eq!(find(&fs).size_bytes, 48);
    assert_eq!(read(&fs, handle), [bytes_of(0..12), vec![1; 6], bytes_of(15..24)].concat());
    fs.opens().release(handle);
}
