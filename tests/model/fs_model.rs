//! Random programs against the file system layer (no FUSE), which writes arrays of every form with small caches and dirty
//! limits, disks that are full for a while, other programs that write or make arrays longer, and remounts: each file must
//! read as a byte vector does, and so must the store afterwards.
//!
//! `ZARRFS_MODEL_CASES=10000 cargo test --release --test model fs_model::` is the long run.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::hierarchy::arrays::{ArrayCase, array};
use crate::hierarchy::files::{Model, Mounting};
use crate::support::level;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use zarrfs::array::{ByteOrder, Layout, Order};

/// A place in a file: a share of its length in 1/1000, and beyond.
type Place = u16;

/// One thing that a program does. Handles and arrays are meant modulo how many there are.
#[derive(Clone, Debug)]
enum Step {
    Open {
        file: usize,
        writes: bool,
        truncates: bool,
        appends: bool,
    },
    Release(usize),
    Flush(usize),
    Sync(usize),
    Read(usize, Place, usize),
    Write(usize, Place, usize, u8),
    WritePage(usize, Place, usize, u8),
    WriteAll(usize, usize, u8),
    Fill(usize, Place, usize, u8),
    Send(usize),
    BeginRead(usize, Place, usize),
    EndReads(usize),
    AnswerOpens(usize),
    Truncate(usize, Size),
    /// This far past the end.
    WritePast(usize, usize, usize, u8),
    Append(usize, usize, u8),
    Allocate(usize, Place, usize, i32),
    Copy((usize, Place), (usize, Place), usize),
    Sidecar(usize, Option<u64>),
    /// At a place, or next to a dirty range.
    Foreign {
        file: usize,
        place: Option<Place>,
        length: usize,
        seed: u8,
        reads: (bool, bool),
    },
    Grow(usize, usize, bool),
    Fail(bool, bool),
    Recover,
    StoreDue(bool),
    Expire,
    Verify,
    Remount,
}

#[derive(Clone, Copy, Debug)]
enum Size {
    Zero,
    Part(Place),
    Same,
    Other,
    /// This many more rows.
    Rows(usize),
}

const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
const MODES: [i32; 7] = [
    0,
    KEEP,
    libc::FALLOC_FL_PUNCH_HOLE | KEEP,
    libc::FALLOC_FL_ZERO_RANGE,
    libc::FALLOC_FL_ZERO_RANGE | KEEP,
    libc::FALLOC_FL_PUNCH_HOLE | KEEP,
    libc::FALLOC_FL_COLLAPSE_RANGE,
];

