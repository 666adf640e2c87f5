//! `zarrfs cat STORE ARRAY`: the flat bytes on standard output.

use std::io::IsTerminal;

use clap::Args;
use zarrfs::array::{Array, Blocking, Engine, EngineOptions, ReadRequest, ReplyBuffer};
use zarrfs::cancellation::Cancellation;
use zarrfs::hierarchy::Tree;

use crate::cli::exit::{Exit, Outcome};
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
        let store = open::store(&self.store)?;
        let path = open::path(&self.array);
        let metadata = open::array(&Tree::new(store.clone()), &path)?;
        let options = EngineOptions::new(self.engine.cache_limit_bytes(), self.engine.threads.number());
        let engine = Engine::with_options(EngineOptions { page_cache_keeps: true, ..options });
        let array = Array::open(&engine, &store, &path, metadata.clone(), self.layout.layout());
        let array = array.map_err(|error| Exit::Failed(open::refusal(&store, &path, &metadata, &error)))?;
        let size_bytes = array.size_bytes();
        // No bar among the bytes on the same terminal.
        let bar = progress::bytes(size_bytes, !std::io::stdout().is_terminal());
        let (reader, cancellation) = (zarrfs::array::Reader::default(), Cancellation::never());
        let mut buffer = ReplyBuffer::default();
        let mut offset = 0;
        while offset < size_bytes {
            let range = offset..size_bytes.min(offset + BLOCK_BYTES);
            offset = range.end;
            let (reader, cancellation) = (&reader, &cancellation);
            let request = ReadRequest { reader, range, blocking: Blocking::Yes, cancellation };
            let Some(block) = array.read(&request, &mut buffer)? else { break };
            if output::write(&block)? == Reader::HasGone {
                break;
            }
            bar.set_position(offset);
        }
        bar.finish_and_clear();
        Ok(())
    }
}
