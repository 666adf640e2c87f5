//! Progress bars on standard error, where that is a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that counts bytes; drawn only where `is_wanted` and standard error is a terminal.
pub fn bytes(total: u64, is_wanted: bool) -> ProgressBar {
    bar(Some(total), is_wanted, "{bar:30} {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left")
}

/// A bar that counts the chunks of one array after another; the message names the array. It begins without a
/// length, since 0 of 0 would be drawn full.
pub fn chunks() -> ProgressBar {
    bar(None, true, "{bar:30} {pos}/{len} chunks  {eta} left  {wide_msg}")
}

fn bar(total: Option<u64>, is_wanted: bool, template: &str) -> ProgressBar {
    let target = match is_wanted && std::io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(total, target);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_of_chunks_begins_empty() {
        assert_eq!(chunks().length(), None);
        assert_eq!(bytes(7, true).length(), Some(7));
    }
}
