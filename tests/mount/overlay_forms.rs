//! Overlays over arrays that another program makes anew in another form: no chunk is decoded in another form than its own.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::mounted::Mount;
use crate::support::place::{can_mount, zarrfs};

/// A store with the array `a` of two chunks of four elements, and the folder of an overlay over it.
struct Scene {
    folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene { folder };
        fs::create_dir(scene.store()).unwrap();
        fs::write(scene.store().join("zarr.json"), r#"{"zarr_format": 3, "node_type": "group"}"#).unwrap();
        scene.make("int32", "little", 1);
        scene
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store.zarr")
    }

    fn overlay(&self) -> String {
        self.folder.path().join("overlay").to_str().unwrap().to_owned()
    }

    /// Makes the array as another program does: all elements are one number.
    fn make(&self, data_type: &str, endian: &str, number: u8) {
        let array = self.store().join("a");
        let _ = fs::remove_dir_all(&array);
        fs::create_dir_all(array.join("c")).unwrap();
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": [8], "data_type": data_type, "fill_value": 0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
            "chunk_key_encoding": {"name": "default"},
            "codecs": [{"name": "bytes", "configuration": {"endian": endian}}], "attributes": {"n": 1}});
        fs::write(array.join("zarr.json"), document.to_string()).unwrap();
        let element = if endian == "big" { [0, 0, 0, number] } else { [number, 0, 0, 0] };
        for chunk in ["c/0", "c/1"] {
            fs::write(array.join(chunk), element.repeat(4)).unwrap();
        }
    }

    fn mount(&self) -> Mount {
        let options = ["--writable", "--revalidate", "0", "--overlay", &self.overlay()];
        Mount::new(&self.store(), &options, "an overlay over another form").unwrap()
    }

    fn run(&self, words: &[&str], code: i32) -> String {
        let output = zarrfs(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {output:?}");
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    fn changed_in_store(&self) -> Value {
        let status = self.run(&["overlay", "status", "--json", &self.overlay()], 0);
        serde_json::from_str::<Value>(&status).unwrap()["nodes"][0]["changed_in_store"].clone()
    }

    fn discard(&self) {
        self.run(&["overlay", "discard", &self.overlay(), "a", "--yes"], 0);
    }
}

fn read(path: &Path, offset: u64) -> Result<Vec<u8>, Option<i32>> {
    let mut out = vec![0; 16];
    let file = File::open(path).map_err(|error| error.raw_os_error())?;
    file.read_exact_at(&mut out, offset).map_err(|error| error.raw_os_error())?;
    Ok(out)
}

/// A chunk that was written for the old array is not a chunk of the new one.
#[test]
fn a_chunk_of_another_form_is_an_error_that_every_command_names() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let mount = scene.mount();
    let file = File::options().write(true).open(mount.path("a")).unwrap();
    file.write_all_at(&[7, 0, 0, 0], 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    scene.make("int32", "big", 2);
    // The mount sees it at its next open, and so does a new one. (The kernel reads both chunks at once.)
    assert_eq!(read(&mount.path("a"), 0), Err(Some(libc::EIO)));
    mount.unmount();
    let mount = scene.mount();
    assert_eq!(read(&mount.path("a"), 0), Err(Some(libc::EIO)));
    mount.unmount();
    let (store, overlay) = (scene.store().to_str().unwrap().to_owned(), scene.overlay());
    let slice = |slice: &str| zarrfs(&["cat", &store, slice, "--overlay", &overlay]);
    assert_eq!(slice("a[4:]").stdout, [2, 0, 0, 0].repeat(4));
    assert!(!slice("a[:4]").status.success());
    assert!(scene.run(&["check", &store, "--overlay", &overlay], 1).contains("a/c/0"));
    assert_eq!(scene.changed_in_store(), json!(["a/c/0"]));
    assert!(scene.run(&["overlay", "diff", &overlay], 0).contains("a/c/0"));
    let committed = scene.run(&["overlay", "commit", &overlay], 1);
    assert!(committed.contains("another form"), "{committed}");
    assert_eq!(fs::read(scene.store().join("a/c/0")).unwrap(), [0, 0, 0, 2].repeat(4));
    scene.discard();
    scene.run(&["check", &store, "--overlay", &overlay], 0);
    let mount = scene.mount();
    assert_eq!(read(&mount.path("a"), 0), Ok([2, 0, 0, 0].repeat(4)));
    mount.unmount();
}

/// The overlay has the document, because attributes were edited: the store's chunks are not those of that document.
#[test]
fn a_document_over_another_form_shows_no_chunks() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let mount = scene.mount();
    fs::write(mount.path("a.json"), r#"{"attributes": {"n": 2}}"#).unwrap();
    assert_eq!(read(&mount.path("a"), 0), Ok([1, 0, 0, 0].repeat(4)));
    scene.make("float32", "little", 2);
    assert_eq!(read(&mount.path("a"), 0), Err(Some(libc::EIO)));
    let view = mount.path("__views__/big-endian/a");
    assert_eq!(read(&view, 0), Err(Some(libc::EIO)));
    mount.unmount();
    let (store, overlay) = (scene.store().to_str().unwrap().to_owned(), scene.overlay());
    assert!(scene.run(&["check", &store, "--overlay", &overlay], 1).contains("a/zarr.json"));
    assert_eq!(scene.changed_in_store(), json!(["a/zarr.json"]));
    scene.run(&["overlay", "commit", &overlay], 1);
    // The same array again, with another attribute: it decodes, and only the document is a conflict.
    scene.make("int32", "little", 3);
    let mount = scene.mount();
    assert_eq!(read(&mount.path("a"), 0), Ok([3, 0, 0, 0].repeat(4)));
    mount.unmount();
    scene.discard();
    assert_eq!(scene.run(&["overlay", "status", &overlay], 0).matches("nothing is changed").count(), 1);
}

/// Content that is rewritten in place with its old size and time is seen, by readers and by a commit; other permissions are not.
#[test]
fn a_file_with_its_old_time_is_another_one_and_its_permissions_are_not() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let mount = scene.mount();
    let rewrite = |chunk: &str, number: u8| {
        let path = scene.store().join("a").join(chunk);
        let modified = path.metadata().unwrap().modified().unwrap();
        fs::write(&path, [number, 0, 0, 0].repeat(4)).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    };
    assert_eq!(read(&mount.path("a"), 16), Ok([1, 0, 0, 0].repeat(4)));
    rewrite("c/1", 9);
    assert_eq!(read(&mount.path("a"), 16), Ok([9, 0, 0, 0].repeat(4)));
    let file = File::options().write(true).open(mount.path("a")).unwrap();
    file.write_all_at(&[7, 0, 0, 0].repeat(8), 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    mount.unmount();
    rewrite("c/0", 8);
    fs::hard_link(scene.store().join("a/c/1"), scene.folder.path().join("backup")).unwrap();
    fs::set_permissions(scene.store().join("a/c/1"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    assert_eq!(scene.changed_in_store(), json!(["a/c/0"]));
    let committed = scene.run(&["overlay", "commit", &scene.overlay()], 1);
    assert!(committed.contains("a/c/0: changed in the store since"), "{committed}");
    assert_eq!(fs::read(scene.store().join("a/c/0")).unwrap(), [8, 0, 0, 0].repeat(4));
    assert_eq!(fs::read(scene.store().join("a/c/1")).unwrap(), [7, 0, 0, 0].repeat(4));
}

/// A node that was removed through an overlay has another program's chunk by the time of the commit.
#[test]
fn a_removed_node_that_got_a_chunk_since_stays() {
    let scene = Scene::new();
    let (store, overlay) = (scene.store().to_str().unwrap().to_owned(), scene.overlay());
    scene.run(&["rm", &store, "a", "--yes", "--overlay", &overlay], 0);
    fs::write(scene.store().join("a/c/2"), [4, 0, 0, 0].repeat(4)).unwrap();
    let committed = scene.run(&["overlay", "commit", &overlay], 1);
    assert!(committed.contains("a: was removed, and has changed in the store since"), "{committed}");
    assert!(scene.store().join("a/c/2").exists() && scene.store().join("a/zarr.json").exists());
    fs::remove_file(scene.store().join("a/c/2")).unwrap();
    scene.run(&["overlay", "commit", &overlay], 0);
    assert!(!scene.store().join("a").exists());
}
