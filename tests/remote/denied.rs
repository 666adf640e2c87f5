//! What a service does not let its caller see is unknown, and never missing: a service that replies 403 to some requests.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::misbehaving::{Asked, BUCKET, Fault, Service};
use crate::support::mounted::Mount;

const GROUP: &str = r#"{"zarr_format":3,"node_type":"group"}"#;
const ARRAY: &str = r#"{"zarr_format":3,"node_type":"array","shape":[400],"data_type":"uint16","fill_value":0,
    "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[100]}},"chunk_key_encoding":{"name":"default"},
    "codecs":[{"name":"bytes","configuration":{"endian":"little"}}]}"#;
const MISSING_403: [&str; 2] = ["--missing-status", "403"];

/// A bucket with a group and the array `a` in it. Each element is its own index; the third chunk is missing.
struct Bucket {
    folder: tempfile::TempDir,
    service: Service,
}

impl Bucket {
    fn new() -> Bucket {
        let folder = tempfile::tempdir().unwrap();
        let at = |key: &str| folder.path().join("store").join(key);
        fs::create_dir_all(at("a/c")).unwrap();
        fs::write(at("zarr.json"), GROUP).unwrap();
        fs::write(at("a/zarr.json"), ARRAY).unwrap();
        for chunk in [0, 1, 3_u16] {
            let elements = chunk * 100..(chunk + 1) * 100;
            let bytes: Vec<u8> = elements.flat_map(u16::to_le_bytes).collect();
            fs::write(at(&format!("a/c/{chunk}")), bytes).unwrap();
        }
        let service = Service::start(&folder.path().join("store"));
        Bucket { folder, service }
    }

    /// Requests for which `code` gives one are refused with 403.
    fn refuse(&self, code: impl Fn(&Asked) -> Option<&'static str> + Send + 'static) {
        self.service.misbehave(move |asked| Some(Fault::Status(403, code(asked)?, None)));
    }

    /// Denies requests for missing objects, too.
    fn deny(&self, code: impl Fn(&Asked) -> Option<&'static str> + Send + 'static) {
        let store = self.folder.path().join("store");
        self.refuse(move |asked| {
            let is_missing = !asked.is_listing && asked.method != "PUT" && !store.join(&asked.key).is_file();
            code(asked).or(is_missing.then_some("AccessDenied"))
        });
    }

    fn endpoint(&self) -> String {
        self.service.endpoint()
    }

    fn run(&self, command: &[&str], options: &[&str]) -> Output {
        let (name, arguments) = command.split_first().unwrap();
        Command::new(env!("CARGO_BIN_EXE_zarrfs"))
            .arg(name)
            .args(["--endpoint-url", &self.endpoint(), "--no-sign-request"])
            .args(options)
            .arg(format!("s3://{BUCKET}"))
            .args(arguments)
            .env("AWS_PROFILE", "")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn mount(&self, what: &str) -> Option<Mount> {
        let endpoint = self.endpoint();
        let options = [&["--endpoint-url", &endpoint, "--no-sign-request"][..], &MISSING_403].concat();
        let environment = [("AWS_PROFILE", std::ffi::OsString::new())];
        Mount::with_environment(Path::new(&format!("s3://{BUCKET}")), &options, &environment, what)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn only_a_code_that_hides_whether_an_object_is_there_means_missing() {
    let bucket = Bucket::new();
    for (code, what) in [
        ("InvalidObjectState", "restore"),
        ("KMS.DisabledException", "key"),
        ("AllAccessDisabled", "AllAccessDisabled"),
        ("AccountProblem", "AccountProblem"),
    ] {
        let is_refused = move |asked: &Asked| (asked.key == "a/c/1").then_some(code);
        for options in [&MISSING_403[..], &[]] {
            if options.is_empty() {
                bucket.refuse(is_refused)
            } else {
                bucket.deny(is_refused)
            }
            let output = bucket.run(&["cat", "a[:200]"], options);
            let said = text(&output.stderr);
            assert!(!output.status.success(), "{code} reads as fill value");
            assert!(said.contains(code) && said.contains(what) && said.contains("a/c/1"), "{said}");
            assert!(!said.contains("--missing-status"), "{said}");
        }
        // HEAD has no body, and so no code.
        bucket.deny(is_refused);
        let output = bucket.run(&["ls", "--json"], &MISSING_403);
        let listed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(listed[1]["stored_bytes"].is_null(), "{code}: {listed}");
    }
    bucket.deny(|asked| (asked.key == "a/c/1").then_some("AccessDenied"));
    let output = bucket.run(&["cat", "a"], &MISSING_403);
    let elements = [(0..100).collect::<Vec<u16>>(), vec![0; 200], (300..400).collect()].concat();
    let expected: Vec<u8> = elements.into_iter().flat_map(u16::to_le_bytes).collect();
    assert!(output.status.success() && output.stdout == expected, "{output:?}");
}

#[test]
fn a_listing_that_is_denied_is_unknown() {
    let bucket = Bucket::new();
    bucket.deny(|asked| asked.is_listing.then_some("AccessDenied"));
    let output = bucket.run(&["check"], &MISSING_403);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(!output.status.success() && said.contains("0 missing") && said.contains("not checked"), "{said}");
    let output = bucket.run(&["check", "a"], &MISSING_403);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(!output.status.success() && said.contains("not checked") && said.contains("list"), "{said}");
    let output = bucket.run(&["info", "a", "--json"], &MISSING_403);
    let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(info["stored_objects"].is_null() && info["stored_bytes"].is_null(), "{info}");
    let output = bucket.run(&["preview", "a"], &MISSING_403);
    assert!(text(&output.stdout).contains("399"), "{output:?}");
    let output = bucket.run(&["ls"], &MISSING_403);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(!output.status.success() && said.contains("list"), "{said}");
    let output = bucket.run(&["ls", "a"], &MISSING_403);
    assert!(output.status.success() && text(&output.stdout).contains("uint16"), "{output:?}");
}

#[test]
fn arrays_are_opened_by_name_after_a_listing_was_denied() {
    let bucket = Bucket::new();
    bucket.deny(|asked| asked.is_listing.then_some("AccessDenied"));
    let Some(mount) = bucket.mount("denied listings") else { return };
    fs::read_dir(mount.point()).unwrap().for_each(|name| drop(name.unwrap()));
    let bytes = fs::read(mount.path("a")).unwrap();
    assert_eq!((bytes.len(), &bytes[796..]), (800, &[0x8e, 1, 0x8f, 1][..]));
}

#[test]
fn an_array_whose_chunks_cannot_be_listed_is_not_removed() {
    let bucket = Bucket::new();
    bucket.deny(|asked| asked.is_listing.then_some("AccessDenied"));
    let output = bucket.run(&["rm", "--yes", "a"], &MISSING_403);
    assert!(!output.status.success(), "{output:?}");
    assert!(bucket.folder.path().join("store/a/zarr.json").exists(), "{output:?}");
    assert!(text(&output.stderr).contains("list"), "{output:?}");
}
