//! The `zarrfs` program. `cli` holds one file per command; it may use every layer of the library, and nothing uses it.

mod cli;

#[global_allocator]
static ALLOCATOR: zarrfs::sys::Allocator = zarrfs::sys::Allocator;

fn main() -> std::process::ExitCode {
    cli::run(std::env::args_os().collect())
}
