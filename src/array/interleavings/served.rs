//! Opens that compare what readers received with the store, next to a write-back that replaces objects.

use std::time::Duration;

use crate::array::interleavings::write_back::{FILL, LENGTH, Scene, each_form};
use crate::array::sync::thread;
use crate::cancellation::Cancellation;

/// Readers, writers and the timer of one mount: their work never looks like another program's change.
#[test]
fn own_replacements_are_no_change() {
    each_form(|form| {
        let scene = Scene::new(form, 3);
        let array = &scene.array;
        array.revalidate(&Cancellation::never()).unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                for value in 1..=3 {
                    array.writer().write_at(3, &[value; 6]).unwrap();
                    if value == 2 {
                        array.writer().flush().unwrap();
                    }
                }
            });
            for _ in 0..2 {
                scope.spawn(move || {
                    let mut out = [0; LENGTH];
                    array.read_at(0, &mut out).unwrap();
                });
            }
            scope.spawn(move || {
                for _ in 0..3 {
                    assert!(
                        array.revalidate(&Cancellation::never()).unwrap(),
                        "pages are dropped without a reason"
                    );
                }
            });
            scope.spawn(|| scene.engine.store_settled(Duration::ZERO));
        });
        assert!(array.revalidate(&Cancellation::never()).unwrap(), "pages are dropped without a reason");
        let mut expected = [FILL; LENGTH];
        expected[3..9].fill(3);
        scene.end(&expected);
    });
}
