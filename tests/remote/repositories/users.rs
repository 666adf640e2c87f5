//! A repository in a folder, mounted by root for all: a user reads of it what the permissions of its files allow. Needs root.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::repositories::made::{compare, local, made, mount};
use crate::support::mounted::Mount;
use crate::support::place::is_root;
use crate::support::skip;
use crate::support::users::A;

/// What user A reads of a file, or the reason why not.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut command = Command::new("cat");
    command.arg(path).env("LC_ALL", "C").current_dir("/").uid(A).gid(A);
    let output = command.output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(complaint.rsplit(": ").next().unwrap().to_owned()),
    }
}

fn chmod(mode: &str, path: &Path) {
    assert!(Command::new("chmod").args(["-R", mode]).arg(path).status().unwrap().success());
}

fn mount_for_all(repository: &Path, options: &[&str], of: &str) -> Option<Mount> {
    let mount = mount(None, &local(repository), &[&["-o", "allow-other"], options].concat(), of)?;
    fs::set_permissions(mount.point().parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    Some(mount)
}

#[test]
fn a_user_reads_what_the_files_of_a_repository_allow() {
    let what = "users of a repository";
    if !is_root() {
        return skip(what, "needs root", true);
    }
    let Some(made) = made(what) else { return };
    let version = &made.versions[0];
    let copy = made.copy(&version.repository);
    let options: Vec<&str> = version.options.iter().map(String::as_str).collect();
    let outcomes = |mount: &Mount| -> Vec<Result<bool, String>> {
        let outcome = |(array, file): (&String, &String)| {
            let value = fs::read(made.values().join(file)).unwrap();
            read(&mount.path(array)).map(|read| read == value)
        };
        version.arrays.iter().map(outcome).collect()
    };
    let denied = Err("Permission denied".to_owned());

    chmod("go-rwx", copy.path());
    let Some(private) = mount_for_all(copy.path(), &options, what) else { return };
    assert!(outcomes(&private).iter().all(|outcome| *outcome == denied), "{}", private.log());
    compare(&private, &made.values(), &version.arrays, "root");
    private.unmount();

    chmod("go+rX", copy.path());
    let Some(open) = mount_for_all(copy.path(), &options, what) else { return };
    assert!(outcomes(&open).iter().all(|outcome| *outcome == Ok(true)), "{}", open.log());
    open.unmount();

    // Everybody may read the documents, and not the chunks, but those in the manifests.
    chmod("go-rwx", &copy.path().join("chunks"));
    let Some(half) = mount_for_all(copy.path(), &options, what) else { return };
    let outcomes = outcomes(&half);
    assert!(outcomes.iter().all(|outcome| *outcome == denied || *outcome == Ok(true)), "{outcomes:?}");
    assert!(outcomes.contains(&denied), "{outcomes:?}");
    half.unmount();
}
