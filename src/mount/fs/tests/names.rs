//! Changes of names between the steps of another request, and those of users that may not write the node.

use std::os::unix::fs::{PermissionsExt, chown};
use std::sync::OnceLock;

use super::hooked_store::{HookedStore, hooked};
use super::*;
use crate::mount::fs::attributes::SetAttr;
use crate::mount::fs::names::{Caller, FolderName};
use crate::mount::journal::record::IS_RESENT;
use crate::store::{DirectoryStore, Store};

const ROOT_USER: Caller = Caller { uid: 0, gid: 0, thread: 0, request: 0 };

fn mounted(store: Arc<dyn Store>) -> FileSystem {
    let mut options = Options::new("/data/sample.zarr", "/mnt");
    options.scratch_limit_bytes = 64 << 20;
    (options.threads, options.revalidate_seconds) = (1, 0.0);
    (options.writable, options.create, options.delete) = (true, true, true);
    FileSystem::new(Arc::new(options), store)
}

fn inode(fs: &FileSystem, name: &str) -> u64 {
    fs.lookup(ROOT, name, Blocking::Yes).unwrap().attributes.inode
}

fn open(fs: &FileSystem, name: &str, flags: i32) -> u64 {
    fs.opens().open(inode(fs, name), flags, &Cancellation::never()).unwrap().handle
}

fn create(fs: &FileSystem, name: &str, caller: Caller) -> u64 {
    fs.opens().create(ROOT, name, 0o644, libc::O_WRONLY | libc::O_CREAT, caller).unwrap().1.handle
}

fn read(fs: &FileSystem, name: &str) -> Vec<u8> {
    let handle = open(fs, name, libc::O_RDONLY);
    let mut buffer = ReplyBuffer::default();
    let data = fs.read(handle, 0, 1 << 20, &mut buffer, &Cancellation::never()).unwrap().to_vec();
    fs.opens().release(handle);
    data
}

fn rename(fs: &FileSystem, from: &str, to: &str, caller: Caller) -> Result<(), i32> {
    let name = |name| FolderName { folder: ROOT, name };
    fs.names().rename(name(from), name(to), false, caller).map(drop).map_err(|failure| failure.errno())
}

fn attributes_of_t(store: &dyn Store) -> Value {
    let document = store.get("t/zarr.json", 1 << 20).unwrap().unwrap();
    serde_json::from_slice::<Value>(&document).unwrap()["attributes"].clone()
}

/// A store in memory with array `t` of eight bytes.
fn bytes_in_memory(before_put: impl Fn(&MemoryStore, &str) + Send + Sync + 'static) -> Arc<HookedStore> {
    let store = hooked(before_put);
    store.objects.put("zarr.json", GROUP.as_bytes()).unwrap();
    store.objects.put("t/zarr.json", bytes_document(json!({})).as_bytes()).unwrap();
    store
}

fn bytes_document(attributes: Value) -> String {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [8], "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}], "attributes": attributes,
    })
    .to_string()
}

#[test]
fn no_write_to_a_scratch_file_is_lost_while_it_replaces_an_array() {
    static OPEN: OnceLock<(Arc<FileSystem>, u64)> = OnceLock::new();
    static WRITTEN: OnceLock<bool> = OnceLock::new();
    let store = bytes_in_memory(|_, key| {
        if let (true, Some((fs, handle))) = (key.starts_with("t/c"), OPEN.get()) {
            let written = fs.try_begin_write(*handle, 0, b"later", false);
            WRITTEN.get_or_init(|| {
                written.is_ok_and(|begun| begun.is_some_and(|begun| begun.finish().length > 0))
            });
        }
    });
    let fs = Arc::new(mounted(store.clone()));
    let handle = create(&fs, "new", ROOT_USER);
    fs.write(handle, 0, b"elements", false).unwrap();
    assert!(OPEN.set((fs.clone(), handle)).is_ok());
    rename(&fs, "new", "t", ROOT_USER).unwrap();
    assert_eq!(WRITTEN.get(), Some(&false), "a write was accepted whose bytes are nowhere");
    assert_eq!(fs.write(handle, 0, b"x", false).unwrap_err().errno(), libc::ESTALE);
    assert_eq!(read(&fs, "t"), b"elements");
    fs.opens().release(handle);
}

#[test]
fn a_scratch_file_that_is_gone_takes_nothing_of_the_limit() {
    let fs = mounted(bytes_in_memory(|_, _| ()));
    let created = fs.opens().create(ROOT, "new", 0o644, libc::O_WRONLY | libc::O_CREAT, ROOT_USER).unwrap();
    let (inode, handle) = (created.0.attributes.inode, created.1.handle);
    fs.write(handle, 0, b"elements", false).unwrap();
    rename(&fs, "new", "t", ROOT_USER).unwrap();
    let longer = SetAttr { size_bytes: Some(64 << 20), by_handle: true, ..SetAttr::default() };
    assert_eq!(fs.set_attributes(inode, longer).map(drop).unwrap_err().errno(), libc::ESTALE);
    let other = create(&fs, "other", ROOT_USER);
    fs.write(other, 0, b"other", false).unwrap();
    fs.opens().release(handle);
    fs.opens().release(other);
}

