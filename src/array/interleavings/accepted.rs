//! Writes that are accepted before their bytes are copied, before a later write, sync or truncation.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::array::interleavings::write_back::{FILL, LENGTH, Scene, each_form, write, write_and_notify};
use crate::array::sync::thread;

/// A write that is accepted, and perhaps not copied yet, comes before later writes, is stored by a later sync, and does
/// not survive a later truncation.
#[test]
fn accepted_writes_are_visible_to_all() {
    for then in 0..3 {
        each_form(move |form| {
            let scene = Scene::new(form, 6);
            let (array, accepted) = (&scene.array, &AtomicU8::new(0));
            let mut expected = [FILL; LENGTH];
            thread::scope(|scope| {
                scope.spawn(|| write_and_notify(array, 3, &[1; 6], || accepted.store(1, Ordering::SeqCst)));
                scope.spawn(|| {
                    if accepted.load(Ordering::SeqCst) == 0 {
                        return;
                    }
                    accepted.store(2, Ordering::SeqCst);
                    match then {
                        0 => write(array, 5, &[2]),
                        1 => {
                            array.writer().sync().unwrap();
                            assert_eq!(scene.lasting()[3..9], [1; 6]);
                        }
                        _ => array.writer().zero().unwrap(),
                    }
                });
            });
            expected[3..9].fill(1);
            match (accepted.load(Ordering::SeqCst), then) {
                (2, 0) => expected[5] = 2,
                (2, 2) => expected.fill(0),
                _ => {}
            }
            scene.end(&expected);
        });
    }
}
