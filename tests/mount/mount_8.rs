//! mount(8), umount(8) and fstab over a real mount, in a mount namespace of its own, so that the machine's fstab and /sbin stay as
//! they are; and what two users see of a daemon of root. Needs root.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::place::*;

/// Run in a folder with `zarrfs`, `store.zarr` and the empty folder `mnt`. /sbin is replaced by a folder with the helpers alone.
const PREPARE: &str = r#"
set -eu
trap 'echo "failed at line $LINENO" >&2' EXIT
mkdir sbin
for name in mount.zarrfs mount.fuse.zarrfs umount.fuse.zarrfs; do ln -s "$PWD/zarrfs" "sbin/$name"; done
mount --bind sbin "$(readlink -f /sbin)"
mnt=$PWD/mnt
store=$PWD/store.zarr
says() { grep -q "$1" said || { echo "not said: $1, but:"; cat said; exit 1; } }
fails() { if "$@" >said 2>&1; then echo "went well: $*"; exit 1; fi }
mounted() { grep -q " $mnt .* - fuse.zarrfs " /proc/self/mountinfo; }
gone() { if mounted; then echo "still mounted"; exit 1; fi }
known() { grep -q "TARGET=$mnt .*uhelper=fuse.zarrfs" /run/mount/utab; }
forgotten() { if grep "TARGET=$mnt " /run/mount/utab; then echo "still in utab"; exit 1; fi }
pid() { sed -n 's/.*"pid": \([0-9]*\).*/\1/p' "${1:-mnt}/__zarrfs__/config.json"; }
ended() { while readlink "/proc/$1/exe" >/dev/null; do sleep 0.01; done }
"#;

fn run(place: &Place, script: &str) {
    place.copy_program();
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--",
        "bash",
        "-c",
        &format!("{LEAVE_OTHER_MOUNTS}{PREPARE}{script}\ntrap - EXIT"),
    ]);
    let output = command.current_dir(place.folder.path()).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// Runs a script in a place with the sample hierarchy, if that is possible here.
fn run_with_demo(script: &str) {
    if possible() {
        run(&Place::demo(), script);
    }
}

fn possible() -> bool {
    if can_mount() && is_root() {
        return true;
    }
    eprintln!("SKIPPED: needs root");
    false
}

#[test]
fn mount_and_umount_by_their_helpers() {
    run_with_demo(
        r#"
for type in zarrfs fuse.zarrfs; do
    mount -t $type -o ro,nosuid,nodev,noatime,_netdev,x-systemd.automount,cache_size=64M "$store" mnt
    mounted
    test -s mnt/small/answer
    # What umount has returned from is over.
    pid=$(sed -n 's/.*"pid": \([0-9]*\).*/\1/p' mnt/__zarrfs__/config.json)
    umount mnt
    gone
    if readlink "/proc/$pid/exe" >/dev/null; then echo "the daemon is still there"; exit 1; fi
done
mount -f -t zarrfs "$store" mnt
gone
fails mount -t zarrfs -o cache_sise=1G "$store" mnt
says "did you mean 'cache-size'"
mount -v -n -s -t zarrfs -o cache_sise=1G "$store" mnt 2>said
says "ignoring the unknown option 'cache_sise=1G'"
fails mount -t zarrfs "$store" mnt
says "is busy"
exec 3<mnt/small/answer
fails umount mnt
says "is busy: in use by"
mounted
umount -l mnt
gone
exec 3<&-
fails mount -t zarrfs "$PWD/nothing" mnt
says "no such folder or zip archive"
fails mount -t zarrfs "$store" nowhere
says "mount point"
mount -t zarrfs -o writable,keeper=off "$store" mnt
kill -9 "$(sed -n 's/.*"pid": \([0-9]*\).*/\1/p' mnt/__zarrfs__/config.json)"
sleep 0.3
fails cat mnt/small/answer
fails mount -t zarrfs "$store" mnt
says "umount --stale"
# It is gone then, but not all may be well.
fails umount mnt
says "its daemon had crashed"
gone
"#,
    );
}

