//! Stacks on a mount: targets that grow, are replaced or vanish, targets that other users may not read, and views of virtual arrays.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::json_of;
use crate::support::mounted::Mount;
use crate::support::place::{is_root, refusal, wait_for, zarrfs};
use crate::support::skip;
use crate::support::uneven::v3;
use crate::support::users::{A, B, Stores};

const LATEST: &[&str] = &["-o", "revalidate=0"];

/// Writes an array of rows of 4 bytes, in chunks of 2 rows that have the number of their row everywhere.
fn put(store: &Path, rows: u64, first: u8) {
    fs::create_dir_all(store.join("a/c")).unwrap();
    for chunk in 0..rows.div_ceil(2) {
        let row = |row: u64| vec![first + (2 * chunk + row) as u8; 4];
        fs::create_dir_all(store.join(format!("a/c/{chunk}"))).unwrap();
        replace(&store.join(format!("a/c/{chunk}/0")), &[row(0), row(1)].concat());
    }
    let mut document = v3("uint8", &[rows, 4], &[2, 4], &json!(["bytes"]));
    document["fill_value"] = json!(9);
    document["dimension_names"] = json!(["time", "x"]);
    replace(&store.join("a/zarr.json"), document.to_string().as_bytes());
}

fn replace(path: &Path, bytes: &[u8]) {
    let new = path.with_extension("new");
    fs::write(&new, bytes).unwrap();
    fs::rename(new, path).unwrap();
}

fn rows(numbers: impl IntoIterator<Item = u8>) -> Vec<u8> {
    numbers.into_iter().flat_map(|number| [number; 4]).collect()
}

/// Makes three stores, and a stack of them in which another array is alone.
fn stacked(folder: &Path) {
    for (name, first) in [("one.zarr", 10), ("two.zarr", 20), ("three.zarr", 30)] {
        put(&folder.join(name), 4, first);
    }
    let layer = |name: &str| json!({"store": name, "path": "a"});
    let all = json!({"driver": "concat", "axis": "time", "layers": [layer("one.zarr"), layer("two.zarr"), layer("three.zarr")]});
    let document = json!({"zarrfs_stack": 1, "arrays": {"all": all, "g/two": layer("two.zarr"),
        "other": {"driver": "downsample", "base": layer("one.zarr"), "downsample_factors": [2, 1], "downsample_method": "stride"}}});
    fs::write(folder.join("stack.json"), document.to_string()).unwrap();
}

fn errno(path: &Path) -> i32 {
    fs::read(path).unwrap_err().raw_os_error().unwrap()
}

#[test]
fn targets_that_change_grow_and_vanish() {
    change_targets(LATEST);
}

/// Every read of an open file reaches the mount, so that it is seen to be stale.
#[test]
fn targets_that_change_below_open_files() {
    change_targets(&["-o", "revalidate=0,direct-io"]);
}

