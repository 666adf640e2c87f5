//! Names that programs make, remove and rename on a mount, and savers that write a file of their own and rename it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::faulty::compiled;
use crate::support::fixtures::python;
use crate::support::library;
use crate::support::mounted::Mount;
use crate::support::place::is_root;
use crate::support::skip;
use crate::support::users::{A, B, Stores};
use crate::support::{json_of, sorted_names};
use tempfile::TempDir;

const ALL: &[&str] = &["-o", "create,delete"];
const GROUP: &str = r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#;

fn new_store() -> TempDir {
    let store = tempfile::Builder::new().suffix(".zarr").tempdir().unwrap();
    fs::write(store.path().join("zarr.json"), GROUP).unwrap();
    store
}

fn consolidated_v2_store() -> TempDir {
    let store = tempfile::Builder::new().suffix(".zarr").tempdir().unwrap();
    let group = r#"{"zarr_format":2}"#;
    fs::write(store.path().join(".zgroup"), group).unwrap();
    let consolidated = format!(r#"{{"zarr_consolidated_format":1,"metadata":{{".zgroup":{group}}}}}"#);
    fs::write(store.path().join(".zmetadata"), consolidated).unwrap();
    store
}

/// Makes a store with the array `a` of 8 bytes that are 7.
fn store_with_array() -> TempDir {
    let store = new_store();
    fs::create_dir(store.path().join("a")).unwrap();
    let document = r#"{"zarr_format":3,"node_type":"array","shape":[8],"data_type":"uint8","fill_value":7,
        "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[4]}},
        "chunk_key_encoding":{"name":"default"},"codecs":[{"name":"bytes"}],"attributes":{"units":"K"}}"#;
    fs::write(store.path().join("a/zarr.json"), document).unwrap();
    store
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

/// Runs a line of a shell in the mount. `None` where a program of it is missing.
fn shell(mount: &Mount, line: &str) -> Option<(bool, String)> {
    let output = Command::new("sh").args(["-c", line]).current_dir(mount.point()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code() != Some(127)).then(|| (output.status.success(), text))
}

fn succeeds(mount: &Mount, line: &str) {
    let (is_done, text) = shell(mount, line).unwrap_or((true, String::new()));
    assert!(is_done, "{line}: {text}{}", mount.log());
}

fn attributes(store: &Path) -> serde_json::Value {
    let document: serde_json::Value = json_of(store.join("a/zarr.json"));
    document["attributes"].clone()
}

#[test]
fn nodes_come_go_and_move() {
    let Some(python) = python("names") else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/names.py");
    for version in ["2", "3"] {
        let store = if version == "2" { consolidated_v2_store() } else { new_store() };
        let Some(mount) = Mount::new(store.path(), ALL, "names") else { return };
        let mut command = Command::new(&python);
        command.arg(&script).args([store.path(), mount.point()]).arg(version);
        let output = command.output().unwrap();
        let said = format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "version {version}: {said}{}", mount.log());
        mount.unmount();
    }
}

