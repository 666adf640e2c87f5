//! Globs for paths of nodes: `*`, `?` and `[a-z]` within a name, `**` for any number of names. Uses nothing.

/// A pattern. A pattern without `/` matches the last name of a path at any depth.
pub struct Glob {
    parts: Vec<Vec<char>>,
}

impl Glob {
    /// Returns whether a text is a pattern and not only a path.
    pub fn is_glob(text: &str) -> bool {
        text.contains(['*', '?', '['])
    }

    /// Reads a pattern.
    pub fn new(pattern: &str) -> Self {
        let parts = pattern.split('/').filter(|part| !part.is_empty()).map(|part| part.chars().collect());
        let mut parts: Vec<Vec<char>> = parts.collect();
        if !pattern.contains('/') {
            parts.insert(0, vec!['*', '*']);
        }
        Glob { parts }
    }

    /// Returns whether the pattern matches a path.
    pub fn matches(&self, path: &str) -> bool {
        let names: Vec<Vec<char>> = path.split('/').map(|name| name.chars().collect()).collect();
        matches_path(&self.parts, &names)
    }
}

fn matches_path(parts: &[Vec<char>], names: &[Vec<char>]) -> bool {
    match (parts.split_first(), names.split_first()) {
        (None, None) => true,
        (Some((part, rest)), _) if part == &['*', '*'] => {
            (0..=names.len()).any(|skipped| matches_path(rest, names.get(skipped..).unwrap_or_default()))
        }
        (Some((part, rest)), Some((name, names))) => matches_name(part, name) && matches_path(rest, names),
        _ => false,
    }
}

/// Returns whether a part of a pattern matches a name. Each `*` takes as few characters as it can, and one more whenever the rest does not
/// match, so that no pattern takes long.
fn matches_name(pattern: &[char], name: &[char]) -> bool {
    let (mut at, mut place) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while place < name.len() {
        let step = match (pattern.get(at), name.get(place)) {
            (Some('*'), _) => {
                star = Some((at + 1, place));
                at += 1;
                continue;
            }
            (Some('?'), Some(_)) => Some(1),
            (Some('['), Some(character)) => set(pattern.get(at..).unwrap_or_default(), *character),
            (Some(expected), Some(character)) if expected == character => Some(1),
            _ => None,
        };
        match (step, star) {
            (Some(length), _) => (at, place) = (at + length, place + 1),
            (None, Some((after, taken))) => {
                (at, place) = (after, taken + 1);
                star = Some((after, taken + 1));
            }
            (None, None) => return false,
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|&character| character == '*')
}

/// Returns the length of the set at the beginning of the pattern if the set has the character. A `[` without an end stands for itself.
fn set(pattern: &[char], character: char) -> Option<usize> {
    let is_negative = matches!(pattern.get(1), Some('!' | '^'));
    let start = if is_negative { 2 } else { 1 };
    let end = pattern.iter().skip(start + 1).position(|&character| character == ']');
    let Some(end) = end.map(|end| end + start + 1) else { return (character == '[').then_some(1) };
    let members = pattern.get(start..end).unwrap_or_default();
    let mut at = 0;
    let mut is_member = false;
    while let Some(&first) = members.get(at) {
        match (members.get(at + 1), members.get(at + 2)) {
            (Some('-'), Some(&last)) => {
                is_member |= (first..=last).contains(&character);
                at += 3;
            }
            _ => {
                is_member |= first == character;
                at += 1;
            }
        }
    }
    (is_member != is_negative).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, path, is_match) in [
            ("temp*", "climate/temperature", true),
            ("temp*", "temperature", true),
            ("temp*", "climate/packed_temperature", false),
            ("climate/*", "climate/lat", true),
            ("climate/*", "climate/a/b", false),
            ("climate/*", "x/climate/lat", false),
            ("/climate/**", "climate/a/b", true),
            ("**/b", "a/c/b", true),
            ("*/lat", "climate/lat", true),
            ("l?t", "climate/lat", true),
            ("l[ao][st-u]", "lot", true),
            ("l[!a]t", "lat", false),
            ("a[b", "a[b", true),
            ("*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
            ("*", "", true),
        ] {
            assert_eq!(Glob::new(pattern).matches(path), is_match, "{pattern} {path}");
        }
        assert!(Glob::is_glob("a[0]") && !Glob::is_glob("a/b"));
    }
}
