//! Progress bars on standard error, where that is a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that counts bytes; drawn only where `is_wanted` and standard error is a terminal.
pub fn bytes(total: u64, is_wanted: bool) -> ProgressBar {
    bar(total, is_wanted, "{bar:30} {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left")
}

/// A bar that counts the chunks of one array after another; the message names the array.
pub fn chunks() -> ProgressBar {
    bar(0, true, "{bar:30} {pos}/{len} chunks  {eta} left  {wide_msg}")
}

fn bar(total: u64, is_wanted: bool, template: &str) -> ProgressBar {
    if !is_wanted || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
