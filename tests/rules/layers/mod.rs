//! The rules of the house that the compiler does not know (see the crate's documentation): a folder of `src` uses only
//! the layers to its left, files do not use each other in circles, unsafe code stands in few files and says why it is
//! sound, every file begins with what it is for, a folder has few files, and a type few methods. Long files and functions, and the
//! largest types, are reported, not refused.

mod circles;
mod folders;
mod items;
mod rust;
mod types;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use rust::{end_of_block, inline_modules, line_of, module_of, occurrences, used_paths, without_text};

/// From the bottom to the top: each may use itself and what is before it. The names in one row may use each other.
const LAYERS: [&[&str]; 10] = [
    &["cancellation", "error", "nearest", "sys", "test_folders", "test_level"],
    &["memory"],
    &["store", "test_store"],
    &["metadata"],
    &["codec"],
    &["array"],
    &["hierarchy"],
    &["formats"],
    &["mount"],
    &["cli", "lib", "main"],
];
const UNSAFE_FILES: [&str; 10] = [
    "src/sys.rs",
    "src/sys/memory.rs",
    "src/sys/other_process.rs",
    "src/sys/process.rs",
    "src/sys/processor.rs",
    "src/sys/shared_memory.rs",
    "src/sys/socket.rs",
    "src/sys/terminal.rs",
    "src/codec/bytes_to_bytes/blosc/c_blosc.rs",
    "src/mount/fuse/passthrough.rs",
];
const NAMES_THAT_SAY_NOTHING: [&str; 8] =
    ["util", "utils", "common", "helper", "helpers", "manager", "misc", "tools"];
/// From here on, a file or a function is reported: whether it should be several is for its reader to judge.
const LONG_FILE_LINES: usize = 500;
const LONG_FUNCTION_LINES: usize = 70;
/// A folder of `src` has at most this many files of its own.
const MAX_FOLDER_FILES: usize = 15;

#[test]
fn the_rules_of_the_house() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "tests", "benches"] {
        collect(&root.join(folder), &mut files);
    }
    files.sort();
    assert!(files.len() > 10, "the sources were not found in {}", root.display());
    let mut faults = String::new();
    let mut report = String::new();
    let mut sources = BTreeMap::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().to_str().unwrap();
        for (line, fault) in faults_of(name, &text) {
            writeln!(faults, "{name}:{line}: {fault}").unwrap();
        }
        let code = without_text(&text);
        for (line, length) in lengths(&code) {
            writeln!(report, "{name}:{line}: {length}").unwrap();
        }
        if let Some(path) = name.strip_prefix("src/") {
            sources.insert(path.to_owned(), code);
        }
    }
    for fault in crowded_folders(sources.keys()) {
        writeln!(faults, "{fault}").unwrap();
    }
    let modules = items::Modules::of(&sources);
    let types = types::counted(&modules);
    for line in types::largest(&types) {
        writeln!(report, "{line}").unwrap();
    }
    for fault in types::faults(&types) {
        writeln!(faults, "{fault}").unwrap();
    }
    // Not `eprint`: its lines are hidden while the test passes.
    std::io::Write::write_all(&mut std::io::stderr(), report.as_bytes()).unwrap();
    for fault in circles::faults(&modules) {
        writeln!(faults, "src: {fault}").unwrap();
    }
    assert!(faults.is_empty(), "\n{faults}");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
}

/// Line number and what is wrong there.
pub type Faults = Vec<(usize, String)>;

fn faults_of(name: &str, text: &str) -> Faults {
    let code = without_text(text);
    let mut faults = Faults::new();
    if !text.starts_with("//!") {
        faults.push((1, "a file begins with //! and what it is for".to_owned()));
    }
    for part in name.trim_end_matches(".rs").split('/') {
        if NAMES_THAT_SAY_NOTHING.contains(&part) {
            faults.push((1, format!("the name {part:?} does not say what is in it")));
        }
    }
    faults.extend(unsafe_code(name, text, &code));
    if let Some(path) = name.strip_prefix("src/") {
        faults.extend(upward_uses(path, &code));
        faults.extend(folders::disordered_uses(path, &code, &folders::ORDERS));
        faults.extend(folders::misplaced_crates(path, &code));
    }
    faults.sort();
    faults
}

