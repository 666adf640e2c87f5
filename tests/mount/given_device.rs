//! Mounts that another program has made, which leaves the opened device to `zarrfs mount STORE /dev/fd/N`: the recipes of docs/operations.md. Small
//! scripts, a user namespace and nsenter(1) stand in for container engines.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use crate::support::place::*;
use crate::support::skip;

/// Opens the device as descriptor 3, and mounts it on `mnt` with further options.
const MOUNT: &str = r#"
device() {
    exec 3<>/dev/fuse
    mount -i -t fuse.zarrfs -o "fd=3,rootmode=40000,user_id=0,group_id=0,nosuid,nodev,$1" store mnt
}
"#;

/// Runs a script in the folder of a place, where `$zarrfs` is the program.
fn run(place: &Place, script: &str) -> Output {
    let mut command = Command::new("timeout");
    command.args(["100", "bash", "-ec"]).arg(MOUNT.to_owned() + script).current_dir(place.folder.path());
    command.env("zarrfs", PROGRAM).stdin(Stdio::null()).output().unwrap()
}

fn run_well(place: &Place, script: &str) {
    let output = run(place, script);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
}

fn can_mount_by_itself() -> bool {
    let can = can_mount() && is_root();
    if !can {
        skip("a mount by another program", "only root can mount without a namespace", false);
    }
    can
}

#[test]
fn the_program_that_mounted_unmounts() {
    if !can_mount_by_itself() {
        return;
    }
    let place = Place::demo();
    run_well(&place, "device ro,allow_other,default_permissions; $zarrfs mount store.zarr /dev/fd/3");
    assert_eq!(fs::read(place.path("climate/temperature")).unwrap(), place.cat("climate/temperature"));
    let daemon = place.daemon();
    run_well(&place, "umount -i mnt");
    wait_for(|| !is_running(daemon));

    // SIGTERM ends the daemon, and leaves the mount to the program that mounted. A mount that is not read-only refuses writes, too.
    run_well(&place, "device default_permissions; $zarrfs mount store.zarr /dev/fd/3");
    let written = File::options().write(true).open(place.path("climate/lat")).unwrap_err();
    assert_eq!(written.raw_os_error(), Some(libc::EROFS));
    assert_eq!(fs::create_dir(place.path("new")).unwrap_err().raw_os_error(), Some(libc::EROFS));
    let held = File::open(place.path("climate/lat")).unwrap();
    let daemon = place.daemon();
    signal(daemon, "TERM");
    wait_for(|| !is_running(daemon));
    assert!(is_mounted(&place.mountpoint()));
    drop(held);
    run_well(&place, "umount -i -l mnt");

    // What was written is stored before.
    run_well(&place, "device default_permissions; $zarrfs mount --writable store.zarr /dev/fd/3");
    let length = fs::metadata(place.path("small/answer")).unwrap().len();
    let mut file = File::options().write(true).open(place.path("small/answer")).unwrap();
    let bytes = vec![7; usize::try_from(length).unwrap()];
    std::io::Write::write_all(&mut file, &bytes).unwrap();
    let daemon = place.daemon();
    signal(daemon, "TERM");
    wait_for(|| !is_running(daemon));
    drop(file);
    run_well(&place, "umount -i -l mnt");
    assert_eq!(place.cat("small/answer"), bytes);
}

/// The recipe for a driver (CSI): it mounts where the programs are, in another mount namespace, and the process that serves has no rights.
#[test]
fn a_server_without_rights_serves_another_namespace() {
    if !can_mount_by_itself() {
        return;
    }
    let place = Place::demo();
    // Not by this process: a program that another test starts meanwhile would have the file open for writing (ETXTBSY).
    let copied = Command::new("cp").arg(PROGRAM).arg(place.folder.path().join("program")).status().unwrap();
    assert!(copied.success());
    fs::set_permissions(place.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let script = r#"
        unshare --mount --propagation private sleep 60 & pod=$!
        trap 'kill $pod' EXIT
        until [ "$(readlink /proc/$pod/ns/mnt)" != "$(readlink /proc/self/ns/mnt)" ]; do sleep 0.02; done
        exec 3<>/dev/fuse
        nsenter -t $pod -m mount -i -t fuse.zarrfs -o fd=3,rootmode=40000,user_id=0,group_id=0,ro,allow_other,default_permissions store "$PWD/mnt"
        setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all             ./program mount --foreground store.zarr /dev/fd/3 & server=$!
        trap 'kill $pod $server' EXIT
        exec 3>&-
        nsenter -t $pod -m cat "$PWD/mnt/climate/temperature" >copy
        grep -q "^CapPrm:.0*$" /proc/$server/status
        ! grep -q " $PWD/mnt " /proc/self/mountinfo
        nsenter -t $pod -m umount -i "$PWD/mnt"
        wait $server"#;
    run_well(&place, script);
    assert!(fs::read(place.folder.path().join("copy")).unwrap() == place.cat("climate/temperature"));
}

/// The recipe for containers without privileges: a user mounts in a user namespace. The arguments are in the order in which Apptainer
/// gives them to the program of --fusemount.
#[test]
fn a_user_namespace_has_a_mount_of_its_own() {
    let Some(place) = Place::mountable_demo() else { return };
    if !run(&place, "unshare --user --map-root-user --mount true").status.success() {
        return skip("a mount in a user namespace", "user namespaces are not allowed", false);
    }
    let script = r#"
        unshare --user --map-root-user --mount --propagation private sleep 60 & container=$!
        trap 'kill $container' EXIT
        until [ "$(readlink /proc/$container/ns/mnt)" != "$(readlink /proc/self/ns/mnt)" ] && grep -q . /proc/$container/uid_map; do sleep 0.02; done
        enter="nsenter -t $container --user --mount --preserve-credentials"
        export -f device
        $enter bash -ec "cd $PWD; device ro; exec setpriv --bounding-set=-all --inh-caps=-all $zarrfs mount store.zarr -f /dev/fd/3" & server=$!
        trap 'kill $container $server' EXIT
        until $enter cat "$PWD/mnt/climate/temperature" >copy 2>/dev/null && [ -s copy ]; do kill -0 $server; sleep 0.05; done
        ! grep -q " $PWD/mnt " /proc/self/mountinfo
        $enter umount -i "$PWD/mnt"
        wait $server"#;
    run_well(&place, script);
    assert!(fs::read(place.folder.path().join("copy")).unwrap() == place.cat("climate/temperature"));
}

#[test]
fn what_is_not_a_mounted_device_is_refused_with_a_sentence() {
    let place = Place::demo();
    let refused = |script: &str| refusal(&run(&place, script), 1);
    assert!(refused("$zarrfs mount store.zarr /dev/fd/77").contains("/dev/fd/77 is not open"));
    assert!(refused("$zarrfs mount store.zarr /dev/fd/7 7</dev/null").contains("/dev/fd/7 is not /dev/fuse"));
    assert!(refused("$zarrfs mount store.zarr /dev/fd/7 7<.").contains("/dev/fd/7 is not /dev/fuse"));
    if can_mount() {
        let unmounted = refused("$zarrfs mount store.zarr /dev/fd/7 7<>/dev/fuse");
        assert!(unmounted.contains("is not mounted: open /dev/fuse, mount it"), "{unmounted}");
    }
}