fn step() -> impl Strategy<Value = Step> {
    let place = || 0u16..1040;
    let length = || prop_oneof![0usize..24, 0usize..700, 0usize..4000];
    let size = prop_oneof![4 => Just(Size::Zero), 4 => place().prop_map(Size::Part), 3 => Just(Size::Same), 1 => Just(Size::Other), 3 => (1usize..6).prop_map(Size::Rows)];
    let handle = || 0usize..8;
    prop_oneof![
        8 => (0usize..3, any::<bool>(), 0..8).prop_map(|(file, writes, truncates)| Step::Open {
            file,
            writes: writes || truncates < 3,
            truncates: truncates == 0,
            appends: truncates == 1 || truncates == 4,
        }),
        3 => handle().prop_map(Step::Release),
        3 => handle().prop_map(Step::Flush),
        2 => handle().prop_map(Step::Sync),
        10 => (handle(), place(), length()).prop_map(|(h, at, length)| Step::Read(h, at, length)),
        14 => (handle(), place(), length(), any::<u8>()).prop_map(|(h, at, n, seed)| Step::Write(h, at, n, seed)),
        4 => (handle(), place(), length(), any::<u8>()).prop_map(|(h, at, n, seed)| Step::WritePage(h, at, n, seed)),
        6 => (handle(), place(), length(), any::<u8>()).prop_map(|(h, at, n, seed)| Step::Fill(h, at, n, seed)),
        2 => (0usize..3).prop_map(Step::Send),
        6 => (handle(), place(), length()).prop_map(|(h, at, length)| Step::BeginRead(h, at, length)),
        2 => (0usize..3).prop_map(Step::EndReads),
        3 => (0usize..3).prop_map(Step::AnswerOpens),
        2 => (handle(), 1usize..300, any::<u8>()).prop_map(|(h, block, seed)| Step::WriteAll(h, block, seed)),
        4 => (0usize..3, size).prop_map(|(file, size)| Step::Truncate(file, size)),
        4 => (handle(), prop_oneof![Just(0usize), 0usize..200], length(), any::<u8>())
            .prop_map(|(h, past, n, seed)| Step::WritePast(h, past, n, seed)),
        4 => (handle(), length(), any::<u8>()).prop_map(|(h, n, seed)| Step::Append(h, n, seed)),
        3 => (handle(), place(), length(), 0..MODES.len())
            .prop_map(|(h, at, length, mode)| Step::Allocate(h, at, length, MODES[mode])),
        3 => ((handle(), place()), (handle(), place()), length()).prop_map(|(from, to, n)| Step::Copy(from, to, n)),
        2 => (0usize..3, prop_oneof![Just(None), (0u64..100).prop_map(Some)])
            .prop_map(|(file, number)| Step::Sidecar(file, number)),
        4 => (0usize..3, prop_oneof![Just(None), place().prop_map(Some)], length(), any::<u8>(), any::<(bool, bool)>())
            .prop_map(|(file, place, length, seed, reads)| Step::Foreign { file, place, length, seed, reads }),
        2 => (0usize..3, 1usize..9, any::<bool>()).prop_map(|(file, rows, flushes)| Step::Grow(file, rows, flushes)),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(full, unsyncable)| Step::Fail(full, unsyncable)),
        2 => Just(Step::Recover),
        2 => any::<bool>().prop_map(Step::StoreDue),
        1 => Just(Step::Expire),
        1 => Just(Step::Verify),
        1 => Just(Step::Remount),
    ]
}

fn mounting() -> impl Strategy<Value = Mounting> {
    let layout = (any::<bool>(), any::<bool>()).prop_map(|(is_f, is_big)| Layout {
        order: if is_f { Order::F } else { Order::C },
        byte_order: if is_big { ByteOrder::Big } else { ByteOrder::Little },
    });
    let cache = prop_oneof![Just(0u64), Just(900), Just(5000), Just(1 << 20)];
    let dirty = prop_oneof![Just(0u64), Just(60), Just(500), Just(1 << 20)];
    (layout, cache, dirty, 1usize..3, 0..5, 0..3, any::<bool>()).prop_map(
        |(layout, cache, dirty, threads, folder, truncate, creates)| Mounting {
            creates,
            truncate_zeroes: truncate == 0,
            layout,
            cache_limit_bytes: cache,
            dirty_limit_bytes: dirty,
            threads,
            has_folder: folder < 2,
            has_overlay: folder == 1,
        },
    )
}

fn data(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ seed).collect()
}

fn bytes_of(model: &Model, file: usize, size: Size) -> usize {
    let now = model.files[file].bytes.len();
    match size {
        Size::Zero => 0,
        Size::Part(place) => now * place as usize / 1000,
        Size::Same => now,
        Size::Other => now + 1,
        Size::Rows(rows) => {
            let is_fortran = model.mounting_is_fortran();
            now + rows * model.files[file].case.row_bytes(is_fortran).unwrap_or(1)
        }
    }
}

