//! An open file of a whole hierarchy (`__formats__/hdf5`) across a kill of the daemon, in a folder and in a bucket: a program that has it open reads the
//! same bytes, or gets ESTALE.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::scene::SHORT_DEADLINE;
use crate::support::misbehaving::{BUCKET, Service};
use crate::support::place::{Place, can_mount, wait_for};
use crate::support::skip;

const FILE: &str = "__formats__/hdf5/g.h5";

fn array(data_type: &str, fill: Value, codec: Value) -> String {
    json!({"zarr_format": 3, "node_type": "array", "shape": [3], "data_type": data_type, "fill_value": fill,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3]}}, "chunk_key_encoding": {"name": "default"},
        "codecs": [codec], "dimension_names": ["x"]})
    .to_string()
}

/// Returns the chunk of three strings, in the form of vlen-utf8.
fn strings(texts: [&str; 3]) -> Vec<u8> {
    let mut bytes = 3u32.to_le_bytes().to_vec();
    for text in texts {
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text.bytes());
    }
    bytes
}

fn put(store: &Path, key: &str, bytes: impl AsRef<[u8]>) {
    let path = store.join(key);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn put_store(store: &Path) {
    let group = json!({"zarr_format": 3, "node_type": "group"}).to_string();
    for key in ["zarr.json", "g/zarr.json", "g/deep/zarr.json"] {
        put(store, key, &group);
    }
    let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
    put(store, "g/deep/numbers/zarr.json", array("int16", json!(0), little));
    put(store, "g/deep/numbers/c/0", [1, 0, 2, 0, 3, 0]);
    put(store, "g/names/zarr.json", array("string", json!(""), json!({"name": "vlen-utf8"})));
    put(store, "g/names/c/0", strings(["one", "two", "three"]));
}

struct Scene {
    place: Place,
    /// Where the store is served from; `None` in a folder.
    service: Option<Service>,
}

impl Scene {
    /// Makes a mount with a keeper; `None` where mounts have none.
    fn new(is_in_bucket: bool) -> Option<Scene> {
        let place = Place::new();
        put_store(&place.store());
        let service = is_in_bucket.then(|| Service::start(place.store().parent().unwrap()));
        let mut command = match &service {
            None => place.mount_command(&["--keeper", "--direct-io", "--revalidate", "0"]),
            Some(service) => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
                command.args(["mount", "--keeper", "--direct-io", "--revalidate", "0", "--no-sign-request"]);
                command.args(["--endpoint-url", &service.endpoint()]).args(SHORT_DEADLINE);
                command.arg(format!("s3://{BUCKET}/store.zarr")).arg(place.mountpoint());
                command
            }
        };
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let config = fs::read_to_string(place.path("__zarrfs__/config.json")).unwrap();
        if serde_json::from_str::<Value>(&config).unwrap()["keeper"].as_u64().is_none() {
            skip("a mount that goes on without its daemon", "the kernel is older than Linux 6.9", false);
            return None;
        }
        Some(Scene { place, service })
    }

    fn kill(&self) {
        let before = self.place.daemon();
        assert!(Command::new("kill").args(["-s", "KILL", &before.to_string()]).status().unwrap().success());
        wait_for(|| self.place.daemon() != before);
    }
}

/// Reads all bytes through a handle.
fn read(file: &File, length: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0).map(|()| bytes)
}

fn goes_on_or_is_stale(is_in_bucket: bool) {
    if !can_mount() {
        return;
    }
    let Some(scene) = Scene::new(is_in_bucket) else { return };
    let (store, open) = (scene.place.store(), || File::open(scene.place.path(FILE)).unwrap());
    let whole = fs::read(scene.place.path(FILE)).unwrap();
    let has = |text: &[u8]| whole.windows(text.len()).any(|window| window == text);
    assert!(has(b"one") && has(b"three") && has(&[1, 0, 2, 0, 3, 0]), "{whole:?}");
    let (file, of_second) = (open(), open());
    assert_eq!(read(&file, 100).unwrap(), whole[..100]);
    scene.kill();
    assert!(read(&file, whole.len()).unwrap() == whole);
    // A service that is away is an error, and the file goes on when it is back.
    if let Some(service) = &scene.service {
        scene.kill();
        service.die();
        let error = read(&file, whole.len()).unwrap_err();
        assert_ne!(error.raw_os_error(), Some(libc::ESTALE), "{error}");
        service.come_back();
        wait_for(|| read(&file, whole.len()).is_ok());
        assert!(read(&file, whole.len()).unwrap() == whole);
    }
    // A string of the same length: the file was made with the other one.
    put(&store, "g/names/c/0", strings(["one", "TWO", "three"]));
    assert!(read(&file, whole.len()).unwrap() == whole);
    scene.kill();
    for file in [&file, &of_second] {
        assert_eq!(read(file, whole.len()).unwrap_err().raw_os_error(), Some(libc::ESTALE));
    }
    let new = open();
    let bytes = read(&new, whole.len()).unwrap();
    assert!(bytes.windows(3).any(|window| window == b"TWO") && bytes.len() == whole.len());
    // An array that is replaced by one of another type and the same size.
    scene.kill();
    let big = json!({"name": "bytes", "configuration": {"endian": "big"}});
    put(&store, "g/deep/numbers/zarr.json", array("uint16", json!(0), big));
    scene.kill();
    assert_eq!(read(&new, whole.len()).unwrap_err().raw_os_error(), Some(libc::ESTALE));
    drop((file, of_second, new));
    let output = scene.place.umount();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_file_of_a_hierarchy_in_a_folder_goes_on_after_a_kill_or_is_stale() {
    goes_on_or_is_stale(false);
}

#[test]
fn a_file_of_a_hierarchy_in_a_bucket_goes_on_after_a_kill_or_is_stale() {
    goes_on_or_is_stale(true);
}