/// umount(8) of root looks no further than the kernel's type, which is `fuse`, where nothing in /run/mount/utab says more.
#[test]
fn umount_of_an_absolute_path_waits_and_refuses_as_well() {
    run_with_demo(
        r#"
# In use: the helper names the user, umount itself would say 'target is busy'.
for how in "mount -t zarrfs -o x-some=thing" "mount -t fuse.zarrfs" "./zarrfs mount"; do
    $how "$store" "$mnt"
    known
    exec 3<mnt/small/answer
    fails umount "$mnt"
    says "is busy: in use by"
    known
    exec 3<&-
    daemon=$(pid)
    umount "$mnt"
    gone
    forgotten
    if readlink "/proc/$daemon/exe" >/dev/null; then echo "the daemon is still there"; exit 1; fi
done
mount -t zarrfs -o ro,_netdev "$store" "$mnt"
grep -q "OPTS=uhelper=fuse.zarrfs,_netdev$" /run/mount/utab
./zarrfs umount "$mnt"
forgotten
./zarrfs mount --writable --keeper=off "$store" "$mnt"
kill -9 "$(pid)"
until fails cat mnt/small/answer; do :; done
./zarrfs umount --stale "$mnt"
forgotten
"#,
    );
}

/// A program that detaches a mount while its daemon registers it finds no entry to remove; fusermount3 and the kernel know nothing of entries.
#[test]
fn entries_for_umount_go_with_their_mounts() {
    run_with_demo(
        r#"
./zarrfs mount "$store" "$mnt"
known
daemon=$(pid)
fusermount3 -u "$mnt"
ended "$daemon"
forgotten
# Another program is quicker than the daemon, which is about to end when the entry is made.
mkdir bin
cat >bin/mount <<EOF
#!/bin/sh
fusermount3 -u -z "$mnt"
sleep 0.5
exec /bin/mount "\$@"
EOF
chmod +x bin/mount
PATH=$PWD/bin:$PATH ./zarrfs mount --foreground "$store" "$mnt" 2>said
gone
forgotten
# The daemon is killed, and others take its mount away.
./zarrfs mount --keeper=off "$store" "$mnt"
daemon=$(pid)
kill -9 "$daemon"
ended "$daemon"
fusermount3 -u -z "$mnt"
known
/bin/mount -c -i -f -t fuse.zarrfs -o uhelper=fuse.zarrfs -- a "/tmp/gone with it"
/bin/mount -c -i -f -t fuse.sshfs -o uhelper=fuse.sshfs -- a /tmp/of_another
mkdir inner
unshare --mount bash -c './zarrfs mount --keeper=off "$0" "$PWD/inner"; sed -n "s/.*\"pid\": \([0-9]*\).*/\1/p" inner/__zarrfs__/config.json >inner.pid' "$store"
./zarrfs mounts >list
forgotten
if grep "gone" /run/mount/utab; then echo "not cleaned"; exit 1; fi
grep -q "TARGET=/tmp/of_another" /run/mount/utab
# It is mounted in another namespace, which shares the file.
grep -q "TARGET=$PWD/inner " /run/mount/utab
kill -9 "$(cat inner.pid)"
ended "$(cat inner.pid)"
./zarrfs umount --stale "$mnt"
if grep "inner" /run/mount/utab; then echo "not cleaned"; exit 1; fi
"#,
    );
}

