//! References at a service to files in the same bucket, and local references to files at a service.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use crate::support::mounted::Mount;
use crate::support::references::{compare, made, to_url};
use crate::support::servers::{Kind, Server};

fn mount(server: &Server, references: &Path, options: &[&str]) -> Option<Mount> {
    let mut all = server.options();
    all.extend(options.iter().map(|option| (*option).to_owned()));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let environment: Vec<(&str, OsString)> =
        server.environment().into_iter().map(|(name, value)| (name, value.into())).collect();
    Mount::with_environment(references, &all, &environment, "references at a service")
}

fn in_one_bucket_and_across_stores(kind: Kind) {
    let Some((folder, expected)) = made("references at a service") else { return };
    let server = Server::start(kind, folder);
    let arrays = &expected["relative.json"];
    for name in ["relative.json", "relative.parq"] {
        let Some(mount) = mount(&server, Path::new(&server.url(name)), &[]) else { return };
        compare(&mount, folder, arrays, &format!("{kind:?}, {name}"));
        mount.unmount();
    }
    let url = format!("{}/", server.url(""));
    let Some(local) = to_url(&url, "local references to a service") else { return };
    for name in ["urls.json", "urls.parq"] {
        let references = local.path().join(name);
        let Some(allowed) = mount(&server, &references, &["--allow-references", &url]) else { return };
        compare(&allowed, folder, arrays, &format!("{kind:?}, {name}"));
        allowed.unmount();
        let Some(refused) = mount(&server, &references, &[]) else { return };
        let error = std::fs::read(refused.path("chunked")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{kind:?}, {name}");
        let sentence = std::fs::read_to_string(refused.path("__zarrfs__/last_error")).unwrap();
        assert!(sentence.contains(&format!("--allow-references {}", server_root(&server))), "{sentence}");
        refused.unmount();
    }
}

/// Returns scheme, host and bucket: a web server has no buckets.
fn server_root(server: &Server) -> String {
    match server.endpoint() {
        Some(_) => server.url(""),
        None => server.address(),
    }
}

#[test]
#[ignore = "full: needs s3s-fs"]
fn at_s3s() {
    in_one_bucket_and_across_stores(Kind::S3s);
}

#[test]
#[ignore = "full: needs Azurite"]
fn at_azurite() {
    in_one_bucket_and_across_stores(Kind::Azurite);
}

#[test]
#[ignore = "full: needs the Google server"]
fn at_google() {
    in_one_bucket_and_across_stores(Kind::Google);
}

#[test]
#[ignore = "full: needs kerchunk and VirtualiZarr"]
fn at_nginx() {
    in_one_bucket_and_across_stores(Kind::Nginx);
}
