//! Hostile and broken references: refused or bounded, with a sentence that names the key; neighbours untouched.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use zarrfs::error::Error;
use zarrfs::store::{Store, StoreOptions, open_with};

use crate::support::library::read;
use crate::support::mounted::Mount;

const CONTENT: &[u8] = b"0123456789abcdef";

fn document() -> Value {
    json!({"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "|u1", "fill_value": 0, "order": "C", "compressor": null, "filters": null})
}

/// A folder with `good.bin`, `inside/refs.json`, a secret next to it, and links to the secret.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("inside/sub")).unwrap();
        fs::create_dir_all(at("outside")).unwrap();
        fs::write(at("inside/good.bin"), CONTENT).unwrap();
        fs::write(at("outside/secret.bin"), b"secretsecret").unwrap();
        symlink("../outside/secret.bin", at("inside/link.bin")).unwrap();
        symlink(at("outside"), at("inside/folder")).unwrap();
        Place { folder }
    }

    fn path(&self, below: &str) -> std::path::PathBuf {
        self.folder.path().join(below)
    }

    /// Returns a store with an array `a` of one chunk, which is this reference, and a good array `b`.
    fn store(&self, reference: &Value, allowed: &[&str]) -> Result<Arc<dyn Store>, Error> {
        let references = json!({"version": 1, "refs": {
            ".zgroup": {"zarr_format": 2}, "a/.zarray": document(), "b/.zarray": document(),
            "a/0": reference, "b/0": ["good.bin", 4, 4],
        }});
        self.open(&references.to_string(), allowed)
    }

    fn open(&self, text: &str, allowed: &[&str]) -> Result<Arc<dyn Store>, Error> {
        fs::write(self.path("inside/refs.json"), text).unwrap();
        let allowed_references = allowed.iter().map(|prefix| (*prefix).to_owned()).collect();
        let options = StoreOptions { allowed_references, ..StoreOptions::default() };
        open_with(self.path("inside/refs.json").to_str().unwrap(), &options)
    }
}

#[test]
fn targets_that_may_not_be_opened_are_errors_that_name_key_and_prefix() {
    let place = Place::new();
    let outside = place.path("outside");
    let (outside, inside) = (outside.to_str().unwrap(), place.path("inside"));
    let inside = inside.to_str().unwrap();
    for (reference, errno, words) in [
        (json!(["/etc/passwd", 0, 4]), libc::EACCES, "--allow-references /etc"),
        (json!([format!("{outside}/secret.bin"), 0, 4]), libc::EACCES, "--allow-references"),
        (json!([format!("file://{outside}/secret.bin"), 0, 4]), libc::EACCES, outside),
        (json!([format!("file://{inside}/%2e%2e/outside/secret.bin"), 0, 4]), libc::EACCES, outside),
        (json!([format!("{inside}/../outside/secret.bin"), 0, 4]), libc::EACCES, outside),
        (json!(["../outside/secret.bin", 0, 4]), libc::EACCES, outside),
        (json!(["sub/../../outside/secret.bin", 0, 4]), libc::EACCES, outside),
        (json!(["../../../../../../../../../../etc/passwd", 0, 4]), libc::EIO, "leads out"),
        (json!(["link.bin", 0, 4]), libc::EIO, "leads out of the store"),
        (json!(["folder/secret.bin", 0, 4]), libc::EIO, "leads out of the store"),
        (json!(["http://127.0.0.1:9/x", 0, 4]), libc::EACCES, "--allow-references http://127.0.0.1:9"),
        (json!(["s3://bucket/x", 0, 4]), libc::EACCES, "--allow-references s3://bucket"),
        (json!(["http://ann:hunter2@host/x", 0, 4]), libc::EOPNOTSUPP, "password"),
        (json!(["https://host/x?sig=hunter2", 0, 4]), libc::EACCES, "--allow-references https://host"),
        (json!(["ftp://host/x", 0, 4]), libc::EOPNOTSUPP, "ftp:"),
        (json!(["simplecache::s3://bucket/x", 0, 4]), libc::EOPNOTSUPP, "chains"),
        (json!(["missing.bin", 0, 4]), libc::EIO, "missing"),
        (json!(["sub", 0, 4]), libc::EIO, "missing"),
        (json!(["", 0, 4]), libc::EIO, "empty"),
        (json!(["good.bin", 14, 4]), libc::EIO, "which has 16"),
        (json!(["good.bin", 9_000_000_000_000_000_000_u64, 4]), libc::EIO, "which has 16"),
        (json!(["good.bin", 0, 1_000_000_000_000_u64]), libc::EIO, "which has 16"),
    ] {
        let store = place.store(&reference, &[]).unwrap();
        let error = read(&store, "a").unwrap_err();
        let sentence = error.to_string();
        assert_eq!(error.errno(), errno, "{reference}: {sentence}");
        assert!(sentence.contains(words) && sentence.contains("a/0"), "{reference}: {sentence}");
        assert!(!sentence.contains("hunter2"), "{sentence}");
        assert_eq!(read(&store, "b").unwrap(), b"4567", "{reference}");
    }
    let secret = json!(["../outside/secret.bin", 0, 4]);
    for allowed in [outside.to_owned(), format!("file://{outside}")] {
        assert_eq!(read(&place.store(&secret, &[&allowed]).unwrap(), "a").unwrap(), b"secr");
    }
    let sibling = format!("{outside}-not");
    fs::create_dir(&sibling).unwrap();
    assert_eq!(read(&place.store(&secret, &[&sibling]).unwrap(), "a").unwrap_err().errno(), libc::EACCES);
}