#[test]
fn fstab_for_root_and_for_users() {
    if !possible() {
        return;
    }
    let place = Place::demo();
    chown(place.mountpoint(), Some(65534), Some(65534)).unwrap();
    run(
        &place,
        r#"
mkdir other
echo "$store $mnt zarrfs nofail,allow_other,cache_size=64M 0 0" >fstab
echo "$store $PWD/other zarrfs noauto,ro 0 0" >>fstab
mount -a -T fstab
mounted
if grep -q " $PWD/other " /proc/self/mountinfo; then echo "noauto was mounted"; exit 1; fi
# A second time nothing is to be done.
mount -a -T fstab
umount mnt
gone
# A user, by a line with 'user'.
mknod device c 10 229 && chmod 666 device && mount --bind device /dev/fuse
echo "$store $mnt zarrfs noauto,user 0 0" >fstab
mount --bind fstab /etc/fstab
user() { setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
user mount "$mnt"
mounted
user test -s mnt/small/answer
fails cat mnt/small/answer
user ./zarrfs umount mnt
gone
"#,
    );
}

/// Runs as a user without rights.
fn as_user(uid: u32, gid: u32, program: &[&str]) -> bool {
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={uid}"), &format!("--regid={gid}"), "--clear-groups", "--"]);
    command.args(program).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap().success()
}

#[test]
fn a_daemon_of_root_shows_users_only_what_the_store_shows() {
    if !possible() {
        return;
    }
    let place = Place::new();
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    let modes = [0o600, 0o640, 0o644, 0o604, 0o660, 0o666, 0o400, 0o040];
    let (owner, group) = (12_001, 22_001);
    for mode in modes {
        let key = format!("m{mode:o}/zarr.json");
        place.put(&key, array_document(20, 7, "uint8"));
        let document = place.store().join(&key);
        chown(&document, Some(owner), Some(group)).unwrap();
        chown(document.parent().unwrap(), Some(owner), Some(group)).unwrap();
        fs::set_permissions(&document, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(place.folder.path().join("secret"), array_document(20, 7, "uint8")).unwrap();
    fs::create_dir(place.store().join("link")).unwrap();
    std::os::unix::fs::symlink("../../secret", place.store().join("link/zarr.json")).unwrap();
    place.mount(&["--writable"]);
    let status = fs::read_dir(format!("/proc/{}/task", place.daemon())).unwrap().map(|task| {
        let task = task.unwrap().path();
        let name = fs::read_to_string(task.join("comm")).unwrap().trim().to_owned();
        let text = fs::read_to_string(task.join("status")).unwrap();
        let mask = text.lines().find_map(|line| line.strip_prefix("CapPrm:")).unwrap().trim().to_owned();
        (name, u64::from_str_radix(&mask, 16).unwrap())
    });
    for (name, permitted) in status {
        let may_mount = permitted >> 21 & 1 == 1;
        assert_eq!(may_mount, name == "zarrfs-mounter", "{name} has {permitted:x}");
        assert_eq!(permitted & !(1 << 21 | 0b1_1111), 0, "{name} has {permitted:x}");
    }
    for mode in modes {
        let name = format!("m{mode:o}");
        let document = place.store().join(&name).join("zarr.json");
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        for (uid, gid) in [(owner, group), (12_002, group), (12_003, 22_003)] {
            let stored = as_user(uid, gid, &["cat", &text(&document)]);
            for shown in [&name, &format!("{name}.json")] {
                assert_eq!(
                    as_user(uid, gid, &["cat", &text(&place.path(shown))]),
                    stored,
                    "{shown} for {uid}:{gid}"
                );
            }
            let may_write = as_user(uid, gid, &["test", "-w", &text(&document)]);
            let writes = ["dd", "if=/dev/zero", "bs=100", "count=1", "conv=notrunc"];
            let to = format!("of={}", text(&place.path(&name)));
            let wrote = as_user(uid, gid, &[&writes[..], &[&to]].concat());
            assert_eq!(wrote, may_write, "writing {name} for {uid}:{gid}");
        }
    }
    let made = fs::metadata(place.store().join("m644/c/0/0")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&made), owner, "what is new belongs to the array's owner");
    assert!(fs::read(place.path("link")).is_err(), "no link leads out of the store");
    assert!(place.umount().status.success());
}
