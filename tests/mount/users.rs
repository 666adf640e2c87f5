//! Two users and a mount of root's over a folder of stores of both: no user reads or changes through it what the store would not let
//! them. Each way to another user's chunks is tried as that user, read-only and writable.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::mounted::Mount;
use crate::support::place::{is_root, wait_for};
use crate::support::users::{A, B, SHARED, SIZE_BYTES, Stores, document};
use crate::support::{level, skip};
use serde_json::json;

const READ_ONLY: &[&str] = &["-o", "revalidate=0"];
const WRITABLE: &[&str] = &["-o", "writable,revalidate=0,tune=stop-deadline=1"];

fn mount(stores: &Stores, options: &[&str], what: &str) -> Option<Mount> {
    if !is_root() {
        skip(what, "needs root", true);
        return None;
    }
    let mount = Mount::new(stores.folder.path(), options, what)?;
    fs::set_permissions(mount.point().parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    Some(mount)
}

fn run_as((user, group): (u32, u32), program: &str, arguments: &[&str], path: &Path) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).arg(path).env("LC_ALL", "C").current_dir("/").uid(user).gid(group);
    command.output().unwrap()
}

/// Returns what a user reads; a word for why not.
pub fn read(user: u32, path: &Path) -> Result<Vec<u8>, String> {
    outcome(run_as((user, user), "cat", &[], path))
}

fn outcome(output: Output) -> Result<Vec<u8>, String> {
    let complaint = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(complaint.rsplit(": ").next().unwrap().to_owned())
    }
}

/// Writes `W` over all of the array, and waits until it is stored.
pub fn write(user: u32, path: &Path) -> Result<(), String> {
    write_in((user, user), path)
}

fn write_in(user: (u32, u32), path: &Path) -> Result<(), String> {
    let script = "printf %016d 0 | tr 0 W | dd of=\"$0\" bs=16 conv=notrunc,fsync status=none";
    outcome(run_as(user, "sh", &["-c", script], path)).map(drop)
}

pub fn denied<T>() -> Result<T, String> {
    Err("Permission denied".to_owned())
}

/// Makes A's arrays: public, secret by its files, secret by its folder.
pub fn make_arrays_of_a(stores: &Stores) {
    stores.array("a.zarr/public", b'P', A, (0o644, 0o644));
    stores.array("a.zarr/secret", b'S', A, (0o600, 0o600));
    stores.folder("a.zarr/vault", A, 0o755);
    stores.array("a.zarr/vault/x", b'V', A, (0o644, 0o644));
    stores.give("a.zarr/vault", A, 0o700);
    stores.array("a.zarr/half", b'H', A, (0o644, 0o644));
    stores.give("a.zarr/half/c", A, 0o700);
}

