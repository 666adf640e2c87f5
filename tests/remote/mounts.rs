//! The corpus through one mount of each server, and every other command on it.

use std::ffi::OsString;
use std::path::Path;

use crate::scene::Scene;
use crate::support::corpus::read_through;
use crate::support::fixtures::corpus;
use crate::support::mounted::Mount;
use crate::support::say;
use crate::support::servers::{Kind, Server};

/// Mounts what is below a server's bucket.
pub fn mount(server: &Server, below: &str, options: &[&str]) -> Option<Mount> {
    let mut all = server.options();
    all.extend(options.iter().map(|option| (*option).to_owned()));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let environment: Vec<(&str, OsString)> =
        server.environment().into_iter().map(|(name, value)| (name, value.into())).collect();
    Mount::with_environment(Path::new(&server.url(below)), &all, &environment, "a mounted object store")
}

fn one_mount(kind: Kind) {
    let Some(corpus) = corpus("corpus, object stores") else { return };
    let server = Server::start(kind, &corpus);
    let Some(mount) = mount(&server, "", &[]) else { return };
    read_through(&mount, &corpus, &format!("one mount of {kind:?}"));
    mount.unmount();
}

#[test]
#[ignore = "full: reads the corpus, object by object"]
fn at_moto() {
    one_mount(Kind::Moto);
}

#[test]
#[ignore = "full: needs s3s-fs"]
fn at_s3s() {
    one_mount(Kind::S3s);
}

#[test]
#[ignore = "full: needs Azurite"]
fn at_azurite() {
    one_mount(Kind::Azurite);
}

#[test]
#[ignore = "full: needs the Google server"]
fn at_google() {
    one_mount(Kind::Google);
}

#[test]
#[ignore = "full: reads the corpus, object by object"]
fn at_nginx() {
    one_mount(Kind::Nginx);
}

#[test]
fn ten_mounts_of_one_store() {
    let names = ["raw", "zstd", "shards"];
    let Some(scene) = Scene::new(&names, "ten mounts") else { return };
    let options = ["--cache-size", "16M"];
    let mounts: Vec<Mount> =
        (0..10).map_while(|_| scene.mount(&options, "ten mounts of one store")).collect();
    let expected: Vec<_> = names.iter().map(|name| (name, scene.bytes(name, 0))).collect();
    std::thread::scope(|scope| {
        for (number, mount) in mounts.iter().enumerate() {
            let expected = &expected;
            scope.spawn(move || {
                for turn in 0..names.len() {
                    let (name, bytes) = &expected[(number + turn) % names.len()];
                    assert!(std::fs::read(mount.path(name)).unwrap() == *bytes, "mount {number}: {name}");
                }
            });
        }
    });
    let most = mounts.iter().map(|mount| mount.memory_kb("VmHWM") / 1024).max();
    say(format!("{} mounts of one store: {} MiB at most each", mounts.len(), most.unwrap_or(0)));
    mounts.into_iter().for_each(Mount::unmount);
}
