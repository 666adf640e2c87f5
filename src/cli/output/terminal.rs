//! The size of the terminal, and text that it can show. Uses nothing.

use std::io::IsTerminal;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The sign for the part that is left out.
const ELLIPSIS: char = '…';

/// Returns the columns and rows of the terminal on standard output; `None` if that is not a terminal.
pub fn size() -> Option<(usize, usize)> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let (width, height) = terminal_size::terminal_size()?;
    (width.0 > 0 && height.0 > 0).then_some((width.0.into(), height.0.into()))
}

/// Returns how many columns a text takes.
pub fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Pads a text with spaces to this many columns.
pub fn padded(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// Shortens a text to at most this many columns by leaving out its middle.
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

/// Returns the first characters that take at most this many columns.
fn within(characters: impl Iterator<Item = char>, columns: usize) -> String {
    let mut used = 0;
    let fits = |character: &char| {
        used += character.width().unwrap_or(0);
        used <= columns
    };
    characters.take_while(fits).collect()
}

/// Breaks a text into lines between words. A longer word has a line to itself.
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

/// Escapes a name or another text from a store, as `ls --quoting-style=escape` does: no character breaks a line, controls the terminal or
/// changes the order of what it shows, and no two texts look the same.
pub fn printable(text: &str) -> String {
    one_line(&text.replace('\\', "\\\\"))
}

/// Escapes a sentence that has text from stores in it, so that it stays on one line. A backslash stays as it is.
pub fn one_line(text: &str) -> String {
    escaped(text, is_unsafe)
}

/// Escapes a sentence that may begin with the name that it is about.
pub fn about(name: &str, sentence: &str) -> String {
    match sentence.strip_prefix(name) {
        Some(rest) => printable(name) + &one_line(rest),
        None => one_line(sentence),
    }
}

/// Escapes lines that have text from stores in them.
pub fn lines(text: &str) -> String {
    escaped(text, |character| character != '\n' && is_unsafe(character))
}

/// Escapes JSON with strings that may control the terminal.
pub fn json(text: &str) -> String {
    let mut units = [0; 2];
    let mut escape = |character: char| -> String {
        character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
    };
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        // White space occurs only between values: in strings it is escaped already.
        if is_unsafe(character) && !matches!(character, '\n' | '\r' | '\t') {
            safe.push_str(&escape(character));
        } else {
            safe.push(character);
        }
    }
    safe
}

/// Returns whether a character may control the terminal: a control character, the end of a line, or a mark that turns the direction of
/// the text.
fn is_unsafe(character: char) -> bool {
    let is_mark = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    character.is_control() || is_mark
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            character if !is_escaped(character) => safe.push(character),
            '\n' | '\r' | '\t' => safe.extend(character.escape_default()),
            character if character.is_ascii() => safe.push_str(&format!("\\x{:02x}", u32::from(character))),
            character => safe.extend(character.escape_unicode()),
        }
    }
    safe
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
    }

    #[test]
    fn nothing_controls_the_terminal() {
        let hostile = "a\n\u{1b}[2J\u{9b}m\u{202e}\\n\u{7f}ä";
        assert_eq!(printable(hostile), r"a\n\x1b[2J\u{9b}m\u{202e}\\n\x7fä");
        assert_eq!(one_line("\\a\r\n"), r"\a\r\n");
        assert_eq!(about("a\\", "a\\: b\n"), r"a\\: b\n");
        assert_eq!(lines("a\t\u{1b}\nb"), "a\\t\\x1b\nb");
        assert_eq!(json("{\n \"a\u{9b}\u{7f}\u{202e}\"}"), "{\n \"a\\u009b\\u007f\\u202e\"}");
    }

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("incomprehensible x", 5), ["incomprehensible", "x"]);
    }
}
