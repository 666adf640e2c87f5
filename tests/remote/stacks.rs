//! Stacks of stores at a service: the document next to them, and on this machine.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use serde_json::json;

use crate::support::mounted::Mount;
use crate::support::servers::{Kind, Server};
use crate::support::uneven::v3;

fn mount(server: &Server, stack: &Path, options: &[&str]) -> Option<Mount> {
    let mut all = server.options();
    all.extend(options.iter().map(|option| (*option).to_owned()));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let environment: Vec<(&str, OsString)> =
        server.environment().into_iter().map(|(name, value)| (name, value.into())).collect();
    Mount::with_environment(stack, &all, &environment, "a stack at a service")
}

/// Writes 30 stores of 4 rows, and a stack of them whose names begin with `before`.
fn write(folder: &Path, before: &str) -> Vec<u8> {
    let mut expected = Vec::new();
    let mut layers = Vec::new();
    for day in 0..30_u8 {
        let array = folder.join(format!("days/day{day}.zarr/a"));
        fs::create_dir_all(&array).unwrap();
        fs::write(array.join("zarr.json"), v3("uint8", &[4, 3], &[2, 3], &json!(["bytes"])).to_string())
            .unwrap();
        fs::write(array.parent().unwrap().join("zarr.json"), r#"{"zarr_format": 3, "node_type": "group"}"#)
            .unwrap();
        for chunk in 0..2_u8 {
            let bytes = [day * 8 + chunk, 1, 2, day, chunk, 5];
            let at = array.join(format!("c/{chunk}"));
            fs::create_dir_all(&at).unwrap();
            fs::write(at.join("0"), bytes).unwrap();
            expected.extend(bytes);
        }
        layers.push(json!({"store": format!("{before}days/day{day}.zarr"), "path": "a"}));
    }
    let alone = layers[3].clone();
    let all = json!({"driver": "concat", "axis": 0, "layers": layers});
    let document = json!({"zarrfs_stack": 1, "arrays": {"all": all, "alone": alone}});
    fs::write(folder.join("stack.json"), document.to_string()).unwrap();
    expected
}

fn at_a_service_and_across_stores(kind: Kind) {
    let folder = tempfile::tempdir().unwrap();
    let expected = write(folder.path(), "");
    let server = Server::start(kind, folder.path());
    let Some(there) = mount(&server, Path::new(&server.url("stack.json")), &[]) else { return };
    assert_eq!(fs::read(there.path("all")).unwrap(), expected, "{kind:?}: {}", there.log());
    assert_eq!(fs::read(there.path("alone")).unwrap(), expected[36..48], "{kind:?}");
    there.unmount();
    let url = format!("{}/", server.url(""));
    let local = tempfile::tempdir().unwrap();
    write(local.path(), &url);
    fs::remove_dir_all(local.path().join("days")).unwrap();
    let stack = local.path().join("stack.json");
    let Some(here) = mount(&server, &stack, &["--allow-references", &url]) else { return };
    assert_eq!(fs::read(here.path("all")).unwrap(), expected, "{kind:?}: {}", here.log());
    here.unmount();
    let refused =
        zarrfs::hierarchy::open_store(stack.to_str().unwrap(), &zarrfs::store::StoreOptions::default());
    let sentence = refused.err().unwrap().to_string();
    assert!(sentence.contains("--allow-references"), "{sentence}");
}

#[test]
#[ignore = "full: needs s3s-fs"]
fn at_s3s() {
    at_a_service_and_across_stores(Kind::S3s);
}

#[test]
#[ignore = "full: needs nginx"]
fn at_nginx() {
    at_a_service_and_across_stores(Kind::Nginx);
}