fn change_targets(options: &[&str]) {
    let is_direct = options != LATEST;
    let folder = tempfile::tempdir().unwrap();
    stacked(folder.path());
    let at = |name: &str| folder.path().join(name);
    let Some(mount) = Mount::new(&at("stack.json"), options, "targets of a stack that change") else {
        return;
    };
    let all = mount.path("all");
    let begins = || rows((10..14).chain(20..24));
    assert_eq!(fs::read(&all).unwrap(), [begins(), rows(30..34)].concat());
    assert_eq!(fs::read(mount.path("g/two")).unwrap(), rows(20..24));
    assert_eq!(fs::read(mount.path("other")).unwrap(), rows([10, 12]));
    // Another view of it, one of its slices, and a companion file.
    let by_columns: Vec<u8> = (0..4).flat_map(|_| (10..14).chain(20..24).chain(30..34)).collect();
    assert_eq!(fs::read(mount.path("__views__/f-order/all")).unwrap(), by_columns);
    assert_eq!(
        fs::read(mount.path("__views__/slice/all[time=3:9:2,:]")).unwrap_or_default(),
        Vec::<u8>::new()
    );
    assert_eq!(fs::read(mount.path("__views__/slice/all[3:9:2,1]")).unwrap(), [13, 21, 23]);
    let npy = fs::read(mount.path("__formats__/npy/all.npy")).unwrap();
    assert!(npy.ends_with(&rows(30..34)) && npy.starts_with(b"\x93NUMPY"));
    let sidecar: Value = json_of(mount.path("all.json"));
    assert_eq!(sidecar["shape"], json!([12, 4]), "{sidecar}");
    // A chunk of a target changes.
    replace(&at("two.zarr/a/c/0/0"), &rows([50, 51]));
    assert_eq!(fs::read(&all).unwrap(), rows((10..14).chain([50, 51, 22, 23]).chain(30..34)));
    assert_eq!(fs::read(mount.path("__views__/f-order/all")).unwrap()[4..6], [50, 51]);
    // The last target grows, and so does the file, in place.
    let open = File::open(&all).unwrap();
    put(&at("three.zarr"), 6, 30);
    wait_for(|| fs::metadata(&all).unwrap().len() == 56);
    assert_eq!(fs::read(&all).unwrap()[32..], rows(30..36));
    let mut end = [0; 8];
    open.read_exact_at(&mut end, 48).unwrap();
    assert_eq!(end[..], rows([34, 35]));
    // Another one grows: what follows it is elsewhere.
    put(&at("two.zarr"), 5, 20);
    wait_for(|| fs::metadata(&all).unwrap().len() == 60);
    assert_eq!(fs::read(&all).unwrap()[16..36], rows(20..25));
    let is_stale = |file: &File, offset| {
        let read = file.read_exact_at(&mut [0; 8], offset);
        !is_direct || read.is_err_and(|error| error.raw_os_error() == Some(libc::ESTALE))
    };
    wait_for(|| is_stale(&open, 48));
    drop(open);
    // One has gone. The others, and arrays without it, are as they were.
    fs::rename(at("two.zarr"), at("gone.zarr")).unwrap();
    wait_for(|| fs::read(&all).is_err());
    assert_eq!(errno(&all), libc::EIO);
    assert!(mount.log().contains("two.zarr/a, which is missing"), "{}", mount.log());
    assert_eq!(fs::read(mount.path("other")).unwrap(), rows([10, 12]));
    // It comes back with another type, and as it was.
    fs::rename(at("gone.zarr"), at("two.zarr")).unwrap();
    wait_for(|| fs::read(&all).is_ok_and(|bytes| bytes.len() == 60));
    let document = fs::read_to_string(at("two.zarr/a/zarr.json")).unwrap();
    replace(&at("two.zarr/a/zarr.json"), document.replace("uint8", "int8").as_bytes());
    wait_for(|| fs::read(&all).is_err());
    assert_eq!(errno(&all), libc::EIO);
    assert!(mount.log().contains("two.zarr/a is int8, but one.zarr/a is uint8"), "{}", mount.log());
    // A chunk that cannot be read is an error with its key.
    replace(&at("two.zarr/a/zarr.json"), document.as_bytes());
    wait_for(|| fs::read(&all).is_ok());
    replace(&at("two.zarr/a/c/1/0"), b"short");
    assert_eq!(errno(&all), libc::EIO);
    assert!(mount.log().contains("two.zarr/a/c/1/0"), "{}", mount.log());
    mount.unmount();
}

