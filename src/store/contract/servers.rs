//! The contract at real servers of each service: the core, and where objects can be put the rest.
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
            .args(["--exact", &name, "--nocapture"])
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
    contract_with_names(&make, &names);
    if kind != Kind::Nginx {
        writable_contract(make);
    }
}

// Not s3s-fs: a folder is no object there, but a failure (500).

#[test]
fn moto() {
    core(Kind::Moto, "moto");
}

#[test]
fn azurite() {
    core(Kind::Azurite, "azurite");
}

#[test]
fn google() {
    core(Kind::Google, "google");
}

#[test]
fn nginx() {
    core(Kind::Nginx, "nginx");
}