// --- the rules -----------------------------------------------------------------------------------

/// Returns what is long, and where.
fn lengths(code: &str) -> Faults {
    let mut long = Faults::new();
    let lines = code.lines().count();
    if lines > LONG_FILE_LINES {
        long.push((1, format!("{lines} lines")));
    }
    let functions = occurrences(code, "fn").filter_map(|start| {
        let is_named =
            code[start + 2..].trim_start().starts_with(|char: char| char.is_alphabetic() || char == '_');
        let end = end_of_block(code, start).filter(|_| is_named)?;
        let lines = code[start..end].lines().count();
        (lines > LONG_FUNCTION_LINES).then(|| (line_of(code, start), format!("a function of {lines} lines")))
    });
    long.extend(functions);
    long
}

/// Returns the folders of `src` that have too many files. The paths are relative to `src`.
fn crowded_folders<'a>(paths: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for path in paths {
        *counts.entry(path.rsplit_once('/').map_or("", |(folder, _)| folder)).or_default() += 1;
    }
    let crowded = counts.into_iter().filter(|(_, files)| *files > MAX_FOLDER_FILES);
    crowded
        .map(|(folder, files)| {
            format!("src/{folder}: {files} files; divide it into rooms of at most {MAX_FOLDER_FILES}")
        })
        .collect()
}

fn unsafe_code(name: &str, text: &str, code: &str) -> Faults {
    let lines: Vec<&str> = text.lines().collect();
    let mut faults = Faults::new();
    for start in occurrences(code, "unsafe") {
        let line = line_of(code, start);
        if !UNSAFE_FILES.contains(&name) {
            faults.push((line, format!("unsafe code is only in {}", UNSAFE_FILES.join(" and "))));
            continue;
        }
        // `unsafe fn` and `unsafe extern` are not blocks. The reason stands right above the statement.
        if !code[start + "unsafe".len()..].trim_start().starts_with('{') {
            continue;
        }
        let above = lines[..line - 1].iter().rev().take(8).map(|line| line.trim_start());
        let mut above =
            above.skip_while(|line| !line.starts_with("//") && !line.ends_with(';') && !line.is_empty());
        if !above.by_ref().take_while(|line| line.starts_with("//")).any(|line| line.contains("SAFETY:")) {
            faults.push((line, "an unsafe block says why it is sound: // SAFETY: …".to_owned()));
        }
    }
    faults
}

/// Returns the uses of layers above a file. `path` is relative to `src`.
fn upward_uses(path: &str, code: &str) -> Faults {
    let module = module_of(path);
    let Some(own) = layer(module[0]) else {
        return vec![(1, format!("{:?} is in no layer; tests/rules/layers/mod.rs lists them", module[0]))];
    };
    let mut faults = Faults::new();
    for (start, used) in used_paths(&module, code) {
        // Paths from `super` and `self` stay inside of the layer; the check below makes sure of that.
        if code[start..].starts_with('s') {
            continue;
        }
        let name = used[0];
        match layer(name) {
            Some(other) if other > own => {
                faults.push((line_of(code, start), format!("{} uses {name}, which is above it", module[0])));
            }
            Some(_) => {}
            // A macro or a type of the root: the root is the top.
            None => faults.push((line_of(code, start), format!("crate::{name} is in no layer"))),
        }
    }
    // `super` may lead to the module's own folder, not to the root, from where every layer can be reached.
    let file_depth = if matches!(module[0], "lib" | "main") { 0 } else { module.len() };
    for start in occurrences(code, "super") {
        if code[..start].trim_end().ends_with("super::") {
            continue;
        }
        let mut supers = 0;
        let mut rest = &code[start..];
        while let Some(after) = rest.strip_prefix("super") {
            supers += 1;
            rest = after.trim_start().strip_prefix("::").unwrap_or(after).trim_start();
        }
        // `pub(super)` names a place and takes nothing from it.
        let is_visibility = code[..start].trim_end().ends_with('(') && rest.starts_with(')');
        if supers >= file_depth + inline_modules(code, start) && !is_visibility {
            faults.push((line_of(code, start), "super leads to the root; write crate::".to_owned()));
        }
    }
    faults
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|names| names.contains(&name))
}

