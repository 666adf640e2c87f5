//! References made by kerchunk, VirtualiZarr and tifffile, through a mount: every array equal to what h5py, netCDF4 and tifffile
//! read from the files themselves (tests/programs/references.py).

use crate::support::mounted::Mount;
use crate::support::references::{compare, made};
use crate::support::say;

#[test]
#[ignore = "full: needs kerchunk and VirtualiZarr"]
fn every_array_is_equal_to_its_own_library() {
    let Some((folder, expected)) = made("references") else { return };
    let mut arrays = 0;
    for (references, of_one) in &expected {
        let Some(mount) = Mount::new(&folder.join(references), &[], "references") else { return };
        compare(&mount, folder, of_one, references);
        arrays += of_one.len();
        mount.unmount();
    }
    say(format!("{arrays} arrays in {} files of references", expected.len()));
    assert!(arrays > 60, "{expected:?}");
}