/// Programs that write a file of their own, and rename it onto the one that they save.
#[test]
fn savers_that_rename_save() {
    let store = store_with_array();
    let Some(mount) = Mount::new(store.path(), &["--writable"], "savers") else { return };
    let units = |unit: &str, line: &str| {
        if shell(&mount, line).is_some_and(|(is_done, text)| {
            assert!(is_done, "{line}: {text}{}", mount.log());
            true
        }) {
            assert_eq!(attributes(store.path())["units"], unit, "{line}");
        }
        assert_eq!(sorted_names(mount.point()), ["__group__.json", "a", "a.json"], "{line}");
    };
    units("C", r#"sed -i '/"attributes"/,$ s/"K"/"C"/' a.json"#);
    units("F", r#"perl -pi -e 's/"units": "C"/"units": "F"/' a.json"#);
    units("R", r#"sed 's/"F"/"R"/' a.json >t && mv t a.json"#);
    units("m", r#"printf '{"attributes": {"units": "m"}}' >.t && mv .t a.json"#);
    units(
        "s",
        r#"sed 's/"m"/"s"/' a.json >/tmp/zarrfs-names-$$ && install -m 644 /tmp/zarrfs-names-$$ a.json; s=$?; rm /tmp/zarrfs-names-$$; exit $s"#,
    );
    units(
        "h",
        r#"d=$(mktemp -d) && sed 's/"s"/"h"/' a.json >$d/a.json && rsync -aI $d/a.json a.json; s=$?; rm -r $d; exit $s"#,
    );
    // As vim and emacs do: the original becomes the backup, and a new file takes its place.
    units("d", r#"sed 's/"h"/"d"/' a.json >t && mv a.json a.json~ && cat t >a.json && rm t a.json~"#);
    // An array's content, of exactly its size.
    succeeds(&mount, "printf 12345678 >t && mv t a");
    assert_eq!(fs::read(mount.path("a")).unwrap(), b"12345678");
    succeeds(&mount, "d=$(mktemp -d) && printf 87654321 >$d/a && rsync -I $d/a a; s=$?; rm -r $d; exit $s");
    assert_eq!(fs::read(store.path().join("a/c/0")).unwrap(), b"8765");
    mount.unmount();
}

/// Runs save_by_rename.c, which saves `content` as `path`; returns what it prints.
fn saved(program: &Path, path: &Path, content: &[u8]) -> String {
    let mut command = Command::new(program);
    let mut saving = command
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    saving.stdin.take().unwrap().write_all(content).unwrap();
    let output = saving.wait_with_output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Editors of KDE save so.
#[test]
fn savers_with_qt_save() {
    let Some(program) = compiled("save_by_rename.c", &[], "savers with Qt") else { return };
    let store = store_with_array();
    let Some(mount) = Mount::new(store.path(), &["--writable"], "savers with Qt") else { return };
    let sidecar = fs::read_to_string(mount.path("a.json")).unwrap();
    let edited = sidecar.replace(r#""K""#, r#""mol""#);
    assert_eq!(saved(&program, &mount.path("a.json"), edited.as_bytes()), "renamed\n", "{}", mount.log());
    assert_eq!(attributes(store.path())["units"], "mol");
    assert_eq!(saved(&program, &mount.path("a"), b"12345678"), "renamed\n", "{}", mount.log());
    assert_eq!(fs::read(mount.path("a")).unwrap(), b"12345678");
    assert_eq!(fs::read(store.path().join("a/c/1")).unwrap(), b"5678");
    assert_eq!(sorted_names(mount.point()), ["__group__.json", "a", "a.json"]);
    // What cannot take the name is refused, and the original stays.
    let said = saved(&program, &mount.path("a"), b"123");
    assert!(said.starts_with("rename: ") && said.contains("Invalid argument"), "{said}");
    assert_eq!(fs::read(mount.path("a")).unwrap(), b"12345678");
    mount.unmount();
    // Without --writable nothing can be made, nor written.
    let Some(mount) = Mount::new(store.path(), &[], "savers with Qt") else { return };
    let said = saved(&program, &mount.path("a.json"), sidecar.as_bytes());
    assert!(said.starts_with("open: ") && said.contains("Read-only"), "{said}");
    mount.unmount();
}

/// Nodes made on a mount in the other order of elements and of bytes. Arguments: store, mount.
const IN_ORDER_F: &str = r#"
import subprocess, sys
import numpy as np, zarr
store, mount = sys.argv[1:]
elements = np.arange(300, 312, dtype="i2").reshape(3, 4)

def check(path, expected):
    np.testing.assert_array_equal(zarr.open_array(f"{store}/{path}", mode="r")[...], expected, path)
    served = np.fromfile(f"{mount}/{path}", ">i2").reshape(expected.shape, order="F")
    np.testing.assert_array_equal(served, expected, path)

def run(line):
    subprocess.run(line, shell=True, cwd=mount, check=True)

with open(f"{mount}/t.json", "w") as file:
    file.write('{"shape": [3, 4], "descr": ">i2", "fortran_order": true, "chunks": [2, 3], "units": "m"}')
mapped = np.memmap(f"{mount}/t", ">i2", "r+", shape=(3, 4), order="F")
mapped[...] = elements
mapped.flush()
del mapped
check("t", elements)
np.save(f"{mount}/c.npy", elements)
np.save(f"{mount}/f.npy", np.asfortranarray(elements.astype(">i2")))
check("c", elements)
check("f", elements)
run("mkdir g && cp f.json g/u.json && cp f g/u && mv g/u g/moved && mv t g/t && rm c f.json")
check("g/t", elements)
check("g/moved", elements)
assert zarr.open_array(f"{store}/g/t", mode="r").attrs["units"] == "m"
# The last axis is the slowest in the file: it grows.
row = np.array([7, 8, 9], ">i2")
with open(f"{mount}/g/moved", "ab") as file:
    file.write(row.tobytes())
check("g/moved", np.column_stack([elements, row]))
assert [name for name, _ in zarr.open_group(store, mode="r", use_consolidated=False).arrays()] == []
run("rm -r g")
"#;

#[test]
fn nodes_in_order_f_and_big_endian() {
    let Some(python) = python("names in order F") else { return };
    for store in [consolidated_v2_store(), new_store()] {
        let options = [ALL, &["--order", "F", "--byte-order", "big"]].concat();
        let Some(mount) = Mount::new(store.path(), &options, "names in order F") else { return };
        let mut command = Command::new(&python);
        let output = command.args(["-c", IN_ORDER_F]).args([store.path(), mount.point()]).output().unwrap();
        assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stderr), mount.log());
        mount.unmount();
    }
}

#[test]
fn what_cannot_be_saved_is_refused_with_its_reason() {
    let store = store_with_array();
    let options = ["--writable", "--tune", "scratch-limit=20M"];
    let Some(mount) = Mount::new(store.path(), &options, "refused") else { return };
    fs::write(mount.path("t"), "123").unwrap();
    assert_eq!(errno(fs::rename(mount.path("t"), mount.path("a"))), Some(libc::EINVAL));
    assert!(mount.log().contains("the file has 3 bytes, and the array 8"), "{}", mount.log());
    assert_eq!(errno(fs::rename(mount.path("t"), mount.path("a.json"))), Some(libc::EINVAL));
    assert!(mount.log().contains("cannot parse the sidecar"), "{}", mount.log());
    assert_eq!(fs::read(mount.path("t")).unwrap(), b"123", "it stays as it was");
    fs::write(mount.path("u"), "456").unwrap();
    fs::rename(mount.path("t"), mount.path("u")).unwrap();
    assert_eq!(fs::read(mount.path("u")).unwrap(), b"123");
    assert_eq!(fs::read(mount.path("a")).unwrap(), [7; 8]);
    // Everything that neither --create nor --delete allows stays refused.
    assert_eq!(errno(fs::create_dir(mount.path("g"))), Some(libc::EPERM));
    assert_eq!(errno(fs::remove_file(mount.path("a"))), Some(libc::EPERM));
    assert_eq!(errno(fs::rename(mount.path("a"), mount.path("b"))), Some(libc::EPERM));
    assert_eq!(errno(File::create(mount.path("b.npy"))), Some(libc::EPERM));
    assert!(mount.log().contains("'-o create' makes arrays of .npy files"), "{}", mount.log());
    // A sidecar that was taken away comes back, as nothing has taken its place.
    fs::remove_file(mount.path("a.json")).unwrap();
    assert!(fs::metadata(mount.path("a.json")).is_err() && fs::metadata(mount.path("a")).is_ok());
    // More than the limit: nothing of it is kept.
    let file = File::create(mount.path("big")).unwrap();
    file.write_all_at(&vec![1; 18 << 20], 0).unwrap();
    assert_eq!(errno(file.write_all_at(&vec![1; 4 << 20], 18 << 20)), Some(libc::ENOSPC));
    let mut block = vec![0; 1 << 20];
    File::open(mount.path("big")).unwrap().read_exact_at(&mut block, 17 << 20).unwrap();
    assert_eq!(block, vec![1; 1 << 20]);
    drop(file);
    fs::remove_file(mount.path("big")).unwrap();
    // The kernel says later that the file is closed, and only then its room is free.
    while let Err(error) = fs::write(mount.path("big"), vec![2; 19 << 20]) {
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    }
    let log = mount.path("../log");
    let output = mount.umount(&[]);
    assert!(output.status.success());
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("/big: this scratch file of 19922944 bytes is gone"), "{log}");
    assert!(log.contains("/u: this scratch file of 3 bytes is gone"), "{log}");
}

/// Two programs race for one name: one of them makes the node, the other gets an error, and there is one whole node.
#[test]
fn racing_programs_make_one_node() {
    let store = new_store();
    let Some(mount) = Mount::new(store.path(), ALL, "races") else { return };
    for round in 0..8 {
        let name = format!("n{round}");
        let makers = [
            format!("mkdir {name}"),
            format!(r#"printf '{{"shape":[4],"descr":"|u1","fill_value":1}}' >{name}.json"#),
            format!(
                r#"printf '{{"shape":[5],"descr":"|u1","fill_value":2}}' >.t{round} && mv .t{round} {name}.json"#
            ),
        ];
        std::thread::scope(|scope| {
            for line in &makers {
                scope.spawn(|| shell(&mount, line));
            }
        });
        let found = fs::metadata(mount.path(&name)).unwrap();
        assert!(
            found.is_dir()
                || fs::read(mount.path(&name)).unwrap()
                    == vec![found.size() as u8 - 3; found.size() as usize]
        );
        // Removed by several at the same time, and made anew: never what it was.
        let removers = [format!("rm -r {name}"), format!("rm -rf {name}"), format!("mv {name} moved{round}")];
        std::thread::scope(|scope| {
            for line in &removers {
                scope.spawn(|| shell(&mount, line));
            }
        });
        assert!(fs::metadata(mount.path(&name)).is_err(), "{:?}", sorted_names(mount.point()));
        fs::create_dir(mount.path(&name)).unwrap();
        fs::write(mount.path(&name).join("x.json"), r#"{"shape":[2],"descr":"|u1"}"#).unwrap();
        assert_eq!(sorted_names(mount.path(&name)), ["__group__.json", "x", "x.json"]);
    }
    mount.unmount();
    let hidden = sorted_names(store.path()).into_iter().filter(|name| name.starts_with(".zarrfs"));
    assert_eq!(hidden.collect::<Vec<_>>(), [""; 0]);
}

/// On root's mount, a user makes and removes what the store's folders would let that user, and owns what is made.
#[test]
fn users_change_their_own_arrays() {
    if !is_root() {
        return skip("names of users", "needs root", true);
    }
    let stores = Stores::new();
    stores.array("a.zarr/public", b'P', A, (0o644, 0o644));
    stores.array("b.zarr/own", b'B', B, (0o644, 0o644));
    for (folder, mode) in [("a.zarr/open", 0o777), ("a.zarr/sticky", 0o1777)] {
        stores.folder(folder, A, mode);
        for name in ["one", "two"] {
            stores.array(&format!("{folder}/{name}"), b'O', A, (0o644, 0o644));
        }
    }
    let Some(mount) = Mount::new(stores.folder.path(), ALL, "names of users") else { return };
    fs::set_permissions(mount.point().parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let run = |user: u32, line: &str| {
        let mut command = Command::new("sh");
        let output = command
            .args(["-c", line])
            .current_dir(mount.point())
            .env("LC_ALL", "C")
            .uid(user)
            .gid(user)
            .output();
        output.unwrap().status.success()
    };
    for line in [
        "mkdir a.zarr/new",
        "echo x >a.zarr/t",
        "rm -f a.zarr/public",
        "mv a.zarr/public b.zarr/",
        "rm -f a.zarr/open/one",
        "mv a.zarr/open/one a.zarr/open/three",
        "rm -f a.zarr/sticky/one",
        "mv a.zarr/sticky/one a.zarr/open/",
        "rm -f a.zarr/sticky/one.json",
    ] {
        assert!(!run(B, line), "B: {line}");
    }
    for (user, line) in [
        (
            B,
            "mkdir a.zarr/open/b a.zarr/sticky/b && mv a.zarr/sticky/b a.zarr/sticky/c && rmdir a.zarr/open/b",
        ),
        (B, r#"echo '{"shape":[2],"descr":"|u1"}' >b.zarr/x.json && printf ab >b.zarr/x"#),
        (A, "mkdir a.zarr/new && rm -r a.zarr/new a.zarr/open/one && mv a.zarr/sticky/one a.zarr/three"),
    ] {
        assert!(run(user, line), "{user}: {line}: {}", mount.log());
    }
    for (path, owner) in
        [("b.zarr/x", B), ("b.zarr/x/zarr.json", B), ("a.zarr/sticky/c", B), ("a.zarr/three", A)]
    {
        assert_eq!(fs::metadata(stores.path(path)).unwrap().uid(), owner, "{path}");
    }
    assert_eq!(fs::read(mount.path("b.zarr/x")).unwrap(), b"ab");
    mount.unmount();
}

const FORTRAN: &str = "program p\n integer :: u\n open(newunit=u, file='f', access='stream', form='unformatted', \
                       status='old')\n write(u) [1d0, 2d0, 3d0]\n close(u)\nend program\n";

/// Programs that know nothing of Zarr fill arrays that a sidecar has declared a moment before.
#[test]
#[ignore = "full: needs R, Octave and gfortran"]
fn programs_fill_new_arrays() {
    let store = new_store();
    let Some(mount) = Mount::new(store.path(), ALL, "new arrays") else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("p.f90"), FORTRAN).unwrap();
    let program = folder.path().display();
    let bytes: Vec<u8> = [1f64, 2.0, 3.0].iter().flat_map(|number| number.to_le_bytes()).collect();
    for (name, line) in [
        ("r", "Rscript -e 'f <- file(\"r\", \"wb\"); writeBin(c(1, 2, 3), f); close(f)'".to_owned()),
        ("o", "octave-cli --eval \"f = fopen('o', 'w'); fwrite(f, 1:3, 'double'); fclose(f);\"".to_owned()),
        ("f", format!("gfortran -o {program}/p {program}/p.f90 && {program}/p")),
    ] {
        fs::write(mount.path(&format!("{name}.json")), r#"{"shape": [3], "descr": "<f8", "chunks": [2]}"#)
            .unwrap();
        let Some((is_done, text)) = shell(&mount, &line) else { continue };
        assert!(is_done, "{line}: {text}{}", mount.log());
        assert_eq!(fs::read(mount.path(name)).unwrap(), bytes, "{name}");
        let opened = zarrfs::store::open(store.path().to_str().unwrap(), false).unwrap();
        assert_eq!(library::read(&opened, name).unwrap(), bytes, "{name} in the store");
    }
    mount.unmount();
}

/// An array that another mount has open for writing stays.
#[test]
fn what_another_program_writes_is_not_removed() {
    let store = store_with_array();
    let mounts = [Mount::new(store.path(), ALL, "busy"), Mount::new(store.path(), ALL, "busy")];
    let [Some(mount), Some(other)] = mounts else { return };
    let file = File::options().read(true).write(true).open(other.path("a")).unwrap();
    assert_eq!(errno(fs::remove_file(mount.path("a"))), Some(libc::EBUSY));
    assert_eq!(errno(fs::rename(mount.path("a"), mount.path("b"))), Some(libc::EBUSY));
    file.write_all_at(b"12", 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read(store.path().join("a/c/0")).unwrap(), b"12\x07\x07");
    drop(file);
    other.unmount();
    fs::rename(mount.path("a"), mount.path("b")).unwrap();
    assert_eq!(fs::read(mount.path("b")).unwrap(), b"12\x07\x07\x07\x07\x07\x07");
    mount.unmount();
}

/// The bug: the lock of a renamed array stayed with the file that was open under the old name. Nobody could write or remove the array until that
/// file was closed, and the kernel closes it later than the program.
#[test]
fn a_renamed_array_is_free_although_its_old_file_is_open() {
    let store = store_with_array();
    let Some(mount) = Mount::new(store.path(), ALL, "renamed") else { return };
    let old = File::options().write(true).open(mount.path("a")).unwrap();
    old.write_all_at(b"1", 0).unwrap();
    old.sync_all().unwrap();
    fs::rename(mount.path("a"), mount.path("b")).unwrap();
    let new = File::options().write(true).open(mount.path("b")).unwrap();
    new.write_all_at(b"2", 1).unwrap();
    assert_eq!(errno(old.write_all_at(b"3", 2)), Some(libc::ESTALE));
    drop(old);
    new.sync_all().unwrap();
    assert_eq!(fs::read(store.path().join("b/c/0")).unwrap(), b"12\x07\x07");
    drop(new);
    fs::rename(mount.path("b"), mount.path("c")).unwrap();
    fs::remove_file(mount.path("c")).unwrap();
    assert!(!store.path().join("c").exists());
    mount.unmount();
}
