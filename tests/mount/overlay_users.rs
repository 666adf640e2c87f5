//! Two users on one mount with an overlay: they have the rights of the store below, which is never written.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use crate::support::mounted::Mount;
use crate::support::place::is_root;
use crate::support::skip;
use crate::support::users::{A, B, SIZE_BYTES, Stores};
use crate::users::{denied, make_arrays_of_a, read, ways_to_chunks_of_another_user, write};

const SECOND: &str = "users and an overlay";

fn zarrfs(words: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_zarrfs")).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_rights_are_those_of_the_store() {
    if !is_root() {
        return skip(SECOND, "needs root", true);
    }
    let stores = Stores::new();
    make_arrays_of_a(&stores);
    let ways = ways_to_chunks_of_another_user(&stores);
    let outside = tempfile::tempdir().unwrap();
    fs::set_permissions(outside.path(), Permissions::from_mode(0o755)).unwrap();
    let overlay = outside.path().join("overlay");
    let (store, overlay) = (stores.folder.path().to_str().unwrap(), overlay.to_str().unwrap());
    let new = ["--shape", "8,2", "--dtype", "uint8", "--chunks", "4,2", "--overlay", overlay];
    zarrfs(&[&["create", store, "a.zarr/new"][..], &new].concat());
    let before = stores.all_of_a();
    let options = ["-o", "writable,revalidate=0,tune=stop-deadline=1", "--overlay", overlay];
    let mount = || {
        let mount = Mount::new(stores.folder.path(), &options, SECOND).unwrap();
        fs::set_permissions(mount.point().parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
        mount
    };
    let written = Ok(vec![b'W'; SIZE_BYTES]);
    let mounted = mount();
    for way in &ways {
        let path = mounted.path("b.zarr").join(way);
        assert_eq!(read(B, &path), denied(), "{way}: {}", mounted.log());
        assert!(write(B, &path).is_err(), "{way}: {}", mounted.log());
    }
    for name in ["public", "secret", "vault/x", "new"] {
        let path = mounted.path("a.zarr").join(name);
        let is_open = ["public", "new"].contains(&name);
        assert_eq!(write(B, &path), denied(), "{name}: {}", mounted.log());
        assert_eq!(write(A, &path), Ok(()), "{name}: {}", mounted.log());
        assert_eq!(read(A, &path), written, "{name}: {}", mounted.log());
        assert_eq!(
            read(B, &path),
            if is_open { written.clone() } else { denied() },
            "{name}: {}",
            mounted.log()
        );
    }
    let made = fs::metadata(mounted.path("a.zarr/new")).unwrap();
    assert_eq!((made.uid(), made.mode() & 0o777), (A, 0o644), "a new node is its group's owner's");
    mounted.umount(&["--force"]);
    assert!(stores.all_of_a() == before, "something in the store has changed");
    assert_eq!(
        read(B, &outside.path().join("overlay/objects/a.zarr/public/zarr.json")),
        denied(),
        "the overlay's own folder"
    );
    let mounted = mount();
    assert_eq!(read(B, &mounted.path("a.zarr/public")), written, "{}", mounted.log());
    assert_eq!(read(B, &mounted.path("a.zarr/secret")), denied(), "{}", mounted.log());
    mounted.unmount();
    zarrfs(&["overlay", "commit", overlay]);
    for (path, (uid, mode, _)) in stores.all_of_a() {
        assert_eq!(uid, A, "{path:?}");
        if let Some((_, old, _)) = before.get(&path) {
            assert_eq!(mode, *old, "{path:?}");
        }
    }
    assert_eq!(fs::read(stores.path("a.zarr/secret/c/0/0")).unwrap(), vec![b'W'; SIZE_BYTES / 2]);
}
