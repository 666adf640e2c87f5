//! Progress bars on standard error, if that is a terminal. All have one form: the bar, the part that is done, the speed, the time that is
//! left, and the name of what is processed.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The width of the bar itself.
const BAR: &str = "{bar:24}";

/// Returns a bar that counts bytes. It is drawn only if `is_wanted` and if standard error is a terminal.
pub fn bytes(total: u64, is_wanted: bool) -> ProgressBar {
    let counts = "{percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left  {wide_msg}";
    bar(Some(total), is_wanted, &format!("{BAR} {counts}"))
}

/// Returns a bar that counts the bytes on standard output. It is not drawn if they go to a terminal.
pub fn output_bytes(total: u64) -> ProgressBar {
    bytes(total, !std::io::stdout().is_terminal())
}

/// Returns a bar that counts chunks. It begins without a length, because 0 of 0 would be drawn full. The message names the array.
pub fn chunks(is_wanted: bool) -> ProgressBar {
    let counts = "{percent:>3} %  {human_pos} of {human_len} chunks  {eta} left  {wide_msg}";
    bar(None, is_wanted, &format!("{BAR} {counts}"))
}

/// Returns a line that counts what is found before the total is known. The message says where.
pub fn counting(what: &str) -> ProgressBar {
    bar(None, true, &format!("{{spinner}} {{human_pos}} {what} found  {{wide_msg}}"))
}

/// Returns a line that counts fetched bytes before the total is known. The message says where.
pub fn fetched(is_wanted: bool) -> ProgressBar {
    bar(None, is_wanted, "{spinner} {bytes} fetched  {bytes_per_sec}  {wide_msg}")
}

/// Returns the same for bytes that are read once more.
pub fn verified(is_wanted: bool) -> ProgressBar {
    bar(None, is_wanted, "{spinner} {bytes} verified  {bytes_per_sec}  {wide_msg}")
}

fn bar(total: Option<u64>, is_wanted: bool, template: &str) -> ProgressBar {
    let target = if is_wanted && std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
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
