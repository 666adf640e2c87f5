//! The zarrs crate reading or writing a whole array in process.
//!
//!     zarrs_peer read STORE
//!     zarrs_peer write STORE FLAT   the bytes of FLAT, without syncing
//!
//! Prints "ready", waits for a line, and prints the seconds from there.

use std::sync::Arc;
use std::time::Instant;

use zarrs::array::{Array, ArrayBytes};
use zarrs::filesystem::FilesystemStore;

/// The moment at which the work begins.
fn ready() -> std::io::Result<Instant> {
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(Instant::now())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let store = Arc::new(FilesystemStore::new(&arguments[2])?);
    let array = Array::open(store, "/")?;
    let seconds = match arguments[1].as_str() {
        "read" => {
            let started = ready()?;
            let bytes: ArrayBytes<'_> = array.retrieve_array_subset(&array.subset_all())?;
            let seconds = started.elapsed().as_secs_f64();
            std::hint::black_box(&bytes);
            seconds
        }
        _ => {
            let flat = std::fs::read(&arguments[3])?;
            let started = ready()?;
            array.store_array_subset(&array.subset_all(), ArrayBytes::new_flen(flat))?;
            started.elapsed().as_secs_f64()
        }
    };
    println!("{seconds}");
    Ok(())
}
