//! The zarrs crate reading or writing a whole array in process.
//!
//!     zarrs_peer read STORE         a folder, or the URL of a web server: then with 64 chunks at a time
//!     zarrs_peer write STORE FLAT   the bytes of FLAT, without syncing
//!
//! Prints "ready", waits for a line, and prints the seconds from there.

use std::sync::Arc;
use std::time::Instant;

use zarrs::array::{Array, ArrayBytes, CodecOptions};
use zarrs::filesystem::FilesystemStore;

/// Returns the moment at which the work begins.
fn ready() -> std::io::Result<Instant> {
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(Instant::now())
}

/// How many chunks of a web server are read at a time.
const AT_A_TIME: usize = 64;

/// Reads an array of a web server.
fn read_remote(url: &str) -> Result<f64, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let client = object_store::ClientOptions::new().with_allow_http(true);
    let http = object_store::http::HttpBuilder::new().with_url(url).with_client_options(client).build()?;
    let store = Arc::new(zarrs_object_store::AsyncObjectStore::new(http));
    runtime.block_on(async {
        let array = Array::async_open(store, "/").await?;
        let options = CodecOptions::default().with_concurrent_target(AT_A_TIME);
        let started = ready()?;
        let bytes: ArrayBytes<'_> =
            array.async_retrieve_array_subset_opt(&array.subset_all(), &options).await?;
        let seconds = started.elapsed().as_secs_f64();
        std::hint::black_box(&bytes);
        Ok(seconds)
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments[2].contains("://") {
        println!("{}", read_remote(&arguments[2])?);
        return Ok(());
    }
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
