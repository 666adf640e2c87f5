//! Zip archives where they lie: at a web server, in a bucket, in a folder of stores, and as targets of references. zarr-python makes
//! them and says what is in them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::disk_cache::metric;
use crate::mounts::mount;
use crate::refusals::zarrfs;
use crate::scene::HANG;
use crate::support::corpus::read_through;
use crate::support::fixtures;
use crate::support::misbehaving::{Asked, BUCKET, Fault, Service};
use crate::support::mounted::Mount;
use crate::support::say;
use crate::support::servers::{Kind, Server};

/// Makes archives, and the bytes of their arrays as zarr-python reads them. Arguments: folder.
const MAKE: &str = r#"
import os, sys, zipfile, numpy, zarr
folder = sys.argv[1]
store, expected = os.path.join(folder, "store"), os.path.join(folder, "expected")
os.makedirs(store), os.makedirs(expected)
random = numpy.random.default_rng(5)
def fill(root, version):
    kinds = {"raw": dict(chunks=(64, 64), compressors=None), "zstd": dict(chunks=(32, 128), compressors="auto")}
    if version == 3:
        kinds["shards"] = dict(chunks=(16, 64), shards=(128, 256), compressors="auto")
    for name, kind in kinds.items():
        group = root.require_group("g")
        array = group.create_array(name, shape=(200, 256), dtype="i4", fill_value=7, **kind)
        array[:128] = random.integers(0, 1 << 30, (128, 256))
    return kinds
