//! Progress bars on standard error, where that is a terminal. All have one form: the bar, what is done of what there is, how fast, the
//! time that is left, and what is worked on.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The width of the bar itself.
const BAR: &str = "{bar:24}";

/// A bar that counts bytes; drawn only where `is_wanted` and standard error is a terminal.
pub fn bytes(total: u64, is_wanted: bool) -> ProgressBar {
    let counts = "{percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left  {wide_msg}";
    bar(Some(total), is_wanted, &format!("{BAR} {counts}"))
}

/// A bar that counts the bytes on standard output; not drawn among them on the same terminal.
pub fn of_output(total: u64) -> ProgressBar {
    bytes(total, !std::io::stdout().is_terminal())
}

/// A bar that counts chunks; the message names the array. It begins without a length, since 0 of 0 would be drawn full.
pub fn chunks(is_wanted: bool) -> ProgressBar {
    let counts = "{percent:>3} %  {human_pos} of {human_len} chunks  {eta} left  {wide_msg}";
    bar(None, is_wanted, &format!("{BAR} {counts}"))
}

/// A line that counts what is found while nobody knows how much there is; the message says where.
pub fn counting(what: &str) -> ProgressBar {
    bar(None, true, &format!("{{spinner}} {{human_pos}} {what} found  {{wide_msg}}"))
}

/// A line that counts bytes while nobody knows how many there are; the message says where.
pub fn fetched(is_wanted: bool) -> ProgressBar {
    bar(None, is_wanted, "{spinner} {bytes} fetched  {bytes_per_sec}  {wide_msg}")
}

/// As [`fetched`], for bytes that are read once more.
pub fn verified(is_wanted: bool) -> ProgressBar {
    bar(None, is_wanted, "{spinner} {bytes} verified  {bytes_per_sec}  {wide_msg}")
}

fn bar(total: Option<u64>, is_wanted: bool, template: &str) -> ProgressBar {
    let target = match is_wanted && std::io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(total, target);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("━╸─"));
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_of_chunks_begins_empty() {
        assert_eq!(chunks(true).length(), None);
        assert_eq!(bytes(7, true).length(), Some(7));
    }
}