#[test]
fn an_edit_that_began_before_its_array_was_removed_changes_no_other_array() {
    let store = bytes_in_memory(|_, _| ());
    let fs = mounted(store.clone());
    let handle = open(&fs, "t.json", libc::O_RDWR);
    let emptied = SetAttr { size_bytes: Some(0), by_handle: true, ..SetAttr::default() };
    fs.set_attributes(inode(&fs, "t.json"), emptied).unwrap();
    fs.write(handle, 0, br#"{"attributes":{"old":1}}"#, false).unwrap();
    fs.names().unlink(ROOT, "t", ROOT_USER).unwrap();
    store.objects.put("t/zarr.json", bytes_document(json!({"new": 2})).as_bytes()).unwrap();
    assert_eq!(fs.flush(handle).unwrap_err().errno(), libc::ESTALE);
    fs.opens().release(handle);
    assert_eq!(attributes_of_t(&*store), json!({"new": 2}));
}

#[test]
fn the_reason_of_a_refused_edit_goes_with_its_array() {
    let store = bytes_in_memory(|_, _| ());
    let fs = mounted(store.clone());
    let reason = |fs: &FileSystem| fs.xattr(inode(fs, "t.json"), "user.zarrfs.error", Blocking::Yes).is_ok();
    let handle = open(&fs, "t.json", libc::O_RDWR);
    fs.write(handle, 0, b"no JSON", false).unwrap();
    assert!(fs.flush(handle).is_err() && reason(&fs));
    fs.opens().release(handle);
    fs.names().unlink(ROOT, "t", ROOT_USER).unwrap();
    store.objects.put("t/zarr.json", bytes_document(json!({})).as_bytes()).unwrap();
    assert!(!reason(&fs), "it is another array");
}

/// The bug: a daemon was killed between the document of an array and its chunks, which then looked like a group. The next daemon replied
/// EISDIR, and the chunks stayed.
#[test]
fn a_removal_that_a_dead_daemon_has_begun_is_finished() {
    for name in ["t", "t.json"] {
        let store = bytes_in_memory(|_, _| ());
        let fs = mounted(store.clone());
        fs.names().intents.restore([4].into_iter());
        assert!(store.objects.delete("t/zarr.json"));
        for key in ["t/c/0/0", "t/c/1/0"] {
            store.objects.put(key, vec![1]).unwrap();
        }
        let caller = |request| Caller { request, ..ROOT_USER };
        let unlink =
            |request| fs.names().unlink(ROOT, name, caller(request)).map_err(|failure| failure.errno());
        assert!(unlink(6).is_err() && unlink(IS_RESENT | 6).is_err());
        store.objects.put("t/x/zarr.json", bytes_document(json!({})).as_bytes()).unwrap();
        assert_eq!(unlink(IS_RESENT | 4), Ok(()));
        assert!(store.objects.get("t/c/0/0", 9).unwrap().is_some(), "somebody has made a node there");
        assert!(store.objects.delete("t/x/zarr.json"));
        assert_eq!(unlink(IS_RESENT | 4), Ok(()));
        assert_eq!(store.objects.list("t").unwrap(), []);
    }
}

/// The bug: a daemon was killed while it emptied the hidden folder of an array that it had removed. The next one found nothing to remove,
/// and the folder stayed until somebody listed the group.
#[test]
fn what_a_dead_daemon_has_left_goes_with_the_first_change_of_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let hidden = folder.path().join(".zarrfs-4194304-7.tmp");
    std::fs::write(folder.path().join("zarr.json"), GROUP).unwrap();
    std::fs::create_dir_all(hidden.join("c/0")).unwrap();
    std::fs::write(hidden.join("c/0/0"), [1]).unwrap();
    let fs = mounted(Arc::new(DirectoryStore::open(folder.path(), false).unwrap()));
    fs.names().intents.restore([4].into_iter());
    assert!(hidden.exists());
    fs.names().unlink(ROOT, "t", Caller { request: IS_RESENT | 4, ..ROOT_USER }).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while hidden.exists() && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(!hidden.exists());
}

#[test]
fn a_scratch_file_stays_when_the_array_goes_whose_sidecar_it_hides() {
    let store = bytes_in_memory(|_, _| ());
    let fs = mounted(store);
    let listing = fs.opens().open_folder(ROOT).unwrap();
    rename(&fs, "t.json", "t.json~", ROOT_USER).unwrap();
    let handle = create(&fs, "t.json", ROOT_USER);
    fs.write(handle, 0, b"half of the text", false).unwrap();
    fs.names().unlink(ROOT, "t", ROOT_USER).unwrap();
    assert_eq!(read(&fs, "t.json"), b"half of the text");
    fs.opens().release(listing);
    fs.opens().release(handle);
}

