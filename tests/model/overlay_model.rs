//! Random programs that write through an overlay, next to a second program that writes the store below in its own way: it appends,
//! rewrites files in place with their old time, deletes, makes the array anew with another type, and changes permissions. Commits
//! die, or are overtaken by the second program, at any operation on the store.
//!
//! What the second program has put is never lost, unless the overlay's change was made from it. What the overlay has is shown,
//! kept or committed; a chunk of another form is an error, and never other numbers.
//!
//! `ZARRFS_OVERLAY_CASES=10000 cargo test --test model overlay_model::` is the long run.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::overlay::Model;
use crate::overlay::other::{CHUNK, FILL, KINDS, Theirs};
use crate::support::level;

/// What the program above the overlay does.
#[derive(Clone, Copy, Debug)]
enum Step {
    Theirs(Theirs),
    Write(usize),
    WriteOne(usize, usize),
    Empty(usize),
    Resize(usize),
    Attribute,
    Remove,
    Reopen,
    Commit,
    /// The second program comes before the operation with this number on the store.
    Overtaken(usize, Theirs),
    /// The process dies at the operation with this number on the store.
    Dies(usize),
}

fn theirs() -> impl Strategy<Value = Theirs> {
    let place = || 0usize..6;
    prop_oneof![
        3 => place().prop_map(Theirs::Replace),
        4 => place().prop_map(Theirs::Rewrite),
        2 => place().prop_map(Theirs::Delete),
        1 => place().prop_map(Theirs::Touch),
        2 => Just(Theirs::Chmod),
        2 => (1usize..3).prop_map(Theirs::Append),
        1 => (1usize..3).prop_map(Theirs::AppendFill),
        2 => (0..KINDS.len()).prop_map(Theirs::Recreate),
        1 => Just(Theirs::Attribute),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let place = || 0usize..6;
    prop_oneof![
        8 => theirs().prop_map(Step::Theirs),
        6 => place().prop_map(Step::Write),
        2 => (place(), 0..CHUNK).prop_map(|(chunk, at)| Step::WriteOne(chunk, at)),
        2 => place().prop_map(Step::Empty),
        2 => (1usize..3).prop_map(Step::Resize),
        1 => Just(Step::Attribute),
        1 => Just(Step::Remove),
        1 => Just(Step::Reopen),
        3 => Just(Step::Commit),
        4 => (0usize..40, theirs()).prop_map(|(at, theirs)| Step::Overtaken(at, theirs)),
        3 => (0usize..40).prop_map(Step::Dies),
    ]
}

fn check(nested: bool, steps: &[Step]) {
    let mut model = Model::new(nested);
    for step in steps {
        let number = model.other.number();
        // An object that is rewritten in a removed node looks like one that only got other permissions.
        let event = match *step {
            Step::Theirs(theirs) | Step::Overtaken(_, theirs) => Some(theirs),
            _ => None,
        };
        if model.is_removed && matches!(event, Some(Theirs::Rewrite(_))) {
            continue;
        }
        match *step {
            Step::Theirs(theirs) => model.other.act(theirs),
            Step::Write(chunk) => model.write(chunk, 0, CHUNK, number),
            Step::WriteOne(chunk, at) => model.write(chunk, at, 1, number),
            Step::Empty(chunk) => model.write(chunk, 0, CHUNK, FILL),
            Step::Resize(more) => model.resize(more),
            Step::Attribute => model.attribute(),
            Step::Remove => model.remove(),
            Step::Reopen => model.reopen(),
            Step::Commit => model.commit(None),
            Step::Overtaken(at, theirs) => model.commit(Some((at, Some(theirs)))),
            Step::Dies(at) => {
                model.commit(Some((at, None)));
                model.commit(None);
            }
        }
        model.check_reads();
    }
}

fn cases() -> u32 {
    level::count("ZARRFS_OVERLAY_CASES", 100, 1000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_of_two_programs_is_lost(nested in any::<bool>(), steps in vec(step(), 1..40)) {
        check(nested, &steps);
    }
}
