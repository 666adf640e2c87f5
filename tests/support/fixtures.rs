//! Stores made by scripts/make_fixtures.py, and what must be read from them.
//!
//! They stay in the target folder and are made anew when the scripts or the interpreter's packages change. The quick level makes a
//! sample of the matrix, which the commit chooses (`level::seed`).
//!
//! `tests/recorded` has arrays that others wrote, for all that needs no Python.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use serde_json::Value;

use super::{level, skip};

/// How many arrays of the matrix the quick level makes, in addition to those that are always made.
const SAMPLE: &str = "300";

/// What must be read from one array.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Path of the array below the folder.
    pub path: String,
    /// What is special about it.
    pub what: String,
    /// NumPy's name of its type.
    pub dtype: String,
    /// Only the codecs and types of the core specifications.
    pub is_core: bool,
    /// Bytes of the flat file.
    pub size_bytes: u64,
    /// Digest of the flat file, by order and byte order: `C<`, `C>`, `F<`, `F>`.
    pub layouts: BTreeMap<String, String>,
    /// Which other readers gave the same bytes.
    pub oracles: Vec<String>,
    /// What is read is not what was written.
    pub is_lossy: bool,
    /// For an array that cannot be opened: the error's number, and what its reason must name.
    pub refusal: Option<(i32, Vec<String>)>,
}

/// A folder of stores with its expected.json.
pub struct Fixtures {
    /// The folder.
    pub folder: PathBuf,
    /// All arrays, by path.
    pub arrays: Vec<Expected>,
}

/// Returns the interpreter to use: `ZARRFS_TEST_PYTHON`, or python3. `None` (with a message) where it has no zarr.
pub fn python(what: &str) -> Option<PathBuf> {
    let python = PathBuf::from(std::env::var_os("ZARRFS_TEST_PYTHON").unwrap_or_else(|| "python3".into()));
    if has_modules(&python, "zarr numcodecs") {
        return Some(python);
    }
    let why = format!("{} has no zarr-python (set ZARRFS_TEST_PYTHON)", python.display());
    skip(what, &why, true);
    None
}