for version in [2, 3]:
    for name, method in [("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)]:
        path = f"{store}/{name}{version}.zip"
        with zarr.storage.ZipStore(path, mode="w", compression=method) as zipped:
            kinds = fill(zarr.create_group(zipped, zarr_format=version), version)
        with zarr.storage.ZipStore(path, mode="r") as zipped:
            for kind in kinds:
                zarr.open_group(zipped, mode="r")[f"g/{kind}"][:].tofile(f"{expected}/{name}{version}.{kind}")
with zipfile.ZipFile(f"{store}/outer.zip", "w") as outer:
    outer.write(f"{store}/stored3.zip", "in/ner.zip")
"#;

/// What every array of the archives has.
const ARRAYS: [(&str, &[&str]); 4] = [
    ("stored2", &["raw", "zstd"]),
    ("deflated2", &["raw", "zstd"]),
    ("stored3", &["raw", "zstd", "shards"]),
    ("deflated3", &["raw", "zstd", "shards"]),
];

struct Archives {
    folder: TempDir,
}

impl Archives {
    fn new(what: &str) -> Option<Archives> {
        let python = fixtures::python(what)?;
        let folder = tempfile::tempdir().unwrap();
        let output = Command::new(python).args(["-c", MAKE]).arg(folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Archives { folder })
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn expected(&self, archive: &str, array: &str) -> Vec<u8> {
        fs::read(self.folder.path().join("expected").join(format!("{archive}.{array}"))).unwrap()
    }
}

fn cat(location: &str, array: &str, options: &[&str]) -> Vec<u8> {
    let output = zarrfs(&[&["cat", location, array], options].concat(), &[]);
    assert!(output.status.success(), "{location} {array}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn refusal(arguments: &[&str]) -> String {
    let output = zarrfs(arguments, &[]);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn at_a_web_server_and_in_a_bucket() {
    let Some(archives) = Archives::new("zips at services") else { return };
    let service = Service::start(&archives.store());
    let endpoint = service.endpoint();
    let s3 = ["--endpoint-url", &endpoint, "--no-sign-request"];
    for (base, options) in [(format!("{endpoint}/{BUCKET}"), &[][..]), (format!("s3://{BUCKET}"), &s3)] {
        for (archive, arrays) in ARRAYS {
            let url = format!("{base}/{archive}.zip");
            let before = service.count("GET") + service.count("HEAD") + service.count("LIST");
            let output = zarrfs(&[&["attrs", url.as_str(), "/"], options].concat(), &[]);
            let asked = service.count("GET") + service.count("HEAD") + service.count("LIST") - before;
            assert!(output.status.success(), "{url}: {output:?}");
            assert!(asked <= 3, "{url}: an open needs {asked} requests");
            for array in arrays {
                let bytes = cat(&url, &format!("g/{array}"), options);
                assert!(bytes == archives.expected(archive, array), "{url} {array}");
                let below = format!("{url}|zip:g|zarr{}:{array}", &archive[archive.len() - 1..]);
                assert!(cat(&below, "/", options) == bytes, "{below}");
            }
        }
        let inner = cat(&format!("{base}/outer.zip|zip:in/ner.zip|zip:g/"), "raw", options);
        assert!(inner == archives.expected("stored3", "raw"), "{base}");
    }
}

/// Services that refuse to send the last bytes of an object: always, or where the object is shorter than that.
#[test]
fn at_services_without_ranges_of_last_bytes() {
    let Some(archives) = Archives::new("zips without ranges of last bytes") else { return };
    let service = Service::start(&archives.store());
    let endpoint = service.endpoint();
    let s3 = ["--endpoint-url", &endpoint, "--no-sign-request"];
    for (base, options) in [(format!("{endpoint}/{BUCKET}"), &[][..]), (format!("s3://{BUCKET}"), &s3)] {
        let asked = || service.count("GET") + service.count("HEAD") + service.count("LIST");
        let url = format!("{base}/stored3.zip");
        let open = || {
            let before = asked();
            let output = zarrfs(&[&["attrs", url.as_str(), "/"], options].concat(), &[]);
            assert!(output.status.success(), "{url}: {output:?}");
            asked() - before
        };
        service.be_well();
        let usual = open();
        for (status, code) in
            [(500, "InternalError"), (416, "InvalidRange"), (400, "InvalidArgument"), (501, "NotImplemented")]
        {
            service.misbehave(move |asked: &Asked| {
                let is_suffix = asked.range.as_deref().is_some_and(|range| range.starts_with("bytes=-"));
                is_suffix.then_some(Fault::Status(status, code, None))
            });
            let requests = open();
            assert!(requests <= usual + 2, "{url} with {status}: {requests} requests instead of {usual}");
            assert!(
                cat(&url, "g/raw", options) == archives.expected("stored3", "raw"),
                "{url} with {status}"
            );
        }
    }
    fs::write(archives.store().join("empty.zip"), "").unwrap();
    let sentence = refusal(&[&["ls", &format!("s3://{BUCKET}/empty.zip")], &s3[..]].concat());
    assert!(sentence.contains("empty.zip"), "{sentence}");
}

#[test]
fn an_archive_that_changes_is_stale() {
    let Some(archives) = Archives::new("changed zips") else { return };
    let service = Service::start(&archives.store());
    let url = format!("{}/{BUCKET}/stored3.zip", service.endpoint());
    let options = ["--revalidate", "0", "--cache-size", "0"];
    let Some(mount) = Mount::new(Path::new(&url), &options, "changed zips") else { return };
    assert!(fs::read(mount.path("g/raw")).unwrap() == archives.expected("stored3", "raw"));
    fs::rename(archives.store().join("deflated3.zip"), archives.store().join("stored3.zip")).unwrap();
    // What is in memory counts as current for a second.
    let is_stale =
        || fs::read(mount.path("g/raw")).err().and_then(|error| error.raw_os_error()) == Some(libc::ESTALE);
    let started = Instant::now();
    while !is_stale() {
        assert!(started.elapsed() < HANG, "{:?}: {}", fs::read(mount.path("g/raw")).err(), mount.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let error = fs::read(mount.path("g/zstd")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{error}");
    mount.unmount();
}

#[test]
fn in_a_folder_of_stores() {
    let Some(archives) = Archives::new("zips in a folder") else { return };
    let service = Service::start(&archives.store());
    let endpoint = service.endpoint();
    let s3 = ["--endpoint-url", &endpoint, "--no-sign-request"];
    let (bucket, folder) = (format!("s3://{BUCKET}"), archives.store());
    for (location, options) in [(folder.to_str().unwrap(), &[][..]), (&bucket, &s3)] {
        let Some(mount) = Mount::new(Path::new(location), options, "zips in a folder") else { return };
        let mut names: Vec<String> = fs::read_dir(mount.point())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".zip"))
            .collect();
        names.sort();
        assert_eq!(names, ["deflated2.zip", "deflated3.zip", "stored2.zip", "stored3.zip"], "{location}");
        for (archive, arrays) in ARRAYS {
            for array in arrays {
                let bytes = fs::read(mount.path(&format!("{archive}.zip/g/{array}"))).unwrap();
                assert!(bytes == archives.expected(archive, array), "{location} {archive} {array}");
            }
        }
        mount.unmount();
    }
}

#[test]
fn pipelines_on_this_machine() {
    let Some(archives) = Archives::new("pipelines") else { return };
    let path = archives.store().join("stored3.zip").display().to_string();
    let raw = archives.expected("stored3", "raw");
    for location in [
        format!("{path}|zip:|zarr3:g"),
        format!("{path}|zip:g/"),
        format!("file://{path}|zip:g|zarr:"),
        format!("{}/outer.zip|zip:in%2Fner.zip|zip:g|zarr3:", archives.store().display()),
    ] {
        assert!(cat(&location, "raw", &[]) == raw, "{location}");
    }
    // The name of an array that is a root is that of the last path.
    let Some(mount) = Mount::new(Path::new(&format!("{path}|zip:g|zarr3:raw")), &[], "pipelines") else {
        return;
    };
    assert!(fs::read(mount.path("raw")).unwrap() == raw);
    mount.unmount();
    for (location, what) in [
        (format!("{path}|zip:nothing"), "no folder 'nothing'"),
        (format!("{path}|zip:|zarr2:"), "write zarr3:"),
        (format!("{path}|tar:"), "'tar:' is not supported"),
        (format!("{path}|zip:../x"), "no store can have"),
        (format!("{}/none.zip|zip:", archives.store().display()), "no such"),
    ] {
        let sentence = refusal(&["ls", &location]);
        assert!(sentence.contains(what), "{location}: {sentence}");
    }
}

/// The same as tensorstore reads them.
const TENSORSTORE: &str = r#"
import sys, tensorstore
for url in sys.argv[2:]:
    with open(sys.argv[1], "ab") as out:
        out.write(tensorstore.open(url, open=True).result().read().result().tobytes())
"#;

#[test]
fn pipelines_as_tensorstore_reads_them() {
    let Some(archives) = Archives::new("pipelines of tensorstore") else { return };
    let Some(python) = fixtures::python("pipelines of tensorstore") else { return };
    if !fixtures::has_modules(&python, "tensorstore") {
        return crate::support::skip("pipelines of tensorstore", "the interpreter lacks tensorstore", true);
    }
    let service = Service::start(&archives.store());
    let store = archives.store();
    let bases = [format!("file://{}", store.display()), format!("{}/{BUCKET}", service.endpoint())];
    let urls: Vec<String> = bases
        .iter()
        .flat_map(|base| {
            [
                format!("{base}/stored3.zip|zip:g/raw/|zarr3:"),
                format!("{base}/stored3.zip|zip:|zarr3:g/shards"),
                format!("{base}/stored3.zip|zip:g%2Fzstd|zarr3:"),
                format!("{base}/deflated2.zip|zip:g/|zarr2:zstd/"),
            ]
        })
        .collect();
    let out = archives.folder.path().join("out");
    let output = Command::new(python).args(["-c", TENSORSTORE]).arg(&out).args(&urls).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let ours: Vec<u8> = urls.iter().flat_map(|url| cat(url, "/", &[])).collect();
    assert!(ours == fs::read(out).unwrap());
}

#[test]
fn chained_targets_obey_the_rule_for_each_link() {
    let Some(archives) = Archives::new("chained targets") else { return };
    let service = Service::start(&archives.store());
    let url = format!("{}/{BUCKET}", service.endpoint());
    let local = archives.store().join("stored3.zip").display().to_string();
    let Some(raw) = member(&local, "g/raw/zarr.json") else { return };
    let folder = tempfile::tempdir().unwrap();
    let references = folder.path().join("refs.json");
    let path = references.to_str().unwrap();
    let write = |target: &dyn Fn(&str) -> String| {
        let mut refs = serde_json::Map::new();
        refs.insert("zarr.json".to_owned(), r#"{"zarr_format":3,"node_type":"group"}"#.into());
        refs.insert("raw/zarr.json".to_owned(), raw.clone().into());
        for (row, column) in (0..2).flat_map(|row| (0..4).map(move |column| (row, column))) {
            let chunk = target(&format!("g/raw/c/{row}/{column}"));
            refs.insert(format!("raw/c/{row}/{column}"), serde_json::json!([chunk]));
        }
        fs::write(&references, serde_json::json!({ "version": 1, "refs": refs }).to_string()).unwrap();
    };
    let expected = archives.expected("stored3", "raw");
    type Spell<'a> = &'a dyn Fn(&str, &str) -> String;
    let chain: Spell<'_> = &|archive, member| format!("zip://{member}::{archive}");
    let pipeline: Spell<'_> = &|archive, member| format!("{archive}|zip:{member}");
    let nested: Spell<'_> = &|archive, member| {
        format!("zip://{member}::zip://in/ner.zip::{}", archive.replace("stored3", "outer"))
    };
    for spell in [chain, pipeline, nested] {
        for (archive, allowed) in [
            (format!("{url}/stored3.zip"), service.endpoint()),
            (local.clone(), archives.store().display().to_string()),
        ] {
            write(&|member| spell(&archive, member));
            assert!(cat(path, "raw", &["--allow-references", &allowed]) == expected, "{archive}");
            let sentence = refusal(&["cat", path, "raw"]);
            assert!(sentence.contains("--allow-references"), "{archive}: {sentence}");
        }
    }
    for (target, what) in [
        (format!("zip://none::{local}"), "missing"),
        (format!("zip://../x::{local}"), "names no member"),
        (format!("{}{local}", "zip://a::".repeat(9)), "too many archives"),
        (format!("zip://a::{}", references.display()), "zip"),
    ] {
        write(&|_| target.clone());
        let both = [
            "--allow-references",
            local.rsplit_once('/').unwrap().0,
            "--allow-references",
            folder.path().to_str().unwrap(),
        ];
        let sentence = refusal(&[&["cat", path, "raw"], &both[..]].concat());
        assert!(sentence.contains(what), "{target}: {sentence}");
    }
}

/// Returns a member of an archive as text.
fn member(archive: &str, member: &str) -> Option<String> {
    let python = fixtures::python("a member of an archive")?;
    let script =
        "import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))";
    let output = Command::new(python).args(["-c", script, archive, member]).output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

/// Makes an archive that is shorter than what is asked for from its end.
fn put_small_archive(path: &Path) {
    let array = r#"{"zarr_format":3,"node_type":"array","shape":[4],"data_type":"uint8","fill_value":0,"chunk_grid":{"name":"regular",
        "configuration":{"chunk_shape":[4]}},"chunk_key_encoding":{"name":"default"},"codecs":["bytes"]}"#;
    let mut zip = zip::ZipWriter::new(fs::File::create(path).unwrap());
    let group = br#"{"zarr_format":3,"node_type":"group"}"#;
    for (name, content) in
        [("zarr.json", &group[..]), ("a/zarr.json", array.as_bytes()), ("a/c/0", &[1, 2, 3, 4])]
    {
        zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap();
}

fn at_server(kind: Kind) {
    let Some(archives) = Archives::new("zips at a server") else { return };
    put_small_archive(&archives.store().join("small.zip"));
    let server = Server::start(kind, &archives.store());
    let options = server.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let small =
        zarrfs(&[&["cat", &server.url("small.zip"), "a"], &options[..]].concat(), &server.environment());
    assert!(small.stdout == [1, 2, 3, 4], "{kind:?}: {small:?}");
    for (archive, arrays) in ARRAYS {
        // Of the end of the archive: its size where it has to be known first, and the bytes. And whether it has changed since.
        let Some(mount) = mount(&server, &format!("{archive}.zip"), &[]) else { return };
        let requests = metric(&mount, "zarrfs_store_request_seconds_count");
        assert!(requests <= 3, "{kind:?} {archive}: an open needs {requests} requests");
        say(format!("{kind:?} {archive}: {requests} requests"));
        mount.unmount();
        for array in arrays {
            let url = server.url(&format!("{archive}.zip"));
            let name = format!("g/{array}");
            let output = zarrfs(&[&["cat", &url, &name], &options[..]].concat(), &server.environment());
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{kind:?} {url} {array}: {text}");
            assert!(output.stdout == archives.expected(archive, array), "{kind:?} {url} {array}");
        }
    }
}

#[test]
fn at_nginx() {
    at_server(Kind::Nginx);
}

#[test]
fn at_moto() {
    at_server(Kind::Moto);
}

/// The bug: s3s-fs answers 500 to a request for more last bytes than the small archive has, which was asked for until the deadline.
#[test]
#[ignore = "full: needs s3s-fs"]
fn at_s3s() {
    at_server(Kind::S3s);
}

#[test]
#[ignore = "full: needs Azurite"]
fn at_azurite() {
    at_server(Kind::Azurite);
}

/// The corpus as an archive with members of this kind.
fn pack_corpus(corpus: &Path, to: &Path, method: zip::CompressionMethod) {
    let mut zip = zip::ZipWriter::new(fs::File::create(to).unwrap());
    let options = zip::write::SimpleFileOptions::default().compression_method(method);
    let mut folders = vec![(corpus.to_owned(), String::new())];
    while let Some((folder, name)) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            let name = format!("{name}{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() {
                folders.push((entry.path(), name + "/"));
            } else {
                zip.start_file(name, options).unwrap();
                zip.write_all(&fs::read(entry.path()).unwrap()).unwrap();
            }
        }
    }
    zip.finish().unwrap();
}

fn corpus_at(kind: Kind) {
    let Some(corpus) = fixtures::corpus("the corpus in a zip") else { return };
    let folder = tempfile::tempdir().unwrap();
    let methods = [zip::CompressionMethod::Stored, zip::CompressionMethod::Deflated];
    for method in methods {
        pack_corpus(&corpus, &folder.path().join(format!("{method}.zip")), method);
    }
    let server = Server::start(kind, folder.path());
    for method in methods {
        let Some(mount) = mount(&server, &format!("{method}.zip"), &[]) else { return };
        let requests = metric(&mount, "zarrfs_store_request_seconds_count");
        assert!(requests <= 3, "{kind:?} {method}: an open needs {requests} requests");
        read_through(
            &mount,
            &corpus,
            &format!("{method} in a zip at {kind:?}, opened by {requests} requests"),
        );
        mount.unmount();
    }
}

#[test]
#[ignore = "full: reads the corpus, member by member"]
fn corpus_at_nginx() {
    corpus_at(Kind::Nginx);
}

#[test]
#[ignore = "full: reads the corpus, member by member"]
fn corpus_at_moto() {
    corpus_at(Kind::Moto);
}

#[test]
#[ignore = "full: needs Azurite"]
fn corpus_at_azurite() {
    corpus_at(Kind::Azurite);
}

#[test]
fn a_damaged_archive_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("cut.zip"), "PK\x03\x04 and nothing more").unwrap();
    let service = Service::start(folder.path());
    let url = format!("{}/{BUCKET}", service.endpoint());
    let sentence = refusal(&["ls", &format!("{url}/cut.zip")]);
    assert!(sentence.contains("no record of the end of a zip archive"), "{sentence}");
    assert!(refusal(&["ls", &format!("{url}/none.zip")]).contains("no such archive"));
}