#[test]
fn what_does_not_agree_is_not_mounted() {
    let folder = tempfile::tempdir().unwrap();
    stacked(folder.path());
    let stack = folder.path().join("stack.json");
    let point = folder.path().join("mnt");
    fs::create_dir(&point).unwrap();
    put(&folder.path().join("wide.zarr"), 4, 40);
    let wide = folder.path().join("wide.zarr/a/zarr.json");
    fs::write(&wide, fs::read_to_string(&wide).unwrap().replace("[4,4]", "[4,3]")).unwrap();
    let text = fs::read_to_string(&stack).unwrap().replace("two.zarr", "wide.zarr");
    fs::write(&stack, text).unwrap();
    let sentence = refusal(&zarrfs(&["mount", stack.to_str().unwrap(), point.to_str().unwrap()]), 1);
    assert!(sentence.contains("wide.zarr/a has the shape [4, 3], but one.zarr/a has [4, 4]"), "{sentence}");
    let out = folder.path().join("out.json");
    let store = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let stores = [store("one.zarr"), store("wide.zarr")];
    let sentence =
        refusal(&zarrfs(&["stack", out.to_str().unwrap(), &stores[0], &stores[1], "--axis", "time"]), 1);
    assert!(sentence.contains("wide.zarr/a has the shape") && !out.exists(), "{sentence}");
    let stores = [store("one.zarr"), store("three.zarr")];
    let made = zarrfs(&["stack", out.to_str().unwrap(), &stores[0], &stores[1], "--axis", "time"]);
    assert!(made.status.success(), "{made:?}");
    let read = zarrfs(&["cat", out.to_str().unwrap(), "a"]);
    assert_eq!(read.stdout, rows((10..14).chain(30..34)));
    for (options, wanted) in [
        (&["--writable"][..], "is a stack of other stores, which is read-only"),
        (&["--overlay", "overlay"][..], "is a stack, which is read-only"),
    ] {
        let arguments = [&["mount", out.to_str().unwrap(), point.to_str().unwrap()][..], options].concat();
        let output = zarrfs(&arguments);
        let sentence = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(sentence.contains(wanted), "{sentence}");
        if output.status.success() {
            assert!(fs::write(point.join("a"), b"x").is_err());
            assert!(zarrfs(&["umount", point.to_str().unwrap()]).status.success());
        }
    }
}

fn read_as(user: u32, path: &Path) -> Option<Vec<u8>> {
    let mut command = Command::new("cat");
    let output = command.arg(path).current_dir("/").uid(user).gid(user).output().unwrap();
    output.status.success().then_some(output.stdout)
}

/// As root, for all users: a document of one user names the stores of another one, and no user gets from it what those stores would refuse.
#[test]
fn a_stack_is_read_with_the_users_permissions() {
    if !is_root() {
        return skip("users of stacks", "needs root", true);
    }
    let stores = Stores::new();
    let mut arrays = serde_json::Map::new();
    let layer = |name: &str| json!({"store": format!("{name}.zarr"), "path": "a"});
    for (name, modes) in [("public", (0o644, 0o644)), ("secret", (0o600, 0o600)), ("chunks", (0o644, 0o600))]
    {
        stores.folder(&format!("b.zarr/{name}.zarr"), A, 0o755);
        stores.array(&format!("b.zarr/{name}.zarr/a"), b'a', A, modes);
        let concat = json!({"driver": "concat", "axis": 0, "layers": [layer("public"), layer(name)]});
        arrays.insert(name.to_owned(), concat);
        arrays.insert(format!("alone_{name}"), layer(name));
    }
    let document = json!({"zarrfs_stack": 1, "arrays": arrays});
    stores.file("b.zarr/stack.json", document.to_string(), B, 0o644);
    let Some(mount) = Mount::new(&stores.path("b.zarr/stack.json"), LATEST, "users of stacks") else {
        return;
    };
    fs::set_permissions(mount.point().parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    let all = vec![b'a'; 32];
    assert_eq!(read_as(B, &mount.path("public")).as_ref(), Some(&all), "{}", mount.log());
    assert_eq!(read_as(B, &mount.path("alone_public")).as_deref(), Some(&all[..16]), "{}", mount.log());
    for name in ["secret", "chunks", "alone_secret", "alone_chunks"] {
        assert_eq!(read_as(B, &mount.path(name)), None, "{name}: {}", mount.log());
        assert_eq!(read_as(B, &mount.path(&format!("__views__/f-order/{name}"))), None, "{name}");
    }
    mount.unmount();
}
