//! The known word that a mistyped one probably meant, for error sentences of every layer. Uses nothing.

/// The least similarity (Jaro-Winkler; 1 is equal) of a mistyped word and the word that was meant.
const MIN_SIMILARITY: f64 = 0.85;

/// The candidate most similar to `word`, if similar enough to be a typing error.
pub fn nearest<S: AsRef<str>>(word: &str, candidates: impl IntoIterator<Item = S>) -> Option<S> {
    let lower = word.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&lower, &candidate.as_ref().to_lowercase()), candidate))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised() {
        let known = ["cache-size", "threads", "order", "byte-order"];
        for (typed, meant) in [
            ("cache-sze", Some("cache-size")),
            ("chace-size", Some("cache-size")),
            ("thread", Some("threads")),
            ("Order", Some("order")),
            ("byteorder", Some("byte-order")),
            ("cache_sise", Some("cache-size")),
            ("thrads", Some("threads")),
            ("wavelength", None),
            ("x", None),
        ] {
            assert_eq!(nearest(typed, known), meant, "{typed}");
        }
    }
}
