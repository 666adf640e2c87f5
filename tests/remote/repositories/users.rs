//! A repository in a folder, mounted by root for all: a user reads of it what the permissions of its files allow. Needs root.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::repositories::made::{Made, Version, compare, local, made, mount, python, run};
use crate::support::mounted::Mount;
use crate::support::place::is_root;
use crate::support::skip;
use crate::support::users::A;

/// Returns what user A reads of a file, or the reason why not.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut command = Command::new("cat");
    command.arg(path).env("LC_ALL", "C").current_dir("/").uid(A).gid(A);
    let output = command.output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(complaint.rsplit(": ").next().unwrap().to_owned())
    }
}

fn chmod(mode: &str, path: &Path) {
    assert!(Command::new("chmod").args(["-R", mode]).arg(path).status().unwrap().success());
}

fn chmod_one(mode: &str, path: &Path) {
    assert!(Command::new("chmod").arg(mode).arg(path).status().unwrap().success());
}

/// Whether what user A reads of an array is its value, or the reason why A reads nothing.
type Outcome = Result<bool, String>;

fn denied() -> Outcome {
    Err("Permission denied".to_owned())
}

fn are_open(outcomes: &[Outcome]) -> bool {
    outcomes.iter().all(|outcome| *outcome == Ok(true))
}

fn outcomes(mount: &Mount, made: &Made, version: &Version) -> Vec<Outcome> {
    let outcome = |(array, file): (&String, &String)| {
        let value = fs::read(made.values().join(file)).unwrap();
        read(&mount.path(array)).map(|read| read == value)
    };
    version.arrays.iter().map(outcome).collect()
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
    let outcomes = |mount: &Mount| outcomes(mount, made, version);

    chmod("go-rwx", copy.path());
    let Some(private) = mount_for_all(copy.path(), &options, what) else { return };
    assert!(outcomes(&private).iter().all(|outcome| *outcome == denied()), "{}", private.log());
    compare(&private, &made.values(), &version.arrays, "root");
    private.unmount();

    chmod("go+rX", copy.path());
    let Some(open) = mount_for_all(copy.path(), &options, what) else { return };
    assert!(are_open(&outcomes(&open)), "{}", open.log());
    open.unmount();

    // Everybody may read the documents and the chunks in the manifests, but no other chunks.
    chmod("go-rwx", &copy.path().join("chunks"));
    let Some(half) = mount_for_all(copy.path(), &options, what) else { return };
    let outcomes = outcomes(&half);
    assert!(outcomes.iter().all(|outcome| *outcome == denied() || *outcome == Ok(true)), "{outcomes:?}");
    assert!(outcomes.contains(&denied()), "{outcomes:?}");
    half.unmount();
}

/// Files or a folder of a repository that is closed, after which users may not read some arrays.
struct Closed {
    /// Below the repository; `*` stands for all files of a folder.
    what: &'static str,
    /// Whether arrays stay open that have no bytes from there.
    is_of_some: bool,
}

impl Closed {
    fn for_all(what: &'static str) -> Self {
        Closed { what, is_of_some: false }
    }

    fn for_some(what: &'static str) -> Self {
        Closed { what, is_of_some: true }
    }

    fn paths(&self, repository: &Path) -> Vec<PathBuf> {
        match self.what.strip_suffix("/*") {
            None => vec![repository.join(self.what)],
            Some(folder) => files(&repository.join(folder)),
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn closed(format: &str) -> Vec<Closed> {
    let mut closed = vec![
        Closed::for_all(""),
        Closed::for_all("snapshots"),
        Closed::for_all("snapshots/*"),
        Closed::for_some("manifests"),
        Closed::for_some("manifests/*"),
        Closed::for_some("chunks"),
        Closed::for_some("chunks/*"),
    ];
    closed.extend(match format {
        "old" => Vec::from(
            ["refs", "refs/branch.main", "refs/branch.main/ref.json", "config.yaml"].map(Closed::for_all),
        ),
        _ => vec![Closed::for_all("repo")],
    });
    closed
}

#[test]
fn every_file_that_an_answer_comes_from_is_open_to_its_readers() {
    let what = "closed files of a repository";
    if !is_root() {
        return skip(what, "needs root", true);
    }
    let Some(made) = made(what) else { return };
    for format in ["repository", "old"] {
        let version = made.versions.iter().find(|version| version.repository == format).unwrap();
        let copy = made.copy(format);
        chmod("go+rX", copy.path());
        let Some(mount) = mount_for_all(copy.path(), &["-o", "revalidate=0"], what) else { return };
        let outcomes = || outcomes(&mount, made, version);
        assert!(are_open(&outcomes()), "{format}: {}", mount.log());
        for closed in closed(format) {
            let what = closed.what;
            closed.paths(copy.path()).iter().for_each(|path| chmod_one("go-rwx", path));
            let seen = outcomes();
            let is_right =
                |outcome: &Outcome| *outcome == denied() || (closed.is_of_some && *outcome == Ok(true));
            assert!(seen.iter().all(is_right) && seen.contains(&denied()), "{format} {what}: {seen:?}");
            // A chunk that one of its readers may not have is an error for all.
            if !what.starts_with("chunks") {
                compare(&mount, &made.values(), &version.arrays, "root");
            }
            closed.paths(copy.path()).iter().for_each(|path| chmod_one("go+rX", path));
            let seen = outcomes();
            assert!(are_open(&seen), "{format} {what}, open again: {seen:?}");
        }
        // The objects of earlier snapshots are among the chunks.
        let closes_one = |chunk: &PathBuf| {
            chmod_one("go-rwx", chunk);
            let seen = outcomes();
            chmod_one("go+rX", chunk);
            assert!(seen.iter().all(|outcome| *outcome == denied() || *outcome == Ok(true)), "{seen:?}");
            seen.contains(&denied())
        };
        assert!(files(&copy.path().join("chunks")).iter().any(closes_one), "{format}: one chunk");
        mount.unmount();
    }
}

/// A chunk that is a range of another file is as open as that file, and the folders above it.
#[test]
fn a_virtual_chunk_is_as_open_as_its_file() {
    let what = "closed files of virtual chunks";
    if !is_root() {
        return skip(what, "needs root", true);
    }
    let (Some(python), folder) = (python(what), tempfile::tempdir().unwrap()) else { return };
    run(&python, &["virtual", folder.path().to_str().unwrap(), "s3://corpus/data/"]);
    chmod("go+rX", folder.path());
    let (stores, data) = (folder.path().join("stores"), folder.path().join("stores/data"));
    let options = ["--allow-references", data.to_str().unwrap(), "-o", "revalidate=0"];
    let Some(mount) = mount_for_all(&stores.join("virtual"), &options, what) else { return };
    let array = mount.path("local");
    assert_eq!(read(&array).unwrap().len(), 1600, "{}", mount.log());
    for closed in [data.join("a b.bin"), data, stores.join("virtual/manifests"), stores.join("virtual")] {
        chmod_one("go-rwx", &closed);
        assert_eq!(read(&array), Err("Permission denied".to_owned()), "{}", closed.display());
        chmod_one("go+rX", &closed);
        assert_eq!(read(&array).unwrap().len(), 1600, "{}, open again", closed.display());
    }
    mount.unmount();
}
