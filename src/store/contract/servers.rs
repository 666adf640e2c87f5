//! The contract at real servers of each service: the core, and also the rest if objects can be put.
//!
//! Credentials come from the environment, so that each test runs once more in a process of its own.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::store::{RemoteOptions, RemoteStore};

#[path = "../../../tests/support/servers.rs"]
// The integration tests, which share the file, use more of it.
#[allow(dead_code)]
mod programs;

use programs::{Kind, Server};

/// Set in the process with the credentials.
const MARK: &str = "ZARRFS_TEST_CONTRACT";

fn core(kind: Kind, test: &str) {
    let nothing = tempfile::tempdir().unwrap();
    if std::env::var_os(MARK).is_none() {
        let name = format!("store::contract::servers::{test}");
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &name, "--nocapture", "--include-ignored"])
            .envs(programs::environment(kind))
            .env(MARK, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let server = Arc::new(Server::start(kind, nothing.path()));
    let subjects = AtomicUsize::new(0);
    let make = |objects: Objects<'_>| {
        let prefix = format!("t{}", subjects.fetch_add(1, Ordering::Relaxed));
        let put = {
            let (server, prefix) = (server.clone(), prefix.clone());
            move |key: &str, bytes: &[u8]| server.put(vec![(format!("{prefix}/{key}"), bytes.to_vec())])
        };
        objects.iter().for_each(|(key, bytes)| put(key, bytes));
        let options = RemoteOptions {
            endpoint_url: server.endpoint(),
            no_sign_request: server.environment().is_empty() && kind != Kind::Nginx,
            ..RemoteOptions::default()
        };
        let store = RemoteStore::open(&server.url(&prefix), &options).unwrap();
        Subject { store: Arc::new(store), replace: Some(Box::new(put)), _keep: Box::new(()) }
    };
    // nginx lists no name of dots alone.
    let names: Vec<&str> =
        ODD_NAMES.into_iter().filter(|name| kind != Kind::Nginx || *name != "...").collect();
    contract_with_names(make, &names);
    if kind != Kind::Nginx {
        long_objects(&make);
        writable_contract(make);
    }
}

/// An object that is sent in parts.
fn long_objects(make: &impl Fn(Objects<'_>) -> Subject) {
    const BYTES: usize = (64 << 20) + 1;
    let Subject { store, _keep, .. } = make(&[("a", b"old")]);
    let like = store.head("a").unwrap().unwrap();
    let long: Vec<u8> =
        (0..BYTES as u32).map(|number| (number.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
    let put = |precondition| {
        let options = PutOptions { precondition, ..PutOptions::new("", &like) };
        store.writer().unwrap().put("a", &[ObjectPart::Bytes(&long)], &options)
    };
    assert!(matches!(put(Precondition::Missing), Err(Error::Changed { .. })));
    let version = put(Precondition::Version(like.version)).unwrap();
    assert_eq!(store.head("a").unwrap().unwrap().version, version);
    assert!(store.get("a", BYTES as u64).unwrap().unwrap() == long);
}

// Not s3s-fs: a folder is not a missing object there, but a failure (500).

#[test]
fn moto() {
    core(Kind::Moto, "moto");
}

#[test]
#[ignore = "full: needs Azurite"]
fn azurite() {
    core(Kind::Azurite, "azurite");
}

#[test]
#[ignore = "full: needs the Google server"]
fn google() {
    core(Kind::Google, "google");
}

#[test]
fn nginx() {
    core(Kind::Nginx, "nginx");
}
