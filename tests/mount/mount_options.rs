//! Options of `zarrfs mount` that need a real mount: the mount point, owners and permissions; `umount --all`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::{Command, Stdio};

use crate::support::mounted::Mount;
use crate::support::place::*;

#[test]
fn a_missing_mount_point_is_made_and_stays() {
    let Some(place) = Place::mountable_demo() else { return };
    let store = place.store();
    let (store, point) = (store.to_str().unwrap(), place.folder.path().join("a/b"));
    let failed = zarrfs(&["mount", "--mkdir", "/nonexistent-store", point.to_str().unwrap()]);
    assert!(refusal(&failed, 1).contains("no such folder"));
    assert!(!place.folder.path().join("a").exists(), "a mount that failed leaves no folder");
    let made = zarrfs(&["mount", "--mkdir", "-v", "-o", "cache-size=1%", store, point.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(made.status.success() && said.contains("is mounted on") && said.contains("read-only"), "{said}");
    assert!(point.join("climate").is_dir());
    assert!(zarrfs(&["umount", point.to_str().unwrap()]).status.success());
    assert!(point.is_dir() && fs::read_dir(&point).unwrap().next().is_none());
}

#[test]
fn read_only_wins() {
    let place = Place::demo();
    let Some(mount) = Mount::new(&place.store(), &["--writable", "-o", "ro"], "read-only") else { return };
    let opened = fs::OpenOptions::new().write(true).open(mount.path("small/answer"));
    assert_eq!(opened.unwrap_err().raw_os_error(), Some(30));
    mount.unmount();
}

#[test]
fn root_puts_a_user_in_the_place_of_owners() {
    if !is_root() {
        return;
    }
    let place = Place::demo();
    let document = place.store().join("small/answer/zarr.json");
    fs::set_permissions(&document, fs::Permissions::from_mode(0o600)).unwrap();
    let options = ["-o", "uid=54321,gid=54322,umask=027"];
    let Some(mount) = Mount::new(&place.store(), &options, "owners") else { return };
    fs::set_permissions(mount.point().parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let of = |name: &str| {
        let found = fs::metadata(mount.path(name)).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o777)
    };
    assert_eq!(of("small/answer"), (54321, 54322, 0o400));
    assert_eq!(of("climate/lat"), (54321, 54322, 0o440));
    assert_eq!(of("climate").2, 0o550);
    assert_eq!(of("__zarrfs__/stats"), (0, 0, 0o400), "the mount's own files are not the store's");
    let reads = |user: u32, group: u32, name: &str| {
        let mut command = Command::new("cat");
        command.arg(mount.path(name)).stdout(Stdio::null()).stderr(Stdio::null());
        std::os::unix::process::CommandExt::uid(&mut command, user);
        std::os::unix::process::CommandExt::gid(&mut command, group);
        command.status().unwrap().success()
    };
    assert!(reads(54321, 1, "small/answer") && reads(54321, 1, "climate/lat"));
    assert!(!reads(54323, 54322, "small/answer"), "the group of the store may not, either");
    assert!(reads(54323, 54322, "climate/lat") && !reads(54323, 1, "climate/lat"));
    mount.unmount();
}

/// Run by root in a mount namespace of its own. No other test has this user: `umount --all` unmounts all of a user's mounts.
const USER_SCRIPT: &str = r#"
set -e
mknod device c 10 229 && chmod 666 device && mount --bind device /dev/fuse
cp /etc/passwd passwd && echo 'watcher:x:54777:54777::/:/bin/sh' >> passwd && mount --bind passwd /etc/passwd
user() { setpriv --reuid=54777 --regid=54777 --clear-groups -- "$@"; }
user ./zarrfs mount store.zarr mnt
user ./zarrfs mount --mkdir store.zarr own/second
mkdir roots && ./zarrfs mount store.zarr roots
user ./zarrfs umount --all > said
[ "$(sort said)" = "$PWD/mnt: unmounted
$PWD/own/second: unmounted" ] || { cat said; exit 1; }
grep -q "$PWD/roots " /proc/self/mountinfo || { echo "another user's mount went, too"; exit 1; }
user ./zarrfs umount --all > said
[ ! -s said ]
user ./zarrfs mount store.zarr mnt
user ./zarrfs mount --mkdir store.zarr own/second
# A program that uses one of them: the other one goes.
mkfifo -m 666 ready end
user sh -c 'exec < mnt/small/answer; echo > ready; cat end' & holder=$!
cat ready > /dev/null
status=0; user ./zarrfs umount --all > said 2> complaint || status=$?
echo > end; wait $holder || true
[ $status = 1 ] && grep -q "is busy" complaint && grep -q "own/second: unmounted" said || { cat said complaint; exit 1; }
user ./zarrfs umount --all > said
# Owners: no user gets what the store refuses, and users may show themselves anything.
user ./zarrfs mount -o uid=54778 store.zarr mnt
[ "$(user stat -c %u mnt/climate/lat)" = 54778 ]
user ./zarrfs umount mnt
echo user_allow_other > conf && chmod 644 conf && mount --bind conf /etc/fuse.conf
user ./zarrfs mount -o uid=54778 store.zarr mnt 2> refused && exit 1
grep -q "uid and gid need root here" refused
user ./zarrfs mount -o umask=0 store.zarr mnt
[ "$(stat -c %a mnt/small/answer)" = 400 ]
user ./zarrfs umount mnt
./zarrfs umount roots
"#;

#[test]
fn a_user_unmounts_all_their_mounts_and_gives_nothing_away() {
    if !can_mount() || !is_root() {
        return;
    }
    let place = Place::demo();
    place.copy_program();
    let document = place.store().join("small/answer/zarr.json");
    fs::set_permissions(&document, fs::Permissions::from_mode(0o400)).unwrap();
    chown(&document, Some(54777), Some(54777)).unwrap();
    fs::create_dir(place.folder.path().join("own")).unwrap();
    for own in ["mnt", "own"] {
        chown(place.folder.path().join(own), Some(54777), Some(54777)).unwrap();
    }
    let script = format!("{LEAVE_OTHER_MOUNTS}{USER_SCRIPT}");
    let mut command = Command::new("unshare");
    let command = command.args(["--mount", "--", "timeout", "60", "sh", "-c", &script]);
    let command = command.current_dir(place.folder.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}
