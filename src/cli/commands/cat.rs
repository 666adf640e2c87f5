//! `zarrfs cat STORE ARRAY`: the flat bytes on standard output.

use std::io::IsTerminal;

use clap::Args;
use zarrfs::array::{Array, Engine};
use zarrfs::hierarchy::Tree;

use crate::cli::exit::Outcome;
use crate::cli::options::{EngineArguments, LayoutArguments, LogArguments, StoreArguments};
use crate::cli::output::{self, Reader};
use crate::cli::{log, open, progress};

/// Bytes per write.
const BLOCK_BYTES: u64 = 1 << 20;

/// Write the flat bytes of an array to standard output, without mounting
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,

    /// Path of the array in the store; / where the store itself is an array
    #[arg(value_name = "ARRAY")]
    array: String,

    #[command(flatten)]
    layout: LayoutArguments,

    #[command(flatten)]
    engine: EngineArguments,

    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    /// Writes them. If the reader closes its end early, the command ends quietly.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let store = open::zarr_store(&self.store.store, self.store.access.follow_symlinks.is_on())?;
        let path = open::path(&self.array);
        let metadata = open::array(&Tree::new(store.clone()), &path)?;
        let engine = Engine::new(self.engine.cache_limit_bytes(), self.engine.threads.number());
        let array = Array::open(&engine, &store, &path, metadata, self.layout.layout())?;
        let size_bytes = array.size_bytes();
        // No bar among the bytes on the same terminal.
        let bar = progress::bytes(size_bytes, !std::io::stdout().is_terminal());
        let mut block = vec![0; BLOCK_BYTES.min(size_bytes) as usize];
        let reader = zarrfs::array::Reader::default();
        engine.let_readers_keep();
        let mut offset = 0;
        while offset < size_bytes {
            let length = BLOCK_BYTES.min(size_bytes - offset) as usize;
            let Some(part) = block.get_mut(..length) else { break };
            array.read_by(&reader, offset, part)?;
            array.note_read(&reader, offset, offset + length as u64);
            if output::write(part)? == Reader::HasGone {
                break;
            }
            offset += length as u64;
            bar.set_position(offset);
        }
        bar.finish_and_clear();
        Ok(())
    }
}