fn apply(model: &mut Model, step: &Step) {
    let files = model.files.len();
    let handles = model.open.len();
    let slot = |handle: usize| (handles > 0).then(|| handle % handles);
    let at = |model: &Model, file: usize, place: Place| model.files[file].bytes.len() * place as usize / 1000;
    let of = |model: &Model, slot: usize, place: Place| at(model, model.open[slot].file, place);
    match *step {
        Step::Open { file, writes, truncates, appends } if handles < 8 => {
            model.open_to(file % files, writes, truncates, appends && writes);
        }
        Step::Open { .. } => {}
        Step::Truncate(file, size) => {
            let size = bytes_of(model, file % files, size);
            model.truncate(file % files, size);
        }
        Step::Sidecar(file, number) => model.sidecar(file % files, number),
        Step::Foreign { file, place, length, seed, reads: (before, after) } => {
            let file = file % files;
            if before {
                model.read_all(file);
            }
            let offset = match place {
                Some(place) => at(model, file, place),
                None => model.next_to_a_dirty_range(file).unwrap_or(0),
            };
            model.foreign(file, offset, &data(length, seed));
            if after {
                model.read_all(file);
            }
        }
        Step::Grow(file, rows, flushes) => model.grow(file % files, rows, flushes),
        Step::Fail(is_full, is_unsyncable) => model.fail(is_full, is_unsyncable),
        Step::Recover => model.fail(false, false),
        Step::StoreDue(all) => model.store_due(if all { Duration::ZERO } else { Duration::from_secs(3600) }),
        Step::Send(file) => model.send(file % files),
        Step::EndReads(file) => model.end_reads(file % files, &(0..usize::MAX)),
        Step::AnswerOpens(file) => model.answer_opens(file % files),
        Step::Expire => model.fs.expire(),
        Step::Verify => model.verify(),
        Step::Remount => model.remount(),
        Step::Copy((from, from_place), (to, to_place), length) => {
            let (Some(from), Some(to)) = (slot(from), slot(to)) else { return };
            let from_offset = of(model, from, from_place);
            let to_offset = of(model, to, to_place);
            model.copy((from, from_offset), (to, to_offset), length);
        }
        Step::Release(handle)
        | Step::Flush(handle)
        | Step::Sync(handle)
        | Step::Read(handle, ..)
        | Step::Write(handle, ..)
        | Step::WritePage(handle, ..)
        | Step::WritePast(handle, ..)
        | Step::Append(handle, ..)
        | Step::WriteAll(handle, ..)
        | Step::Fill(handle, ..)
        | Step::BeginRead(handle, ..)
        | Step::Allocate(handle, ..) => {
            if let Some(slot) = slot(handle) {
                apply_to_handle(model, slot, step);
            }
        }
    }
}

fn apply_to_handle(model: &mut Model, slot: usize, step: &Step) {
    let size = model.files[model.open[slot].file].bytes.len();
    let at = |place: Place| size * place as usize / 1000;
    match *step {
        Step::Release(_) => model.release(slot),
        Step::Flush(_) => model.flush(slot, false),
        Step::Sync(_) => model.flush(slot, true),
        Step::Read(_, place, length) => model.read(slot, at(place), length),
        Step::Write(_, place, length, seed) => model.write(slot, at(place), &data(length, seed), false),
        Step::WritePage(_, place, length, seed) => model.write(slot, at(place), &data(length, seed), true),
        Step::WritePast(_, past, length, seed) => model.write(slot, size + past, &data(length, seed), false),
        Step::Append(_, length, seed) => {
            let end = model.shown_size(slot);
            model.write(slot, end, &data(length, seed), false);
        }
        Step::Fill(_, place, length, seed) => model.fill(slot, at(place), &data(length, seed)),
        Step::BeginRead(_, place, length) => model.begin_read(slot, at(place), length),
        Step::WriteAll(_, block, seed) => {
            let block = block.max(size / 1000);
            for from in (0..size).step_by(block) {
                model.write(slot, from, &data(block.min(size - from), seed), false);
            }
        }
        Step::Allocate(_, place, length, mode) => model.allocate(slot, at(place), length.max(1), mode),
        _ => {}
    }
}

fn check(mounting: &Mounting, arrays: &[ArrayCase], steps: &[Step]) {
    let mut model = Model::new(mounting, arrays);
    model.open(0, true, false);
    for step in steps {
        apply(&mut model, step);
    }
    model.remount();
    for file in 0..model.files.len() {
        model.open(file, false, false);
        model.answer_opens(file);
        model.read(file, 0, model.files[file].bytes.len() + 1);
    }
}

/// Returns what chooses the programs: the commit, or `ZARRFS_TEST_SEED`, so that a failure can be repeated.
fn chosen() -> RngSeed {
    let mut hasher = DefaultHasher::new();
    level::seed().hash(&mut hasher);
    RngSeed::Fixed(hasher.finish())
}

fn cases() -> u32 {
    level::count("ZARRFS_MODEL_CASES", 200, 1000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, max_shrink_iters: 2000, rng_seed: chosen(), ..ProptestConfig::default() })]

    #[test]
    fn files_are_byte_vectors(mounting in mounting(), arrays in vec(array(), 1..=3), steps in vec(step(), 1..60)) {
        check(&mounting, &arrays, &steps);
    }
}
