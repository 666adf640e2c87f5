//! Names and texts of a store that would control a terminal or forge a line of output: every command shows them escaped.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

/// A line of its own, that begins after an end of line, and what clears a screen.
const NAME: &str = "a\nforged: sound\u{1b}[2J\u{9b}m\u{202e}\\n";
/// The text as it is shown.
const SHOWN: &str = r"a\nforged: sound\x1b[2J\u{9b}m\u{202e}\\n";

fn write(store: &Path, name: &str, fill: &str, chunk: Option<&[u8]>) {
    let folder = store.join(name);
    fs::create_dir_all(&folder).unwrap();
    let zarray = json!({"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "<i2", "order": "C",
        "compressor": {"id": "zlib", "level": 1}, "filters": null, "fill_value": 0});
    fs::write(folder.join(".zarray"), zarray.to_string().replace("\"fill_value\":0", fill)).unwrap();
    let attributes = json!({"units": NAME, NAME: NAME, "_ARRAY_DIMENSIONS": [NAME], "scale_factor": NAME});
    fs::write(folder.join(".zattrs"), attributes.to_string()).unwrap();
    if let Some(chunk) = chunk {
        fs::write(folder.join("0"), chunk).unwrap();
    }
}

/// Returns what a command prints on both streams.
fn printed(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
    let output = command.args(arguments).env_remove("RUST_LOG").output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    format!("{stdout}\n{}", String::from_utf8(output.stderr).unwrap())
}

#[test]
fn no_command_prints_what_controls_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let (store, overlay) = (folder.path().join("s.zarr"), folder.path().join("overlay"));
    fs::create_dir(&store).unwrap();
    fs::write(store.join(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
    write(&store, NAME, "\"fill_value\":0", Some(b"damaged"));
    let broken = format!("b{NAME}");
    write(&store, &broken, "\"fill_value\":\"x\\u001b\"", None);
    let whole = format!("c{NAME}");
    write(&store, &whole, "\"fill_value\":0", None);
    let (store, overlay) = (store.to_str().unwrap(), overlay.to_str().unwrap());
    let with_overlay = printed(&["attrs", "--overlay", overlay, store, &whole, &format!("{NAME}=1")]);
    let removed = printed(&["rm", "--overlay", overlay, "--yes", store, NAME]);
    let mut shown = 0;
    for text in [
        with_overlay,
        removed,
        printed(&["ls", store]),
        printed(&["ls", "-l", "--arrays", store]),
        printed(&["ls", "--json", store]),
        printed(&["check", store]),
        printed(&["check", "--json", store]),
        printed(&["check", "--missing=error", store, &whole]),
        printed(&["info", store, NAME]),
        printed(&["info", "--json", store, NAME]),
        printed(&["info", store, &broken]),
        printed(&["cat", store, NAME]),
        printed(&["cat", store, &format!("x{NAME}")]),
        printed(&["cat", store, &whole, "--format", "safetensor"]),
        printed(&["cat", store, &format!("{whole}[9]")]),
        printed(&["preview", store, NAME]),
        printed(&["preview", store, &whole]),
        printed(&["attrs", store, &whole]),
        printed(&["rm", store, NAME]),
        printed(&["mv", store, &format!("y{NAME}"), NAME]),
        printed(&["create", store, NAME, "--shape", "1", "--dtype", "i2"]),
        printed(&["create", store, "plain", "--shape", "1", "--dtype", NAME]),
        printed(&["create", store, &format!("z{NAME}"), "--shape", "1", "--dtype", "i2"]),
        printed(&["resize", store, &broken, "9"]),
        printed(&["overlay", "status", overlay]),
        printed(&["overlay", "status", "--json", overlay]),
        printed(&["overlay", "diff", overlay]),
        printed(&["overlay", "diff", "--json", overlay]),
        printed(&["overlay", "discard", overlay, NAME]),
    ] {
        let controls = |character: char| character.is_control() && character != '\n';
        assert!(!text.contains(controls) && !text.contains('\u{202e}'), "{text:?}");
        let is_forged = text.lines().any(|line| line.trim_start().starts_with("forged"));
        assert!(!is_forged, "{text}");
        shown += usize::from(text.contains(SHOWN));
    }
    assert!(shown >= 10, "{shown} of them name the array");
}
