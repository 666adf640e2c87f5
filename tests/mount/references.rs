//! References on a mount: targets that change, targets that other users may not read, and an overlay over them.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::mounted::Mount;
use crate::support::place::{is_root, refusal, zarrfs};
use crate::support::skip;
use crate::support::users::{A, B, Stores};

fn document() -> Value {
    json!({"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "|u1", "fill_value": 0, "order": "C", "compressor": null, "filters": null})
}

#[test]
fn a_target_that_changes_is_served_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("data.bin"), b"....old!").unwrap();
    let references = json!({"a/.zarray": document(), "a/0": ["data.bin", 4, 4]});
    fs::write(at("refs.json"), references.to_string()).unwrap();
    let Some(mount) = Mount::new(&at("refs.json"), &["-o", "revalidate=0"], "changed targets") else {
        return;
    };
    assert_eq!(fs::read(mount.path("a")).unwrap(), b"old!");
    fs::write(at("new.bin"), b"....new!").unwrap();
    fs::rename(at("new.bin"), at("data.bin")).unwrap();
    assert_eq!(fs::read(mount.path("a")).unwrap(), b"new!");
    fs::write(at("short.bin"), b"....").unwrap();
    fs::rename(at("short.bin"), at("data.bin")).unwrap();
    assert_eq!(fs::read(mount.path("a")).unwrap_err().raw_os_error(), Some(libc::EIO));
    mount.unmount();
}

fn read_as(user: u32, path: &Path) -> Option<Vec<u8>> {
    let mut command = Command::new("cat");
    let output = command.arg(path).current_dir("/").uid(user).gid(user).output().unwrap();
    output.status.success().then_some(output.stdout)
}

/// As root, for all users: no user reads what the target's permissions deny.
#[test]
fn a_target_is_read_with_the_users_permissions() {
    if !is_root() {
        return skip("users of references", "needs root", true);
    }
    let stores = Stores::new();
    let mut references = serde_json::Map::new();
    for (name, user, mode, folder_mode) in
        [("public", A, 0o644, 0o755), ("secret", A, 0o600, 0o755), ("closed", A, 0o644, 0o700)]
    {
        stores.folder(&format!("b.zarr/{name}"), user, folder_mode);
        stores.file(&format!("b.zarr/{name}/data.bin"), b"data", user, mode);
        references.insert(format!("{name}/.zarray"), document());
        references.insert(format!("{name}/0"), json!([format!("{name}/data.bin"), 0, 4]));
    }
    // A document of A's own.
    stores.file("b.zarr/zarray", document().to_string(), A, 0o600);
    references.insert("by_document/.zarray".to_owned(), json!(["zarray"]));
    references.insert("by_document/0".to_owned(), json!("text"));
    stores.file("b.zarr/refs.json", Value::from(references).to_string(), B, 0o644);
    let path = stores.path("b.zarr/refs.json");
    let Some(mount) = Mount::new(&path, &["-o", "revalidate=0"], "users of references") else { return };
    fs::set_permissions(mount.point().parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(read_as(B, &mount.path("public")).as_deref(), Some(&b"data"[..]), "{}", mount.log());
    for name in ["secret", "closed", "by_document"] {
        assert_eq!(read_as(B, &mount.path(name)), None, "{name}");
    }
    mount.unmount();
}

/// What is written is in the overlay; nothing writes references or the files that they refer to.
#[test]
fn an_overlay_takes_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("data.bin"), b"....old!same").unwrap();
    let references = json!({".zgroup": {"zarr_format": 2}, "a/.zarray": document(), "a/0": ["data.bin", 4, 4],
        "b/.zarray": document(), "b/0": ["data.bin", 8, 4], "c/.zarray": document()});
    fs::write(at("refs.json"), references.to_string()).unwrap();
    let overlay = at("overlay").to_str().unwrap().to_owned();
    let mount =
        || Mount::new(&at("refs.json"), &["--writable", "--overlay", &overlay], "an overlay over references");
    let Some(writable) = mount() else { return };
    for (name, bytes) in [("a", b"new!"), ("c", b"more")] {
        File::options().write(true).open(writable.path(name)).unwrap().write_all_at(bytes, 0).unwrap();
    }
    writable.unmount();
    let again = mount().unwrap();
    for (name, bytes) in [("a", b"new!"), ("b", b"same"), ("c", b"more")] {
        assert_eq!(fs::read(again.path(name)).unwrap(), bytes, "{name}");
    }
    again.unmount();
    let sentence = refusal(&zarrfs(&["overlay", "commit", &overlay]), 1);
    assert!(sentence.contains("refs.json cannot be written"), "{sentence}");
    assert_eq!(fs::read(at("data.bin")).unwrap(), b"....old!same");
    assert_eq!(fs::read_to_string(at("refs.json")).unwrap(), references.to_string());
}