/// Runs a program of `tests/programs`, which must succeed. Returns what it prints.
pub fn output_of(python: &Path, program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(python);
    let output = command.arg(program).args(arguments).env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Returns whether an interpreter has these modules, separated by spaces. Each list is asked for once.
pub fn has_modules(python: &Path, modules: &'static str) -> bool {
    const FIND: &str =
        "import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))";
    static KNOWN: Mutex<BTreeMap<&'static str, bool>> = Mutex::new(BTreeMap::new());
    *KNOWN.lock().unwrap().entry(modules).or_insert_with(|| {
        let found = Command::new(python).args(["-c", FIND]).args(modules.split(' ')).output();
        found.is_ok_and(|output| output.status.success())
    })
}

/// Returns the stores of a matrix (`all` or `programs`), made when they are not there yet. `None` without Python.
pub fn matrix(name: &'static str, what: &str) -> Option<&'static Fixtures> {
    static ALL: OnceLock<Option<Fixtures>> = OnceLock::new();
    static PROGRAMS: OnceLock<Option<Fixtures>> = OnceLock::new();
    let cell = if name == "all" { &ALL } else { &PROGRAMS };
    cell.get_or_init(|| {
        let python = python(what)?;
        let sample = (name == "all" && !level::is_full()).then(level::seed);
        let folder = made(&python, name, sample);
        Some(Fixtures { arrays: expected(&folder.join("expected.json")), folder })
    })
    .as_ref()
}

/// Returns the folder with the recorded stores.
pub fn recorded_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded")
}

/// Returns the recorded arrays of the matrix, in a zip file.
pub fn recorded() -> Fixtures {
    let folder = recorded_folder();
    Fixtures { arrays: expected(&folder.join("expected.json")), folder: folder.join("stores.zip") }
}

fn made(python: &Path, name: &str, seed: Option<&str>) -> PathBuf {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let sample = if seed.is_some() { "-sample" } else { "" };
    let folder = target.join(format!("fixtures-{name}{sample}"));
    let stamp = format!("{} {}", stamp(python), seed.unwrap_or_default());
    if let Some(seed) = seed {
        super::say(format!("fixtures: a sample; ZARRFS_TEST_SEED={seed} makes the same one"));
    }
    if std::fs::read_to_string(folder.join("stamp")).is_ok_and(|found| found == stamp) {
        return folder;
    }
    let fresh = target.join(format!("fixtures-{name}{sample}.{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&fresh);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/make_fixtures.py");
    let mut command = Command::new(python);
    command.arg(script).args(["--matrix", name]);
    if let Some(seed) = seed {
        command.args(["--sample", SAMPLE, "--seed", seed]);
    }
    let output = command.arg(&fresh).env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "make_fixtures.py ({seed:?}): {}",
        &text[text.len().saturating_sub(5000)..]
    );
    for line in text.lines().take_while(|line| !line.starts_with("skipped")) {
        super::say(format!("fixtures: {line}"));
    }
    std::fs::write(fresh.join("stamp"), &stamp).unwrap();
    let _ = std::fs::remove_dir_all(&folder);
    if let Err(error) = std::fs::rename(&fresh, &folder) {
        // Another process may have made the same ones meanwhile.
        assert_eq!(std::fs::read_to_string(folder.join("stamp")).ok(), Some(stamp), "{error}");
        std::fs::remove_dir_all(&fresh).unwrap();
    }
    folder
}

/// Changes with the scripts and with the packages that run them.
pub fn stamp(python: &Path) -> String {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut files = vec![scripts.join("make_fixtures.py")];
    for entry in std::fs::read_dir(scripts.join("fixtures")).unwrap().flatten() {
        files.extend(Some(entry.path()).filter(|path| path.extension().is_some_and(|e| e == "py")));
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        std::fs::read(&file).unwrap().hash(&mut hasher);
    }
    let versions = "import sys; from importlib.metadata import distributions as d; \
                    print(sys.version, sorted((x.name, x.version) for x in d() if x.name))";
    Command::new(python).args(["-c", versions]).output().unwrap().stdout.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn expected(file: &Path) -> Vec<Expected> {
    let document: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let arrays = document["arrays"].as_object().unwrap();
    arrays.iter().map(|(path, entry)| one_expected(path, entry)).collect()
}

fn one_expected(path: &str, entry: &Value) -> Expected {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let layouts = entry["layouts"].as_object().into_iter().flatten();
    Expected {
        path: path.to_owned(),
        what: entry["what"].as_str().unwrap_or_default().to_owned(),
        dtype: entry["dtype"].as_str().unwrap_or_default().to_owned(),
        is_core: entry["part"] == "core",
        size_bytes: entry["nbytes"].as_u64().unwrap_or(0),
        layouts: layouts.map(|(name, digest)| (name.clone(), digest.as_str().unwrap().to_owned())).collect(),
        oracles: texts(&entry["oracles"]),
        is_lossy: entry["lossy"] == true,
        refusal: entry["errno"].as_str().map(|name| (errno_by_name(name), texts(&entry["names"]))),
    }
}

/// Returns the number of an errno that tests spell by name.
pub fn errno_by_name(name: &str) -> i32 {
    match name {
        "EIO" => libc::EIO,
        "EOPNOTSUPP" => libc::EOPNOTSUPP,
        "EACCES" => libc::EACCES,
        "ELOOP" => libc::ELOOP,
        "EXDEV" => libc::EXDEV,
        "EISDIR" => libc::EISDIR,
        "ENOENT" => libc::ENOENT,
        "ENOTDIR" => libc::ENOTDIR,
        other => panic!("unknown errno {other}"),
    }
}

/// Returns the corpus of stores that others wrote (`ZARRFS_CORPUS`), never part of the project. `None`, with a message, without it.
pub fn corpus(what: &str) -> Option<PathBuf> {
    let corpus = std::env::var_os("ZARRFS_CORPUS").map(PathBuf::from);
    if corpus.is_none() {
        skip(what, "ZARRFS_CORPUS names no corpus", false);
    }
    corpus
}

/// Returns the elements of an array in F order, from those in C order.
pub fn in_f_order(elements: &[u8], shape: &[usize]) -> Vec<u8> {
    let count: usize = shape.iter().product();
    let item = elements.len() / count.max(1);
    let mut found = Vec::new();
    for number in 0..count {
        let (mut rest, mut place, mut step) = (number, 0, count);
        for length in shape {
            step /= length;
            place += rest % length * step;
            rest /= length;
        }
        found.extend_from_slice(&elements[place * item..(place + 1) * item]);
    }
    found
}
