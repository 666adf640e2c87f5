//! Documents of v1, v2, v3 and N5: parsed, the codec chain built, the array opened and read (as fill value).
#![no_main]

use libfuzzer_sys::fuzz_target;
use zarrfs::metadata::{parse_v2_group, salvage};
use zarrfs_fuzz::{read, store};

fuzz_target!(|input: &[u8]| {
    let Some((version, document)) = input.split_first() else { return };
    let _ = salvage(document);
    match version % 5 {
        0 => read(&store("zarr.json", document, b"")),
        1 => read(&store(".zarray", document, b"")),
        2 => read(&store("meta", document, b"")),
        3 => drop(parse_v2_group("a/.zgroup", document, Some(document), Some(document))),
        _ => read(&store("attributes.json", document, b"")),
    }
});