#[test]
fn a_rename_makes_no_name_that_create_refuses() {
    let fs = mounted(bytes_in_memory(|_, _| ()));
    let handle = create(&fs, ".x.nc.partial", ROOT_USER);
    fs.write(handle, 0, b"CDF", false).unwrap();
    fs.opens().release(handle);
    for name in ["x.nc", "zarr.json", ".zattrs", "x.zarr"] {
        assert_eq!(rename(&fs, ".x.nc.partial", name, ROOT_USER), Err(libc::EPERM), "{name}");
        assert_eq!(rename(&fs, "t.json", name, ROOT_USER), Err(libc::EPERM), "t.json to {name}");
    }
    assert_eq!(read(&fs, ".x.nc.partial"), b"CDF");
}

#[test]
fn nobody_replaces_an_array_that_the_store_lets_others_only_read() {
    if crate::sys::effective_ids().0 != 0 {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("t")).unwrap();
    std::fs::write(path("zarr.json"), GROUP).unwrap();
    std::fs::write(path("t/zarr.json"), bytes_document(json!({}))).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    for name in ["t", "t/zarr.json"] {
        chown(path(name), Some(1001), Some(1001)).unwrap();
    }
    let store = Arc::new(DirectoryStore::open(folder.path(), false).unwrap());
    let fs = mounted(store.clone());
    let other = Caller { uid: 1002, gid: 1002, thread: 0, request: 0 };
    let owner = Caller { uid: 1001, gid: 1001, thread: 0, request: 0 };
    let put = |name: &str, content: &[u8], caller: Caller| {
        let handle = create(&fs, name, caller);
        fs.write(handle, 0, content, false).unwrap();
        let closed = fs.flush(handle);
        fs.opens().release(handle);
        closed.map_err(|failure| failure.errno())
    };
    let text = br#"{"attributes":{"by":"another user"}}"#;
    put("new", b"elements", other).unwrap();
    assert_eq!(rename(&fs, "new", "t", other), Err(libc::EACCES));
    put("edit", text, other).unwrap();
    assert_eq!(rename(&fs, "edit", "t.json", other), Err(libc::EACCES));
    rename(&fs, "t.json", "t.json~", owner).unwrap();
    assert_eq!(put("t.json", text, other), Err(libc::EACCES));
    fs.names().unlink(ROOT, "t.json", other).unwrap();
    assert_eq!(read(&fs, "t"), [0; 8]);
    assert_eq!(attributes_of_t(&*store), json!({}));
    // The owner may.
    rename(&fs, "new", "t", owner).unwrap();
    assert_eq!(read(&fs, "t"), b"elements");
}

#[test]
fn what_a_long_npy_file_skips_is_zero_in_an_array_that_is_filled_with_nan() {
    let store = Arc::new(MemoryStore::new());
    store.put(".zgroup", br#"{"zarr_format":2}"#.to_vec()).unwrap();
    let fs = mounted(store);
    const ROWS: u64 = (20 << 20) / 8;
    let text = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({ROWS},), }}\n");
    let mut start = b"\x93NUMPY\x01\x00".to_vec();
    start.extend((text.len() as u16).to_le_bytes());
    start.extend(text.as_bytes());
    let header_bytes = start.len() as u64;
    let handle = create(&fs, "x.npy", ROOT_USER);
    let mut offset = 0;
    let mut append = |data: &[u8]| {
        fs.write(handle, offset, data, false).unwrap();
        offset += data.len() as u64;
    };
    append(&start);
    (0..17).for_each(|_| append(&vec![1; 1 << 20]));
    let end = header_bytes + 8 * ROWS;
    fs.write(handle, end - 8, &1.5f64.to_le_bytes(), false).unwrap();
    fs.flush(handle).unwrap();
    fs.opens().release(handle);
    let handle = open(&fs, "x", libc::O_RDONLY);
    let mut buffer = ReplyBuffer::default();
    let gap = fs.read(handle, 18 << 20, 1 << 20, &mut buffer, &Cancellation::never()).unwrap();
    assert!(gap.iter().all(|&byte| byte == 0), "{:?}", &gap[..16]);
    fs.opens().release(handle);
}

#[test]
fn a_copy_whose_source_is_damaged_keeps_what_it_has_copied() {
    const HALF: usize = 1 << 20;
    let store = Arc::new(MemoryStore::new());
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [2 * HALF], "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [HALF]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}, {"name": "crc32c"}],
    });
    store.put("zarr.json", GROUP.as_bytes()).unwrap();
    for name in ["a", "b"] {
        store.put(&format!("{name}/zarr.json"), document.to_string().as_bytes()).unwrap();
    }
    store.put("a/c/1", *b"damaged").unwrap();
    let fs = mounted(store);
    let (from, to) = (open(&fs, "a", libc::O_RDONLY), open(&fs, "b", libc::O_RDWR));
    let copied = fs.copy(from, 0, to, 0, 2 * HALF as u64, &Cancellation::never()).unwrap();
    assert_eq!(copied.length, HALF as u64);
    assert!(fs.copy(from, HALF as u64, to, HALF as u64, HALF as u64, &Cancellation::never()).is_err());
    fs.opens().release(from);
    fs.opens().release(to);
}
