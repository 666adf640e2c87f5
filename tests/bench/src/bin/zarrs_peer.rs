//! The zarrs crate reading or writing a whole array in process.
//!
//!     zarrs_peer read STORE         prints the seconds
//!     zarrs_peer write STORE FLAT   writes the bytes of FLAT, prints the seconds (without syncing)

use std::sync::Arc;
use std::time::Instant;

use zarrs::array::{Array, ArrayBytes};
use zarrs::filesystem::FilesystemStore;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let store = Arc::new(FilesystemStore::new(&arguments[2])?);
    let array = Array::open(store, "/")?;
    let seconds = match arguments[1].as_str() {
        "read" => {
            let started = Instant::now();
            let bytes: ArrayBytes<'_> = array.retrieve_array_subset(&array.subset_all())?;
            let seconds = started.elapsed().as_secs_f64();
            std::hint::black_box(&bytes);
            seconds
        }
        _ => {
            let flat = std::fs::read(&arguments[3])?;
            let started = Instant::now();
            array.store_array_subset(&array.subset_all(), ArrayBytes::new_flen(flat))?;
            started.elapsed().as_secs_f64()
        }
    };
    println!("{seconds}");
    Ok(())
}