/// Ways of B to chunks of A that B may not read: an array each.
pub fn ways_to_chunks_of_another_user(stores: &Stores) -> Vec<&'static str> {
    let b = |name: &str| format!("b.zarr/{name}");
    for (name, target) in [("secret", "secret"), ("vault", "vault/x"), ("half", "half")] {
        let folder = b(&format!("folder_{name}"));
        stores.empty_array(&folder, B, 0o644);
        stores.link(&format!("../../a.zarr/{target}/c"), &format!("{folder}/c"), B);
        let middle = b(&format!("middle_{name}"));
        stores.empty_array(&middle, B, 0o600);
        stores.folder(&format!("{middle}/c"), B, 0o755);
        for row in 0..2 {
            stores.link(&format!("../../../a.zarr/{target}/c/{row}"), &format!("{middle}/c/{row}"), B);
        }
        let single = b(&format!("single_{name}"));
        stores.array(&single, b'B', B, (0o644, 0o644));
        for row in 0..2 {
            let chunk = format!("{single}/c/{row}/0");
            fs::remove_file(stores.path(&chunk)).unwrap();
            stores.link(&format!("../../../../a.zarr/{target}/c/{row}/0"), &chunk, B);
        }
    }
    // Under A's own document, which everybody may read.
    stores.folder("b.zarr/lent_document", B, 0o755);
    stores.link("../../a.zarr/public/zarr.json", "b.zarr/lent_document/zarr.json", B);
    stores.link("../../a.zarr/vault/x/c", "b.zarr/lent_document/c", B);
    // A hard link, as B could make it without protected_hardlinks.
    stores.array("b.zarr/hard", b'B', B, (0o644, 0o644));
    for row in 0..2 {
        let chunk = format!("b.zarr/hard/c/{row}/0");
        fs::remove_file(stores.path(&chunk)).unwrap();
        fs::hard_link(stores.path(&format!("a.zarr/secret/c/{row}/0")), stores.path(&chunk)).unwrap();
    }
    // Root's link does not open what is closed either.
    stores.empty_array("b.zarr/by_root", B, 0o644);
    stores.link("../../a.zarr/vault/x/c", "b.zarr/by_root/c", 0);
    // B's metadata for A's folder of chunks.
    let mut copy: serde_json::Value = serde_json::from_str(&document()).unwrap();
    copy["chunk_key_encoding"] = json!({"name": "v2", "configuration": {"separator": "/"}});
    let group = json!({"zarr_format": 3, "node_type": "group", "attributes": {},
        "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": {"s": copy, "h": copy}}});
    stores.folder("b.zarr/copies", B, 0o755);
    stores.file("b.zarr/copies/zarr.json", group.to_string(), B, 0o644);
    stores.link("../../a.zarr/secret/c", "b.zarr/copies/s", B);
    stores.link("../../a.zarr/half/c", "b.zarr/copies/h", B);
    // The document itself, and the array's folder.
    stores.folder("b.zarr/document", B, 0o755);
    stores.link("../../a.zarr/secret/zarr.json", "b.zarr/document/zarr.json", B);
    stores.link("../a.zarr/vault/x", "b.zarr/node", B);
    stores.link("../a.zarr/vault", "b.zarr/group", B);
    vec![
        "folder_secret",
        "folder_vault",
        "folder_half",
        "middle_secret",
        "middle_vault",
        "middle_half",
        "single_secret",
        "single_vault",
        "single_half",
        "lent_document",
        "hard",
        "by_root",
        "copies/s",
        "copies/h",
        "document",
        "node",
        "group/x",
    ]
}

#[test]
fn chunks_of_another_user_are_neither_read_nor_changed() {
    let stores = Stores::new();
    if !is_root() {
        return skip("users", "needs root", true);
    }
    make_arrays_of_a(&stores);
    let ways = ways_to_chunks_of_another_user(&stores);
    let before = stores.all_of_a();
    for options in [READ_ONLY, WRITABLE] {
        let Some(mount) = mount(&stores, options, "users") else { return };
        for way in &ways {
            let path = mount.path("b.zarr").join(way);
            let read = read(B, &path);
            assert_eq!(read, denied(), "{way} {options:?}: {}", mount.log());
            let written = write(B, &path);
            assert!(written.is_err(), "{way} {options:?}: {}", mount.log());
            assert!(stores.all_of_a() == before, "{way}: something of A's has changed");
        }
        let stats = [mount.path("__zarrfs__/stats"), mount.path("__zarrfs__/unsaved")];
        assert!(stats.iter().all(|path| read(B, path) == denied() && read(0, path).is_ok()));
        assert!(read(B, &mount.path("__zarrfs__/config.json")).is_ok());
        // What could not be stored is given up.
        mount.umount(&["--force"]);
    }
    assert!(stores.all_of_a() == before);
}

/// Returns the files of views that show bytes of an array.
fn views_of(array: &str) -> Vec<String> {
    let mut files: Vec<String> = ["c-order", "f-order", "big-endian", "little-endian", "unpacked"]
        .map(|view| format!("__views__/{view}/{array}"))
        .into();
    for axis in ["planes", "planes@1"] {
        files.push(format!("__views__/{axis}/{array}/000001"));
        files.push(format!("__formats__/npy/__views__/{axis}/{array}/000001.npy"));
    }
    files.push(format!("__formats__/npy/__views__/f-order/{array}.npy"));
    files
}

#[test]
fn views_do_not_show_chunks_of_another_user() {
    let stores = Stores::new();
    if !is_root() {
        return skip("users and views", "needs root", true);
    }
    make_arrays_of_a(&stores);
    let ways = ways_to_chunks_of_another_user(&stores);
    let is_tried = |file: &String| level::is_in_sample(file, 3);
    for options in [READ_ONLY, WRITABLE] {
        let Some(mount) = mount(&stores, options, "users and views") else { return };
        for array in ["public", "secret", "vault/x"] {
            for file in views_of(&format!("a.zarr/{array}")).into_iter().filter(is_tried) {
                let path = mount.path(&file);
                assert!(read(A, &path).is_ok(), "{file} {options:?}: {}", mount.log());
                let of_b = read(B, &path);
                assert_eq!(of_b.is_ok(), array == "public", "{file} {options:?}: {of_b:?}");
            }
        }
        for file in ways.iter().flat_map(|way| views_of(&format!("b.zarr/{way}"))).filter(is_tried) {
            // A node that cannot be read at all has no views.
            let read = read(B, &mount.path(&file));
            let is_absent = read == Err("No such file or directory".to_owned());
            assert!(read == denied() || is_absent, "{file} {options:?}: {read:?}: {}", mount.log());
        }
        mount.umount(&["--force"]);
    }
}

