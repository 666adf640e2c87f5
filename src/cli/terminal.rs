//! What the terminal can show: its width, pictures, and text that fits into it. Uses nothing.

use std::io::IsTerminal;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Stands for what was left out.
const ELLIPSIS: char = '…';

/// Columns and rows of the terminal on standard output; `None` if that is no terminal.
pub fn size() -> Option<(usize, usize)> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let (width, height) = terminal_size::terminal_size()?;
    (width.0 > 0 && height.0 > 0).then_some((width.0.into(), height.0.into()))
}

/// Columns that a text takes.
pub fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// The text with spaces after it, up to so many columns.
pub fn padded(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// The text in at most so many columns: what is in its middle is left out.
pub fn shortened(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(1);
    let head: String = within(text.chars(), room.div_ceil(2));
    let tail: String = within(text.chars().rev(), room.saturating_sub(width(&head)));
    let tail: String = tail.chars().rev().collect();
    format!("{head}{ELLIPSIS}{tail}")
}

/// The first characters that take at most so many columns.
fn within(characters: impl Iterator<Item = char>, columns: usize) -> String {
    let mut used = 0;
    let fits = |character: &char| {
        used += character.width().unwrap_or(0);
        used <= columns
    };
    characters.take_while(fits).collect()
}

/// The lines of a text that is broken between words. A longer word has a line to itself.
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A text without what would break a line or control the terminal.
pub fn printable(text: &str) -> String {
    let escape = |character: char| character.is_control().then(|| character.escape_default().to_string());
    text.chars().map(|character| escape(character).unwrap_or_else(|| character.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_left_out() {
        assert_eq!(shortened("temperature", 11), "temperature");
        assert_eq!(shortened("temperature", 8), "temp…ure");
        assert_eq!(shortened("温度温度温度", 7), "温…温度");
        assert_eq!(width(&shortened("温度温度温度", 8)), 7);
        assert_eq!(shortened("temperature", 1), "…");
        assert_eq!(padded("温", 4), "温  ");
        assert_eq!(printable("a\n\u{1b}[2J"), "a\\n\\u{1b}[2J");
    }

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("incomprehensible x", 5), ["incomprehensible", "x"]);
    }
}