#[test]
fn whole_targets_text_and_generators() {
    let place = Place::new();
    fs::write(place.path("inside/four.bin"), b"four").unwrap();
    let references = json!({"version": 1, "templates": {"u": "good.bin", "f": "{{c}}.bin"},
        "gen": [{"key": "g{{n}}/{{i}}", "url": "{{u}}", "offset": "{{i * 4 + n}}", "length": "{{4}}",
                 "dimensions": {"n": [0, 1], "i": {"stop": 3}}}],
        "refs": {"a/.zarray": document(), "a/0": ["{{f(c='four')}}"], "b/.zarray": document().to_string(), "b/0": "base64:YmFzZQ==",
                 "c/.zarray": document(), "c/0": "text", "d/.zarray": document(), "d/0": ["{{u}}", 12, 4],
                 "../x": "ignored", "": "ignored"}});
    let store = place.open(&references.to_string(), &[]).unwrap();
    for (array, bytes) in [("a", b"four"), ("b", b"base"), ("c", b"text"), ("d", b"cdef")] {
        assert_eq!(read(&store, array).unwrap(), bytes, "{array}");
    }
    assert_eq!(store.get("g1/2", 9).unwrap().unwrap(), b"9abc");
    let names: Vec<String> = store.list("g0").unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["0", "1", "2"]);
}

/// fsspec writes paths as they are, other programs encode them.
#[test]
fn a_percent_sign_is_one_first_and_an_encoded_character_then() {
    let place = Place::new();
    let url = format!("file://{}/a%20b.bin", place.path("inside").display());
    let read_it = || read(&place.store(&json!([url, 0, 4]), &[]).unwrap(), "a").unwrap();
    fs::write(place.path("inside/a b.bin"), b"\x05\0\0\0").unwrap();
    assert_eq!(read_it(), b"\x05\0\0\0", "no file has the literal name");
    fs::write(place.path("inside/a%20b.bin"), b"\x07\0\0\0").unwrap();
    assert_eq!(read_it(), b"\x07\0\0\0", "the literal name comes first");
    // Neither is read outside of what is allowed.
    let url = format!("file://{}/a%20b.bin", place.path("outside").display());
    fs::write(place.path("outside/a%20b.bin"), b"\x07\0\0\0").unwrap();
    let error = place.store(&json!([url, 0, 4]), &[]).and_then(|store| read(&store, "a")).unwrap_err();
    assert_eq!(error.errno(), libc::EACCES, "{error}");
}

