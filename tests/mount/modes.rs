//! Owners and modes of nodes that programs make on root's mount: those that their files and folders had from the beginning.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::support::fixtures::python;
use crate::support::mounted::Mount;
use crate::support::place::is_root;
use crate::support::skip;
use crate::support::users::{A, B, SHARED, SIZE_BYTES, Stores};

const CREATE: &[&str] = &["-o", "create,delete,revalidate=0"];

fn mount(stores: &Stores, what: &str) -> Option<Mount> {
    if !is_root() {
        skip(what, "needs root", true);
        return None;
    }
    for (store, user) in [("a.zarr", A), ("b.zarr", B)] {
        let group = r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#;
        stores.file(&format!("{store}/zarr.json"), group, user, 0o644);
    }
    let mount = Mount::new(stores.folder.path(), CREATE, what)?;
    fs::set_permissions(mount.point().parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    Some(mount)
}

fn run(mount: &Mount, user: u32, line: &str) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(mount.point()).uid(user).gid(user);
    command.status().unwrap().success()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// Returns what others may do with a node in the store: its folder, and its documents and chunks.
fn is_closed(folder: &Path) -> bool {
    let mut paths = vec![folder.to_owned()];
    while let Some(path) = paths.pop() {
        if mode(&path) & 0o077 != 0 {
            return false;
        }
        if path.is_dir() {
            paths.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    true
}

/// Saves an .npy file of this many elements as a program does that sets the mode before it closes the file.
fn save(name: &str, elements: usize, modes: &str) -> String {
    let script = r#"my ($name, $n, $mask, $mode) = @ARGV; umask oct $mask; open(F, ">", $name) or die;
        my $d = "{'descr': '|u1', 'fortran_order': False, 'shape': ($n,), }";
        $d = "\x93NUMPY\x01\x00\x76\x00" . sprintf("%-117s\n", $d) . ("x" x $n);
        for (my $at = 0; $at < length $d; $at += 1 << 20) { syswrite(F, $d, 1 << 20, $at) or die; }
        chmod(oct $mode, \*F) or die; close(F) or die;"#;
    format!("perl -e '{}' {name} {elements} {modes}", script.replace('\'', "'\\''"))
}

#[test]
fn what_is_made_private_stays_private() {
    let stores = Stores::new();
    let Some(mount) = mount(&stores, "private nodes") else { return };
    let declaration = r#"echo '{"shape": [4], "descr": "|u1"}'"#;
    for (name, line) in [
        ("folder", "mkdir -m 700 folder".to_owned()),
        ("masked", "umask 077; mkdir masked".to_owned()),
        ("declared", format!("umask 077; {declaration} >declared.json; printf abcd >declared")),
        ("elements", format!("(umask 077; printf abcd >elements); {declaration} >elements.json")),
        ("later", format!("umask 022; {declaration} >t; chmod 600 t; mv t later.json; printf abcd >later")),
        ("short", save("short.npy", 4, "077 600")),
        ("long", save("long.npy", 17 << 20, "077 600")),
        ("closed", save("closed.npy", 17 << 20, "022 600")),
        ("renamed", format!("{}; mv t renamed.npy", save("t", 4, "077 600"))),
        ("moved", "umask 077; mkdir t; mv t moved".to_owned()),
    ] {
        assert!(run(&mount, A, &format!("cd a.zarr; {line}")), "{name}: {}", mount.log());
        let shown = fs::metadata(mount.path("a.zarr").join(name)).unwrap();
        assert_eq!((shown.uid(), shown.mode() & 0o077), (A, 0), "{name}");
        assert!(is_closed(&stores.path("a.zarr").join(name)), "{name}");
    }
    assert_eq!(fs::read(mount.path("a.zarr/declared")).unwrap(), b"abcd");
    assert_eq!(fs::read(mount.path("a.zarr/closed")).unwrap(), vec![b'x'; 17 << 20]);
    mount.unmount();
}

/// `cp -a` and tar make what they copy private at first.
#[test]
fn what_is_opened_later_is_open() {
    let stores = Stores::new();
    let Some(mount) = mount(&stores, "opened nodes") else { return };
    let x = save("x.npy", 17 << 20, "077 644");
    let line = format!("cd a.zarr; umask 077; mkdir g && chmod 750 g && chmod 755 g && {x}");
    assert!(run(&mount, A, &line), "{}", mount.log());
    assert_eq!((mode(&mount.path("a.zarr/g")), mode(&stores.path("a.zarr/g"))), (0o755, 0o755));
    assert_eq!(mode(&stores.path("a.zarr/g/zarr.json")), 0o644);
    let cat = "test $(wc -c <a.zarr/x) = 17825792 && cat a.zarr/g/__group__.json >/dev/null";
    assert!(run(&mount, B, cat), "{}", mount.log());
    let y = r#"echo '{"shape": [4], "descr": "|u1", "chunks": [2]}' >y.json; printf abcd >y"#;
    assert!(run(&mount, A, &format!("umask 022; cd a.zarr; {y}; chmod 600 y")), "{}", mount.log());
    assert!(is_closed(&stores.path("a.zarr/y")) && !run(&mount, B, "cat a.zarr/y 2>/dev/null"));
    assert!(run(&mount, A, "chmod 644 a.zarr/y") && run(&mount, B, "cat a.zarr/y"), "{}", mount.log());
    assert!(!run(&mount, B, "chmod 777 a.zarr/g 2>/dev/null"), "it is A's");
    assert!(!run(&mount, A, "chmod 2755 a.zarr/g 2>/dev/null"), "no mount sets this bit");
    mount.unmount();
}

#[test]
fn a_folder_gives_its_group_to_what_is_made_in_it() {
    let stores = Stores::new();
    let Some(mount) = mount(&stores, "set-group-ID") else { return };
    let shared = stores.path("a.zarr");
    chown(&shared, Some(A), Some(SHARED)).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o2775)).unwrap();
    let line = r#"umask 002; cd a.zarr; mkdir g g/h; echo '{"shape": [4], "descr": "|u1"}' >x.json; printf abcd >x; echo t >t"#;
    assert!(run(&mount, A, line), "{}", mount.log());
    for (name, mode) in [
        ("g", 0o2775),
        ("g/h", 0o2775),
        ("g/h/zarr.json", 0o664),
        ("x", 0o2775),
        ("x/c", 0o2775),
        ("x/c/0", 0o664),
        ("x/zarr.json", 0o664),
    ] {
        let found = fs::metadata(shared.join(name)).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (A, SHARED, mode), "{name}");
    }
    assert_eq!(fs::metadata(mount.path("a.zarr/t")).unwrap().gid(), SHARED, "a scratch file");
    mount.unmount();
}