// --- the rules themselves, tried -----------------------------------------------------------------

fn faults(name: &str, code: &str) -> Vec<String> {
    let text = format!("//! Purpose.\n{code}");
    faults_of(name, &text).into_iter().map(|(line, fault)| format!("{line} {fault}")).collect()
}

#[test]
fn upward_uses_are_found() {
    for code in [
        "use crate::array::Array;",
        "use crate::{error::Error, array};",
        "use crate::{error::{Error, Result}, array::Array};",
        "fn f() { let x = crate :: mount::X; }",
        "use zarrfs::hierarchy;",
        "use super::super::array::Array;",
        "mod inner { use super::super::super::codec; }",
        "use crate::nowhere;",
    ] {
        assert_eq!(faults("src/store/zip.rs", code).len(), 1, "{code}");
    }
    for code in [
        "use crate::error::Error;\nuse crate::{store, sys};",
        "// crate::array\n/* crate::mount */ const A: &str = \"crate::array\"; const B: &str = r#\"crate::\"mount\"#;",
        "pub(crate) fn f() {}\npub(super) fn g() {}",
        "use super::Store;\nmod tests { use super::*; use super::super::Store; }",
        "let a = '\"'; let b = '\\''; fn f<'a>(x: &'a str) {}",
    ] {
        assert_eq!(faults("src/store/zip.rs", code), [""; 0], "{code}");
    }
    assert_eq!(faults("src/store/mod.rs", "use super::array;").len(), 1);
    assert_eq!(faults("src/main.rs", "use zarrfs::mount::daemon::session;"), [""; 0]);
    assert_eq!(faults("src/other.rs", "").len(), 1);
}

#[test]
fn unsafe_code_is_found() {
    assert_eq!(faults("src/store/zip.rs", "fn f() { unsafe { g() } }").len(), 1);
    assert_eq!(faults("src/store/zip.rs", "#![allow(unsafe_code)] // unsafe"), [""; 0]);
    assert_eq!(faults("src/sys.rs", "fn f() {\n    unsafe { g() }\n}").len(), 1);
    assert_eq!(
        faults("src/sys.rs", "fn f() {\n    // SAFETY: g\n    // does nothing.\n    unsafe { g() }\n}"),
        [""; 0]
    );
    assert_eq!(
        faults("src/sys.rs", "fn f() {\n    // SAFETY: g\n    let x =\n        unsafe { g() };\n}"),
        [""; 0]
    );
}

#[test]
fn lengths_are_found() {
    let body = "    g();\n".repeat(LONG_FUNCTION_LINES - 2);
    assert_eq!(lengths(&format!("fn f(x: [u8; 4]) {{\n{body}}}")), []);
    assert_eq!(lengths(&format!("fn f(x: [u8; 4]) {{\n{body}\n}}")).len(), 1);
    assert_eq!(lengths(&"\n".repeat(LONG_FILE_LINES + 1)).len(), 1);
}

#[test]
fn crowded_folders_are_found() {
    let mut paths: Vec<String> = (0..MAX_FOLDER_FILES).map(|file| format!("a/b/{file}.rs")).collect();
    paths.extend(["a/b/c/x.rs".to_owned(), "a/y.rs".to_owned(), "z.rs".to_owned()]);
    assert_eq!(crowded_folders(paths.iter()), [""; 0]);
    paths.push("a/b/one_more.rs".to_owned());
    assert_eq!(crowded_folders(paths.iter()).len(), 1);
}

#[test]
fn nameless_files_are_found() {
    assert_eq!(faults("src/store/utils.rs", "").len(), 1);
    assert_eq!(faults("tests/common/mod.rs", "").len(), 1);
    assert_eq!(faults_of("src/sys.rs", "use std::io;").len(), 1);
}
