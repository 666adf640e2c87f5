//! README's tour, and the slices of docs/views.md: the fenced `sh` blocks with a prompt run one after the other in one shell, the tour
//! in an empty folder, and print what the page shows.

use super::semantics::{blocks, outputs, sample, steps};
use crate::support::fixtures::python;
use crate::support::place::*;

const README: &str = include_str!("../../README.md");
const VIEWS: &str = include_str!("../../docs/views.md");
/// What a background mount says where no system log is, as in many containers.
const NO_SYSTEM_LOG: &str = "zarrfs: warning: no system log";

#[test]
fn the_tour_prints_what_the_page_shows() {
    if !can_mount() || python("the tour of README").is_none() {
        return;
    }
    let tour = blocks(README, "sh").into_iter().map(|(_, block)| block);
    let tour: String = tour.filter(|block| block.starts_with("$ ")).collect();
    let steps = steps(&tour);
    assert!(steps.len() >= 10, "{} steps are left", steps.len());
    let place = Place::new();
    let outputs = outputs(&steps, place.folder.path());
    for (index, step) in steps.iter().enumerate() {
        let output = outputs.get(index).map_or("the shell has ended", String::as_str);
        let lines = output.lines().filter(|line| !line.starts_with(NO_SYSTEM_LOG));
        let output: String = lines.map(|line| format!("{line}\n")).collect();
        assert_eq!(output, step.output, "README.md: $ {}", step.command);
    }
}

#[test]
fn slices_are_what_the_page_shows() {
    if !can_mount() || python("the slices of docs/views.md").is_none() {
        return;
    }
    // Other blocks are not run.
    let shown = blocks(VIEWS, "sh").into_iter().filter(|(_, block)| block.starts_with("$ "));
    let examples: String = shown.map(|(_, block)| block).collect();
    let steps = steps(&examples);
    assert!(steps.len() >= 4, "{} steps are left", steps.len());
    let place = sample();
    let outputs = outputs(&steps, place.folder.path());
    for (index, step) in steps.iter().enumerate() {
        let output = outputs.get(index).map_or("the shell has ended", String::as_str);
        assert_eq!(output, step.output, "docs/views.md: $ {}", step.command);
    }
}
