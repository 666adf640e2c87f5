//! Versions that do not exist, stores that are not repositories, and options that another store does not have.

use std::fs;

use crate::repositories::made::{local, made, zarrfs};
use crate::support::servers::{Kind, Server};

/// Returns the sentence of `zarrfs ls`, which fails.
fn sentence(arguments: &[&str]) -> String {
    let output = zarrfs(None, &[&["ls"], arguments].concat());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{arguments:?}: {text}");
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    text
}

#[test]
fn unknown_versions_are_refused_with_what_there_is() {
    let Some(made) = made("versions that are not there") else { return };
    for repository in ["repository", "old"] {
        let location = local(&made.stores().join(repository));
        let refused = |options: &[&str]| sentence(&[options, &[location.as_str()]].concat());
        assert!(refused(&["--branch", "mian"]).contains("did you mean 'main'?"));
        assert!(refused(&["--branch", "nothing-like-it"]).contains("it has dev, main"));
        assert!(refused(&["--tag", "v2"]).contains("no tag 'v2'"));
        assert!(refused(&["--snapshot", "x"]).contains("not the ID of a snapshot"));
        assert!(refused(&["--snapshot", "00000000000000000000"]).contains("there is no snapshot"));
        assert!(refused(&["--at", "2001-01-01"]).contains("the first snapshot"));
        assert!(refused(&["--at", "yesterday"]).contains("neither a time"));
        assert!(refused(&["--tag", "v1", "--branch", "dev"]).contains("leave one out"));
    }
}

#[test]
fn what_is_not_a_repository_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("empty")).unwrap();
    fs::write(at("file"), "").unwrap();
    assert!(sentence(&[&local(&at("empty"))]).contains("no repository of Icechunk"));
    assert!(sentence(&[&local(&at("file"))]).contains("a repository is a folder"));
    assert!(sentence(&[&local(&at("none"))]).contains("cannot be opened"));
    fs::write(at("empty/zarr.json"), r#"{"zarr_format":3,"node_type":"group"}"#).unwrap();
    let plain = at("empty").display().to_string();
    assert!(sentence(&["--branch", "main", &plain]).contains("has no versions"));
    assert!(sentence(&["icechunk+ipfs://x"]).contains("not supported"));
    let log = zarrfs(None, &["log", &plain]);
    assert!(String::from_utf8_lossy(&log.stderr).contains("has no snapshots"));
    fs::write(at("empty/repo"), "ICE🧊CHUNK").unwrap();
    sentence(&[&local(&at("empty"))]);
}

#[test]
fn secrets_are_not_shown() {
    let refused = sentence(&["icechunk+https://ann:hunter2@host/repository"]);
    assert!(!refused.contains("hunter2") && refused.contains("credentials"), "{refused}");
    let Some(made) = made("the secrets of a repository") else { return };
    let server = Server::start(Kind::Moto, &made.stores());
    let location = format!("icechunk+{}", server.url("none"));
    let ls = zarrfs(Some(&server), &["ls", "--log-level", "trace", &location]);
    let shown = String::from_utf8_lossy(&ls.stderr).into_owned() + &String::from_utf8_lossy(&ls.stdout);
    assert!(shown.contains("no repository of Icechunk"), "{shown}");
    assert!(!shown.contains(server.secret().unwrap()), "{shown}");
}
