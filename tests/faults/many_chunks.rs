//! Arrays in chunks of one byte: a request of a million chunks takes as long as the store lets it, but no longer than its deadline, and what
//! else is asked of its file does not wait for it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::support::hanging::HangingFolder;
use crate::support::level;
use crate::support::mounted::Mount;
use crate::support::place::*;
use serde_json::{Value, json};

/// Returns an array of `bytes` bytes in chunks (or shards) of `chunk` bytes.
fn document(bytes: u64, chunk: u64, codecs: &Value) -> String {
    json!({"zarr_format": 3, "node_type": "array", "shape": [bytes], "data_type": "uint8", "fill_value": 7,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": codecs, "attributes": {}})
    .to_string()
}

fn zstd() -> Value {
    json!([{"name": "bytes"}, {"name": "zstd", "configuration": {"level": 1, "checksum": false}}])
}

fn store() -> Option<Place> {
    if !can_mount() {
        return None;
    }
    let place = Place::new();
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    Some(place)
}

/// The bug: a read went through all its chunks for each 256 of them, and went on doing so after its deadline; the threads that it
/// kept were those that its file's other requests waited for.
#[test]
fn a_read_of_a_million_chunks_ends_at_its_deadline_and_delays_no_other_request() {
    let kinds = [("compressed", zstd()), ("uncompressed", json!([{"name": "bytes"}]))];
    for (what, codecs) in kinds.into_iter().take(level::pick(1, 2)) {
        let Some(place) = store() else { return };
        let size = 4 << 20;
        place.put("tiny/zarr.json", document(size, 1, &codecs));
        let chunks = place.store().join("tiny/c");
        fs::create_dir(&chunks).unwrap();
        let slow = HangingFolder::slow(&chunks, Duration::from_millis(1));
        let options =
            ["--writable", "--tune", "request-deadline=2", "--tune", "threads=2", "--revalidate", "0.1"];
        let mount = Mount::new(&place.store(), &options, "chunks of one byte").unwrap();
        let tiny = mount.path("tiny");
        let file = File::options().read(true).write(true).open(&tiny).unwrap();
        let reads: Vec<_> = (0..4)
            .map(|part| {
                let tiny = File::open(&tiny).unwrap();
                let read = move || tiny.read_at(&mut vec![0; 1 << 19], part << 20);
                std::thread::spawn(move || read().map_err(|error| error.raw_os_error()))
            })
            .collect();
        wait_for(|| slow.waiting() > 300);
        file.set_len(size - 1).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(fs::metadata(&tiny).unwrap().len(), size, "{what}: looked up anew");
        assert!(reads.iter().all(|read| !read.is_finished()), "{what}: answered while the reads go on");
        for read in reads {
            assert_eq!(read.join().unwrap(), Err(Some(libc::EIO)), "{what}");
        }
        // Whatever the kernel asked for ends, too.
        wait_for(|| {
            let before = slow.waiting();
            std::thread::sleep(Duration::from_millis(500));
            slow.waiting() == before
        });
        let timeouts = mount.log().lines().filter(|line| line.contains("did not answer in time")).count();
        assert!(timeouts > 0, "{what}: {}", mount.log());
        assert_eq!(fs::metadata(&tiny).unwrap().len(), size, "{what}");
        drop(file);
    }
}

#[test]
fn what_is_written_to_chunks_of_one_byte_is_read() {
    let Some(place) = store() else { return };
    let index = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    let sharded = json!([{"name": "sharding_indexed", "configuration": {"chunk_shape": [1], "codecs": zstd(),
        "index_codecs": index, "index_location": "end"}}]);
    let size = level::pick(1 << 14, 1 << 16);
    place.put("single/zarr.json", document(size, 1, &zstd()));
    place.put("raw/zarr.json", document(size, 1, &json!([{"name": "bytes"}])));
    place.put("sharded/zarr.json", document(2 * size, size / 2, &sharded));
    let mount = Mount::new(&place.store(), &["--writable"], "chunks of one byte").unwrap();
    for name in ["single", "raw", "sharded"] {
        let file = File::options().read(true).write(true).open(mount.path(name)).unwrap();
        let mut expected = vec![7; fs::metadata(mount.path(name)).unwrap().len() as usize];
        // More than a session thread takes at once, and less.
        for (offset, length) in [(1000, 3000), (12_000, 20)] {
            let data: Vec<u8> = (offset..offset + length).map(|at| (at * 31) as u8).collect();
            file.write_all_at(&data, offset as u64).unwrap();
            expected[offset..offset + length].copy_from_slice(&data);
        }
        assert!(fs::read(mount.path(name)).unwrap() == expected, "{name}: dirty");
        file.sync_all().unwrap();
        drop(file);
        let open = File::open(mount.path(name)).unwrap();
        let mut part = vec![0; 9000];
        open.read_exact_at(&mut part, 500).unwrap();
        assert!(part == expected[500..9500], "{name}");
        assert!(place.cat(name) == expected, "{name}: stored");
    }
    mount.unmount();
}