#[test]
fn documents_that_are_not_references_or_too_large_are_refused() {
    let place = Place::new();
    let generator = |dimensions: Value| {
        let gen_ = json!({"key": "{{i}}", "url": "u", "dimensions": dimensions});
        json!({"version": 1, "gen": [gen_], "refs": {}}).to_string()
    };
    let template = |text: &str| {
        json!({"version": 1, "templates": {"t": "{{c}}{{c}}"}, "refs": {"key": [text, 0, 1]}}).to_string()
    };
    let doubled = (0..20).fold("'0123456789'".to_owned(), |inner, _| format!("t(c={inner})"));
    let deep = format!("{{\"key\": {}{}}}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    for (text, words) in [
        ("{\"type\": \"FeatureCollection\", \"features\": [1]}".to_owned(), "features"),
        ("{\"key\": [\"u\", -1, 4]}".to_owned(), "key"),
        ("{\"key\": [\"u\", 1, -4]}".to_owned(), "key"),
        ("{\"key\": [\"u\", 1.5, 4]}".to_owned(), "key"),
        ("{\"key\": [\"u\", 18446744073709551615, 4]}".to_owned(), "in no file"),
        ("{\"key\": [\"u\", 99999999999999999999999, 4]}".to_owned(), "key"),
        ("{\"key\": [\"u\", 1]}".to_owned(), "key"),
        ("{\"key\": 7}".to_owned(), "key"),
        ("{\"key\": \"base64:???\"}".to_owned(), "base64"),
        ("{\"key\": \"cut".to_owned(), "line 1"),
        ("{\"version\": 2, \"refs\": {}}".to_owned(), "version 2"),
        (deep, "recursion limit"),
        (generator(json!({"i": {"stop": 1_000_000_000_000_u64}})), "1000000000000 keys"),
        (generator(json!({"i": {"stop": 1_000_000}, "j": {"stop": 1_000_000}})), "1000000000000 keys"),
        (generator(json!({"i": {"stop": 3, "step": 0}})), "dimension 'i'"),
        (generator(json!({})).replace("{{i}}", "{{missing}}"), "missing"),
        (template(&format!("{{{{{doubled}}}}}")), "65536"),
        (template("{{ t.__class__ }}"), "not supported"),
        (template("{% for x in y %}{{x}}"), "not supported"),
    ] {
        let Err(error) = place.open(&text, &[]) else { panic!("{}", text.get(..200).unwrap_or(&text)) };
        assert!(matches!(error, Error::Usage(_)), "{error:?}");
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
}

/// The members of a file come in any order.
#[test]
fn templates_and_version_may_come_last() {
    let place = Place::new();
    for version in [json!(1), json!(2)] {
        let references = json!({"refs": {"a/0": ["{{u}}", 12, 4], "a/1": "{{u}}", "a/2": ["good.bin", 0, 4]},
            "gen": [{"key": "g{{i}}", "url": "{{u}}", "offset": "{{i}}", "length": "1", "dimensions": {"i": [0, 1]}}],
            "templates": {"u": "good.bin"}, "version": version});
        let opened = place.open(&references.to_string(), &[]);
        if version == 2 {
            assert!(matches!(opened, Err(Error::Usage(sentence)) if sentence.contains("version 2")));
            continue;
        }
        let store = opened.unwrap();
        for (key, bytes) in [("a/0", &b"cdef"[..]), ("a/1", b"{{u}}"), ("a/2", b"0123"), ("g1", b"1")] {
            assert_eq!(store.get(key, 9).unwrap().unwrap(), bytes, "{key}");
        }
    }
    // Version 0 does not have these members.
    let store = place.open(&json!({"a/0": ["good.bin", 0, 4], "templates": 7}).to_string(), &[]).unwrap();
    assert_eq!(store.get("a/0", 9).unwrap().unwrap(), b"0123");
}

/// Records that are damaged, and a document that claims ten million chunks.
#[test]
fn records_are_read_when_they_are_needed() {
    let place = Place::new();
    let folder = place.path("inside/refs.parq");
    fs::create_dir_all(folder.join("a")).unwrap();
    let array = json!({"zarr_format": 2, "shape": [40_000_000], "chunks": [4], "dtype": "|u1", "fill_value": 7, "order": "C", "compressor": null, "filters": null});
    let open = |record_size: Value| {
        let text = json!({"metadata": {".zgroup": {"zarr_format": 2}, "a/.zarray": array}, "record_size": record_size});
        fs::write(folder.join(".zmetadata"), text.to_string()).unwrap();
        open_with(folder.to_str().unwrap(), &StoreOptions::default())
    };
    for wrong in [json!(0), json!(-1), json!(1_u64 << 40), json!("x")] {
        assert!(matches!(open(wrong), Err(Error::Usage(sentence)) if sentence.contains("record_size")));
    }
    let store = open(json!(10_000)).unwrap();
    assert!(store.open("a/9999999").unwrap().is_none() && store.open("a/10000000").unwrap().is_none());
    fs::write(folder.join("a/refs.3.parq"), b"PAR1 and nothing more").unwrap();
    let error = store.open("a/30001").err().unwrap();
    assert_eq!(error.errno(), libc::EIO);
    assert!(error.to_string().contains("a/30001") && error.to_string().contains("refs.3.parq"), "{error}");
}

#[test]
fn a_mount_refuses_and_shows_the_prefix() {
    let place = Place::new();
    drop(place.store(&json!(["../outside/secret.bin", 0, 4]), &[]).unwrap());
    let references = place.path("inside/refs.json");
    let Some(mount) = Mount::new(Path::new(&references), &[], "hostile references") else { return };
    let error = fs::read(mount.path("a")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    let sentence = fs::read_to_string(mount.path("__zarrfs__/last_error")).unwrap();
    assert!(sentence.contains("--allow-references"), "{sentence}");
    assert_eq!(fs::read(mount.path("b")).unwrap(), b"4567");
    mount.unmount();
    let prefix = format!("allow-references={}", place.path("outside").display());
    let Some(mount) = Mount::new(Path::new(&references), &["-o", &prefix], "allowed references") else {
        return;
    };
    assert_eq!(fs::read(mount.path("a")).unwrap(), b"secr");
    mount.unmount();
}