/// Programs that set owner and mode of what they have written, and fail where they cannot.
#[test]
fn copies_end_well_where_chmod_is_ignored() {
    let stores = Stores::new();
    if !is_root() {
        return skip("chmod=ignore", "needs root", true);
    }
    stores.array("a.zarr/x", b'A', A, (0o644, 0o644));
    let source = stores.path("source");
    fs::write(&source, [b'N'; SIZE_BYTES]).unwrap();
    fs::set_permissions(&source, Permissions::from_mode(0o600)).unwrap();
    let from = source.display();
    let python = python("chmod=ignore");
    let shutil = python.map(|python| {
        format!("{} -c 'import shutil; shutil.copy(\"{from}\", \"a.zarr/x\")'", python.display())
    });
    let lines = [
        Some(format!("cp -p {from} a.zarr/x")),
        Some(format!("cp -a {from} a.zarr/x")),
        Some(format!("rsync -aI --inplace {from} a.zarr/x")),
        Some("chown 7:7 a.zarr/x && chmod 7777 a.zarr/x && touch -d 2001-01-01 a.zarr/x".to_owned()),
        shutil,
    ];
    for word in ["refuse", "ignore"] {
        let options = format!("writable,revalidate=0,chmod={word}");
        let Some(mount) = Mount::new(stores.folder.path(), &["-o", &options], "chmod") else { return };
        let before = fs::metadata(mount.path("a.zarr/x")).unwrap();
        for line in lines.iter().flatten() {
            fs::write(mount.path("a.zarr/x"), [b'O'; SIZE_BYTES]).unwrap();
            let output = Command::new("sh").args(["-c", line]).current_dir(mount.point()).output().unwrap();
            if output.status.code() == Some(127) {
                skip(line, "a program is missing", false);
                continue;
            }
            assert_eq!(output.status.success(), word == "ignore", "{line}: {output:?} {}", mount.log());
            let after = fs::metadata(mount.path("a.zarr/x")).unwrap();
            assert_eq!((after.uid(), after.mode()), (before.uid(), before.mode()), "{line}");
            let is_copied = fs::read(mount.path("a.zarr/x")).unwrap() == [b'N'; SIZE_BYTES];
            assert!(is_copied || line.starts_with("chown"), "{line}");
        }
        mount.unmount();
    }
}

/// Commands make what they make under the caller's umask, as cp does, below a group that is open to all.
#[test]
fn commands_obey_the_umask() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("elements"), [7; 24]).unwrap();
    let array = "--shape 4,6 --dtype uint8 --chunks 2,3";
    let lines = [
        "mkgroup store.zarr GROUP".to_owned(),
        "mkgroup store.zarr GROUP/x/y --parents".to_owned(),
        format!("create store.zarr GROUP/array {array}"),
        format!("import elements store.zarr GROUP/imported {array}"),
        format!("import elements new-GROUP.zarr array --new {array}"),
    ];
    let run = |umask: &str, line: &str| {
        let program = env!("CARGO_BIN_EXE_zarrfs");
        let line = format!("umask {umask}; exec '{program}' {line}");
        let status = Command::new("sh").args(["-c", &line]).current_dir(folder.path()).status();
        assert!(status.unwrap().success(), "{line}");
    };
    run("022", "mkgroup store.zarr / --new");
    for (umask, closed) in [("077", 0o077), ("027", 0o027), ("022", 0o022)] {
        let group = format!("under-{umask}");
        lines.iter().for_each(|line| run(umask, &line.replace("GROUP", &group)));
        let mut paths = vec![at("store.zarr").join(&group), at(&format!("new-{group}.zarr"))];
        let (mut files, mut folders) = (0, 0);
        while let Some(path) = paths.pop() {
            let is_folder = path.is_dir();
            let all = if is_folder { 0o777 } else { 0o666 };
            assert_eq!(mode(&path), all & !closed, "{}", path.display());
            *(if is_folder { &mut folders } else { &mut files }) += 1;
            if is_folder {
                paths.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        assert!(files >= 13 && folders >= 10, "{files} files, {folders} folders");
    }
}