/// What stays open: (array, what A reads, what B reads, whether A may write, whether B may).
type Cell = (&'static str, Option<u8>, Option<u8>, bool, bool);

fn arrays_of_both_users(stores: &Stores) -> Vec<Cell> {
    make_arrays_of_a(stores);
    stores.give("a.zarr/half/c", A, 0o755);
    stores.empty_array("b.zarr/to_public", B, 0o644);
    stores.link("../../a.zarr/public/c", "b.zarr/to_public/c", B);
    stores.array("b.zarr/single", b'B', B, (0o644, 0o644));
    fs::remove_file(stores.path("b.zarr/single/c/1/0")).unwrap();
    stores.link("../../../../a.zarr/public/c/0/0", "b.zarr/single/c/1/0", B);
    stores.link("../a.zarr/secret", "b.zarr/node", B);
    stores.link("../a.zarr/vault", "b.zarr/group", B);
    stores.empty_array("a.zarr/own", A, 0o600);
    stores.folder("a.zarr/scratch", A, 0o755);
    stores.chunks("a.zarr/scratch/c", b'O', A, 0o600);
    stores.give("a.zarr/scratch", A, 0o700);
    stores.link("../scratch/c", "a.zarr/own/c", A);
    stores.array("a.zarr/missing", b'M', A, (0o644, 0o644));
    fs::rename(stores.path("a.zarr/missing/c"), stores.path("a.zarr/elsewhere")).unwrap();
    fs::remove_dir_all(stores.path("a.zarr/elsewhere/1")).unwrap();
    stores.link("../elsewhere", "a.zarr/missing/c", A);
    vec![
        ("a.zarr/public", Some(b'P'), Some(b'P'), true, false),
        ("a.zarr/secret", Some(b'S'), None, true, false),
        ("a.zarr/vault/x", Some(b'V'), None, true, false),
        ("a.zarr/half", Some(b'H'), Some(b'H'), true, false),
        ("b.zarr/to_public", Some(b'P'), Some(b'P'), false, false),
        ("b.zarr/single", Some(b'B'), Some(b'B'), false, true),
        ("b.zarr/node", Some(b'S'), None, true, false),
        ("b.zarr/group/x", Some(b'V'), None, true, false),
        ("a.zarr/own", Some(b'O'), None, true, false),
        ("a.zarr/missing", Some(b'M'), Some(b'M'), true, false),
    ]
}

#[test]
fn users_read_and_write_their_own_arrays() {
    let stores = Stores::new();
    if !is_root() {
        return skip("users", "needs root", true);
    }
    let cells = arrays_of_both_users(&stores);
    let Some(read_only) = mount(&stores, READ_ONLY, "users") else { return };
    for (name, of_a, of_b, ..) in &cells {
        for (user, expected) in [(A, of_a), (B, of_b)] {
            let got = read(user, &read_only.path(name));
            let first = got.as_ref().ok().and_then(|bytes| bytes.first().copied());
            assert_eq!(first, *expected, "{name} by {user}: {got:?} {}", read_only.log());
        }
    }
    let single = read(B, &read_only.path("b.zarr/single"));
    assert_eq!(single, Ok([[b'B'; 8], [b'P'; 8]].concat()), "a link to what everybody may read");
    assert_eq!(read(B, &read_only.path("a.zarr/missing")), Ok([[b'M'; 8], [0; 8]].concat()));
    read_only.unmount();
    for (name, .., by_a, by_b) in &cells {
        let before = stores.all_of_a();
        let Some(mount) = mount(&stores, WRITABLE, "users") else { return };
        for (user, may) in [(B, by_b), (A, by_a)] {
            let written = write(user, &mount.path(name));
            assert_eq!(written.is_ok(), *may, "{name} by {user}: {written:?} {}", mount.log());
            assert!(user == A || stores.all_of_a() == before, "{name}: B changed something of A's");
            if *may {
                assert_eq!(read(user, &mount.path(name)), Ok(vec![b'W'; SIZE_BYTES]), "{name} by {user}");
            }
        }
        let owners = stores.all_of_a().into_values().map(|(owner, ..)| owner);
        assert!(owners.into_iter().all(|owner| owner == A), "{name}");
        mount.umount(&["--force"]);
    }
    assert_eq!(fs::read(stores.path("a.zarr/scratch/c/0/0")).unwrap(), [b'W'; 8], "through A's own link");
}

/// Chunks of one member of a group next to the document of another.
#[test]
fn a_group_shares_a_store() {
    let stores = Stores::new();
    if !is_root() {
        return skip("a shared store", "needs root", true);
    }
    stores.array("shared", b'G', B, (0o660, 0o660));
    let mut folders = vec![stores.path("shared")];
    while let Some(folder) = folders.pop() {
        chown(&folder, None, Some(SHARED)).unwrap();
        let is_folder = folder.is_dir();
        fs::set_permissions(&folder, Permissions::from_mode(if is_folder { 0o2770 } else { 0o660 })).unwrap();
        if is_folder {
            folders.extend(fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    chown(stores.path("shared/zarr.json"), Some(A), Some(SHARED)).unwrap();
    let Some(mount) = mount(&stores, WRITABLE, "a shared store") else { return };
    let path = mount.path("shared");
    for user in [A, B] {
        let got = outcome(run_as((user, SHARED), "cat", &[], &path));
        assert_eq!(got, Ok(vec![b'G'; SIZE_BYTES]), "{}", mount.log());
    }
    assert_eq!(read(B, &path), denied());
    assert_eq!(write_in((A, SHARED), &path), Ok(()), "{}", mount.log());
    let chunk = fs::metadata(stores.path("shared/c/0/0")).unwrap();
    assert_eq!((chunk.uid(), chunk.gid(), chunk.mode() & 0o7777), (B, SHARED, 0o660));
    mount.unmount();
}

/// A chunk, or a folder of chunks, that others may not read, though the document says that they may.
#[test]
fn a_chunk_narrower_than_its_document() {
    let stores = Stores::new();
    if !is_root() {
        return skip("narrow chunks", "needs root", true);
    }
    make_arrays_of_a(&stores);
    stores.array("a.zarr/narrow", b'N', A, (0o644, 0o644));
    stores.give("a.zarr/narrow/c/1/0", A, 0o600);
    stores.array("a.zarr/later", b'L', A, (0o600, 0o600));
    let Some(shared) = mount(&stores, READ_ONLY, "narrow chunks") else { return };
    let Some(own) = Mount::new(stores.folder.path(), &["-o", "allow-other=off"], "narrow chunks") else {
        return;
    };
    assert_eq!(read(0, &own.path("a.zarr/narrow")), Ok(vec![b'N'; SIZE_BYTES]), "root alone is there");
    assert_eq!(read(0, &own.path("a.zarr/half")), Ok(vec![b'H'; SIZE_BYTES]));
    own.unmount();
    for user in [A, B, 0] {
        assert_eq!(read(user, &shared.path("a.zarr/narrow")), denied());
        assert_eq!(read(user, &shared.path("a.zarr/half")), denied());
    }
    for part in ["narrow/c/1/0", "half/c/0/0", "chmod"] {
        assert!(shared.log().contains(part), "{}", shared.log());
    }
    stores.give("a.zarr/narrow/c/1/0", A, 0o644);
    assert_eq!(read(B, &shared.path("a.zarr/narrow")), Ok(vec![b'N'; SIZE_BYTES]));
    // What was read before is not given out afterwards.
    stores.give("a.zarr/narrow/c/0/0", A, 0o600);
    assert_eq!(read(B, &shared.path("a.zarr/narrow")), denied());
    let path = shared.path("a.zarr/later");
    assert_eq!(read(A, &path), Ok(vec![b'L'; SIZE_BYTES]));
    stores.give("a.zarr/later/zarr.json", A, 0o644);
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(1500) {
        assert_eq!(read(B, &path), denied(), "the chunks are A's only");
    }
    shared.unmount();
}

/// What B has open is not filled with what only A may read, though the file shows A's by now.
#[test]
fn a_file_that_was_opened_before() {
    let stores = Stores::new();
    if !is_root() {
        return skip("open files", "needs root", true);
    }
    make_arrays_of_a(&stores);
    stores.array("b.zarr/own", b'B', B, (0o644, 0o644));
    stores.link("own", "b.zarr/x", B);
    let Some(mount) = mount(&stores, READ_ONLY, "open files") else { return };
    let path = mount.path("b.zarr/x");
    let mut command = Command::new("sh");
    let script = "exec 3<\"$0\"; echo ready; read line; cat <&3";
    command.args(["-c", script]).arg(&path).current_dir("/").uid(B).gid(B);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    fs::remove_file(stores.path("b.zarr/x")).unwrap();
    stores.link("../a.zarr/secret", "b.zarr/x", B);
    assert!(fs::metadata(&path).unwrap().uid() == A, "{}", mount.log());
    assert_eq!(read(A, &path), denied(), "B has it open: {}", mount.log());
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let seen = child.wait_with_output().unwrap().stdout;
    assert!(!seen.contains(&b'S'), "B has read A's bytes");
    wait_for(|| read(A, &path) == Ok(vec![b'S'; SIZE_BYTES]));
    assert_eq!(read(B, &path), denied());
    mount.unmount();
}

/// Links that lead out of the store, where they may.
#[test]
fn links_that_lead_out() {
    let (stores, outside) = (Stores::new(), Stores::new());
    if !is_root() {
        return skip("links out", "needs root", true);
    }
    make_arrays_of_a(&outside);
    for (name, target) in [("public", "public"), ("secret", "secret"), ("vault", "vault/x")] {
        stores.empty_array(&format!("b.zarr/{name}"), B, 0o644);
        let target = outside.path(&format!("a.zarr/{target}/c"));
        stores.link(target.to_str().unwrap(), &format!("b.zarr/{name}/c"), B);
    }
    let options = [READ_ONLY, &["--follow-symlinks"]].concat();
    let Some(following) = mount(&stores, &options, "links out") else { return };
    assert_eq!(read(B, &following.path("b.zarr/public")), Ok(vec![b'P'; SIZE_BYTES]), "{}", following.log());
    for name in ["secret", "vault"] {
        assert_eq!(read(B, &following.path("b.zarr").join(name)), denied(), "{name}");
    }
    following.unmount();
}

/// B puts a link to what is A's in the place of a folder, and takes it away again, while B reads and writes.
#[test]
fn a_swap_between_the_look_and_the_use() {
    let stores = Stores::new();
    if !is_root() {
        return skip("swaps", "needs root", true);
    }
    make_arrays_of_a(&stores);
    stores.array("b.zarr/x", b'B', B, (0o644, 0o644));
    stores.array("b.zarr/y", b'B', B, (0o644, 0o644));
    for array in ["x", "y"] {
        fs::rename(stores.path(&format!("b.zarr/{array}/c")), stores.path(&format!("b.zarr/{array}.own")))
            .unwrap();
        stores.link(&format!("../{array}.own"), &format!("b.zarr/{array}/c"), B);
    }
    let before = stores.all_of_a();
    let Some(mount) = mount(&stores, WRITABLE, "swaps") else { return };
    let is_over = AtomicBool::new(false);
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        for (array, target) in [("x", "vault/x"), ("y", "half")] {
            let (is_over, stores) = (&is_over, &stores);
            scope.spawn(move || {
                let texts = [format!("../{array}.own"), format!("../../a.zarr/{target}/c")];
                let (next, link) = (format!("b.zarr/{array}/next"), format!("b.zarr/{array}/c"));
                for text in texts.iter().cycle() {
                    stores.link(text, &next, B);
                    fs::rename(stores.path(&next), stores.path(&link)).unwrap();
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let again = |array: &'static str, script: &'static str| {
            let path = mount.path("b.zarr").join(array);
            let looped = format!("while :; do {script}; done");
            scope.spawn(move || run_as((B, B), "timeout", &["2", "sh", "-c", &looped], &path).stdout)
        };
        let threads = [
            again("x", "cat \"$0\" 2>/dev/null"),
            again("y", "cat \"$0\" 2>/dev/null"),
            again("y", "printf %016d 0 | tr 0 W | dd of=\"$0\" bs=16 conv=notrunc,fsync 2>/dev/null"),
        ];
        for thread in threads {
            seen.extend(thread.join().unwrap());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(seen.contains(&b'B'), "nothing was read: {}", mount.log());
    assert!(!seen.iter().any(|letter| b"VHS".contains(letter)), "A's bytes were read");
    assert!(stores.all_of_a() == before, "something of A's has changed");
    mount.umount(&["--force"]);
}
