//! The repositories of tests/programs/repositories.py, and what that program says of others. Uses `support`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::support::fixtures;
use crate::support::fixtures::output_of;
use crate::support::mounted::Mount;
use crate::support::servers::Server;
use crate::support::{folders, skip};
use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/repositories.py");

/// One version of a repository.
pub struct Version {
    /// The repository's name.
    pub repository: String,
    /// The options that choose the version.
    pub options: Vec<String>,
    /// The file with each array's bytes.
    pub arrays: BTreeMap<String, String>,
}

/// What the program made.
pub struct Made {
    folder: PathBuf,
    pub versions: Vec<Version>,
    /// ID, seconds and message of each snapshot of a branch, by `repository branch`.
    pub log: BTreeMap<String, Vec<(String, f64, String)>>,
}

impl Made {
    /// Returns the folder of the repositories.
    pub fn stores(&self) -> PathBuf {
        self.folder.join("stores")
    }

    /// Returns the folder of the arrays' bytes.
    pub fn values(&self) -> PathBuf {
        self.folder.join("values")
    }

    /// Returns a copy of a repository, to be written or spoiled.
    pub fn copy(&self, repository: &str) -> TempDir {
        let copy = tempfile::tempdir().unwrap();
        let from = self.stores().join(repository).join(".");
        let copied = Command::new("cp").arg("-r").arg(from).arg(copy.path()).status().unwrap();
        assert!(copied.success());
        copy
    }
}

/// Returns the interpreter, if it has the package.
pub fn python(what: &str) -> Option<PathBuf> {
    let python = fixtures::python(what)?;
    if fixtures::has_modules(&python, "icechunk") {
        return Some(python);
    }
    skip(what, "the interpreter lacks icechunk", true);
    None
}

/// Returns what the program prints.
pub fn run(python: &Path, arguments: &[&str]) -> String {
    output_of(python, PROGRAM, arguments)
}

/// Returns the repositories, made once.
pub fn made(what: &str) -> Option<&'static Made> {
    static MADE: OnceLock<Made> = OnceLock::new();
    let python = python(what)?;
    Some(MADE.get_or_init(|| {
        let folder = folders::of_process(env!("CARGO_TARGET_TMPDIR"), "repositories");
        fs::create_dir(folder.join("stores")).unwrap();
        run(&python, &["make", folder.to_str().unwrap()]);
        let expected = fs::read(folder.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        let version = |version: &Value| Version {
            repository: version["repository"].as_str().unwrap().to_owned(),
            options: serde_json::from_value(version["options"].clone()).unwrap(),
            arrays: serde_json::from_value(version["arrays"].clone()).unwrap(),
        };
        let versions = expected["versions"].as_array().unwrap().iter().map(version).collect();
        Made { folder, versions, log: serde_json::from_value(expected["log"].clone()).unwrap() }
    }))
}

/// What zarr-python reads from a branch of a repository: bytes by path, the paths of groups, and the messages of snapshots.
pub struct Read {
    pub arrays: BTreeMap<String, Vec<u8>>,
    pub groups: Vec<String>,
    pub messages: Vec<String>,
}

pub fn read(repository: &Path, branch: &str, what: &str) -> Option<Read> {
    let (python, folder) = (python(what)?, tempfile::tempdir().unwrap());
    let arguments = ["read", repository.to_str().unwrap(), branch, folder.path().to_str().unwrap()];
    let printed: Value = serde_json::from_str(&run(&python, &arguments)).unwrap();
    let arrays: BTreeMap<String, (String, Vec<u64>)> =
        serde_json::from_value(printed["arrays"].clone()).unwrap();
    let bytes = |file: &str| fs::read(folder.path().join(file)).unwrap();
    Some(Read {
        arrays: arrays.into_iter().map(|(path, (file, _))| (path, bytes(&file))).collect(),
        groups: serde_json::from_value(printed["groups"].clone()).unwrap(),
        messages: serde_json::from_value(printed["messages"].clone()).unwrap(),
    })
}

/// Returns the location of a repository in a folder.
pub fn local(folder: &Path) -> String {
    format!("icechunk+{}", folder.display())
}

/// Returns the program on a store, perhaps at a server.
pub fn zarrfs(server: Option<&Server>, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
    command.args(arguments);
    if let Some(server) = server {
        command.args(server.options()).envs(server.environment());
    }
    command.output().unwrap()
}

/// Returns a mount of a repository, perhaps at a server.
pub fn mount(server: Option<&Server>, location: &str, options: &[&str], what: &str) -> Option<Mount> {
    let mut all = server.map(Server::options).unwrap_or_default();
    all.extend(options.iter().map(|option| (*option).to_owned()));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let environment = server.map(Server::environment).unwrap_or_default();
    let environment: Vec<(&str, OsString)> =
        environment.into_iter().map(|(name, value)| (name, value.into())).collect();
    Mount::with_environment(Path::new(location), &all, &environment, what)
}

/// Fails unless a mount shows these arrays, and no others at its top.
pub fn compare(mount: &Mount, values: &Path, arrays: &BTreeMap<String, String>, of: &str) {
    for (array, file) in arrays {
        let read = fs::read(mount.path(array))
            .unwrap_or_else(|error| panic!("{of}, {array}: {error}; {}", mount.log()));
        assert!(read == fs::read(values.join(file)).unwrap(), "{of}, {array}: {} bytes differ", read.len());
    }
    let mut names: Vec<String> = fs::read_dir(mount.point())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".json") && name != "__zarrfs__")
        .collect();
    names.sort();
    let mut expected: Vec<String> =
        arrays.keys().map(|path| path.split('/').next().unwrap().to_owned()).collect();
    expected.push("group".to_owned());
    expected.sort();
    expected.dedup();
    assert_eq!(names, expected, "{of}");
}
