//! Names that complete a line, from stores in folders and archives.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use zarrfs::store::{ObjectPart, PutOptions};

use super::*;
use crate::cli::CommandLine;
use clap::CommandFactory;

fn candidates(asked: &[String]) -> Option<Vec<String>> {
    super::candidates(asked, CommandLine::command)
}

const GROUP: &str = r#"{"zarr_format":3,"node_type":"group"}"#;
const ARRAY: &str = r#"{"zarr_format":3,"node_type":"array","shape":[2],"data_type":"uint8","chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2]}},"chunk_key_encoding":{"name":"default"},"fill_value":0,"codecs":[{"name":"bytes"}]}"#;

fn put(folder: &Path, text: &str) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("zarr.json"), text).unwrap();
}

/// Makes a store with groups, and arrays with awkward names.
fn store() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("my store.zarr");
    put(&store, GROUP);
    for group in ["climate", "climate/daily", "it's"] {
        put(&store.join(group), GROUP);
    }
    for array in
        ["climate/temperature", "climate/time", "climate/daily/rain", "count", "a b:c", "line\nbreak"]
    {
        put(&store.join(array), ARRAY);
        fs::create_dir_all(store.join(array).join("c")).unwrap();
    }
    folder
}

/// Returns the candidates after `zarrfs COMMAND 'STORE' REST`; `None` where the script completes by itself.
fn asked(shell: &str, command: &str, folder: &tempfile::TempDir, rest: &str) -> Option<Vec<String>> {
    let line = format!("zarrfs {command} '{}/my store.zarr' {rest}", folder.path().display());
    let found = candidates(&[shell.to_owned(), line])?;
    Some(found.iter().map(|name| name.trim_end().to_owned()).collect())
}

fn some(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}

#[test]
fn nodes_are_completed_group_by_group() {
    let folder = store();
    let fish = |command, rest| asked("fish", command, &folder, rest);
    for command in ["info", "cat", "ls", "preview", "check", "attrs", "resize", "rm", "mv"] {
        assert_eq!(fish(command, ""), some(&["a b:c", "climate/", "count", "it's/"]), "{command}");
        assert_eq!(fish(command, "climate/t"), some(&["climate/temperature", "climate/time"]), "{command}");
    }
    assert_eq!(fish("info", "/climate/d"), some(&["/climate/daily/"]));
    assert_eq!(fish("info", "climate//daily/"), some(&["climate//daily/rain"]));
    assert_eq!(fish("info", "./c"), some(&["./climate/", "./count"]));
    assert_eq!(fish("check", "count climate/ti"), some(&["climate/time"]));
    assert_eq!(fish("info", "count/"), some(&[]));
    assert_eq!(fish("info", "climate/x"), some(&[]));
    assert_eq!(fish("info", "nothing/"), some(&[]));
}

#[test]
fn options_before_and_after_do_not_matter() {
    let folder = store();
    let fish = |command, rest| asked("fish", command, &folder, rest);
    assert_eq!(fish("ls --depth 2", "cou"), some(&["count"]));
    assert_eq!(fish("check --jobs=2", "--json --missing error cou"), some(&["count"]));
    assert_eq!(fish("create --like count", "cl"), some(&["climate/"]));
    assert_eq!(fish("create", "new --like cou"), some(&["count"]));
    assert_eq!(fish("import file.npy", "c"), some(&["climate/"]));
    assert_eq!(fish("mv", "count c"), some(&["climate/"]));
}

#[test]
fn everything_else_is_left_to_the_script() {
    let folder = store();
    for (command, rest) in [
        ("info", "--"),
        ("info --log-file", ""),
        ("ls --depth", ""),
        ("ls", "no-such-name"),
        ("attrs", "count k"),
        ("info", "count more "),
        ("mount", ""),
        ("cat", "count >fi"),
        ("nonsense", ""),
        ("info --help", ""),
    ] {
        assert_eq!(asked("fish", command, &folder, rest), None, "{command} … {rest}");
    }
    for line in ["zarrfs ", "zarrfs in", "zarrfs info ", "zarrfs info my", "", "zarrfs completions "] {
        assert_eq!(candidates(&["bash".to_owned(), line.to_owned()]), None, "{line}");
    }
    assert_eq!(candidates(&["elvish".to_owned(), "zarrfs info x ".to_owned()]), None);
}

#[test]
fn a_store_that_cannot_be_opened_has_no_names() {
    for store in ["s3://bucket/a.zarr", "https://nowhere.invalid/a.zarr", "no/such/folder", "''"] {
        assert_eq!(
            candidates(&["bash".to_owned(), format!("zarrfs info {store} ")]),
            Some(vec![]),
            "{store}"
        );
    }
}

#[test]
fn bash_gets_names_in_the_quotes_of_the_line() {
    let folder = store();
    let bash = |rest| asked("bash", "info", &folder, rest);
    assert_eq!(bash("a"), some(&["a\\ b\\:c"]));
    assert_eq!(bash("'a"), some(&["a b:c"]));
    assert_eq!(bash("'i"), some(&["it'\\''s/"]));
    assert_eq!(bash("i"), some(&["it\\'s/"]));
    assert_eq!(bash("\"i"), some(&["it's/"]));
    let line = format!("zarrfs info '{}/my store.zarr' a\\ b:", folder.path().display());
    assert_eq!(candidates(&["bash".to_owned(), line, String::new()]), some(&["c\n"]));
}

#[test]
fn zsh_gets_the_last_part() {
    let folder = store();
    assert_eq!(asked("zsh", "info", &folder, "climate/d"), some(&["daily/"]));
    assert_eq!(asked("zsh", "info", &folder, "a"), some(&["a b:c"]));
}

#[test]
fn an_overlay_s_nodes_are_there_too() {
    let folder = store();
    let changes = folder.path().join("changes");
    let location = folder.path().join("my store.zarr").display().to_string();
    let overlay = Some(OverlayOptions { folder: changes.clone(), access: Access::Write });
    let store =
        zarrfs::store::open_with(&location, &StoreOptions { overlay, ..StoreOptions::default() }).unwrap();
    let root = store.head("").unwrap().unwrap();
    store
        .writer()
        .unwrap()
        .put("corn/zarr.json", &[ObjectPart::Bytes(ARRAY.as_bytes())], &PutOptions::new("", &root))
        .unwrap();
    drop(store);
    let command = format!("info --overlay {}", changes.display());
    assert_eq!(asked("fish", &command, &folder, "co"), some(&["corn", "count"]));
    let line = format!("zarrfs overlay diff {} co", changes.display());
    assert_eq!(candidates(&["fish".to_owned(), line]), some(&["corn\n", "count\n"]));
}
