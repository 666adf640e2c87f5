//! `zarrfs mounts`: lists the zarrfs mounts of this machine.

use std::fmt::Write as _;

use clap::Args;
use serde_json::{Value, json};
use zarrfs::mount::daemon::mounts::mounted::{self, Mounted, State};

use super::sample::Stats;
use super::words;
use crate::cli::exit::Outcome;
use crate::cli::output::{self, terminal};

/// The options that are shown if they differ from these values.
const DEFAULTS: [(&str, &str); 15] = [
    ("uid", "null"),
    ("gid", "null"),
    ("umask", "null"),
    ("overlay", "null"),
    ("allow-references", "[]"),
    ("create", "false"),
    ("delete", "false"),
    ("truncate", "\"keep\""),
    ("prefetch", "true"),
    ("byte-order", "\"little\""),
    ("order", "\"C\""),
    ("formats", "[]"),
    ("direct-io", "false"),
    ("log-file", "null"),
    ("keeper", "null"),
];

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # Stores, mount points, options and processes
  zarrfs mounts
  # The mount points alone, for a script
  zarrfs mounts --json | jq -r '.[].mountpoint'";

/// List the zarrfs mounts of this machine
///
/// Mounts of other users are included if this user may see them.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Print one JSON object for each mount
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Lists the mounts.
    pub fn run(self) -> Outcome {
        let mounts = mounted::list()?;
        let mut text = String::new();
        if self.json {
            for mount in &mounts {
                let _ = writeln!(text, "{}", to_json(mount));
            }
        } else {
            text = table(&mounts, terminal::size().map_or(usize::MAX, |(columns, _)| columns));
            mounts.iter().for_each(|mount| text += &members(mount));
        }
        if mounts.is_empty() && !self.json {
            output::note("zarrfs: nothing is mounted");
        }
        output::text(&text).map(|_| ())
    }
}

fn config<'a>(mount: &'a Mounted, name: &str) -> Option<&'a Value> {
    mount.config.as_ref()?.get(name).filter(|value| !value.is_null())
}

fn store(mount: &Mounted) -> &str {
    config(mount, "store").and_then(Value::as_str).unwrap_or(&mount.entry.source)
}

fn dirty_bytes(mount: &Mounted) -> Option<f64> {
    if mount.entry.is_read_only {
        return Some(0.0);
    }
    mount.stats.as_deref().map(|text| Stats::parse(text).get("zarrfs_dirty_bytes"))
}

fn state(mount: &Mounted) -> &'static str {
    match mount.state {
        State::Serving => "serving",
        State::Closed => "closed to this user",
        State::Silent => "does not respond",
        State::Crashed => "crashed",
    }
}

/// Returns the options that differ from the defaults, as words.
fn options(mount: &Mounted) -> String {
    let mut words = Vec::new();
    for (name, default) in DEFAULTS {
        let default: Value = serde_json::from_str(default).unwrap_or_default();
        let Some(value) = config(mount, name).filter(|value| **value != default) else { continue };
        words.push(match value {
            Value::Bool(true) => name.to_owned(),
            Value::String(text) => format!("{name}={text}"),
            Value::Array(names) => {
                let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
                format!("{name}={}", names.join(":"))
            }
            other => format!("{name}={other}"),
        });
    }
    words.join(",")
}

fn to_json(mount: &Mounted) -> Value {
    json!({
        "mountpoint": mount.entry.mountpoint.to_string_lossy(),
        "store": store(mount),
        "state": state(mount),
        "pid": config(mount, "pid"),
        "uid": mount.entry.user_id,
        "writable": !mount.entry.is_read_only,
        "dirty_bytes": dirty_bytes(mount),
        "kernel_options": mount.entry.options,
        "config": mount.config,
    })
}

/// Returns a line for each member of a catalogue: its folder, store, access and state, and why it cannot be opened.
fn members(mount: &Mounted) -> String {
    let mut text = String::new();
    for member in config(mount, "members").and_then(Value::as_array).into_iter().flatten() {
        let word = |key: &str| member.get(key).and_then(Value::as_str).map(terminal::printable);
        let access =
            if member.get("writable").and_then(Value::as_bool).unwrap_or_default() { "rw" } else { "ro" };
        let name = word("name").unwrap_or_default();
        let folder = mount.entry.mountpoint.join(name);
        let _ = write!(
            text,
            "{}  {}  {access}  {}",
            terminal::printable(&folder.to_string_lossy()),
            // Only root and the user of the daemon learn where the members are.
            word("store").unwrap_or_else(|| "-".into()),
            word("state").unwrap_or_default()
        );
        let _ = writeln!(text, "{}", word("error").map(|error| format!(": {error}")).unwrap_or_default());
    }
    text
}

/// Draws a line for each mount, no wider than the terminal. Options are left out first, then stores and mount points are shortened.
fn table(mounts: &[Mounted], width: usize) -> String {
    if mounts.is_empty() {
        return String::new();
    }
    const TITLES: [&str; 8] = ["MOUNTPOINT", "STORE", "ACCESS", "DIRTY", "PID", "UID", "STATE", "OPTIONS"];
    let row = |mount: &Mounted| {
        let number = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), |value| value.to_string());
        [
            mount.entry.mountpoint.to_string_lossy().into_owned(),
            store(mount).to_owned(),
            if mount.entry.is_read_only { "ro" } else { "rw" }.to_owned(),
            dirty_bytes(mount).map_or_else(|| "?".to_owned(), words::bytes),
            number(config(mount, "pid").and_then(Value::as_u64)),
            number(mount.entry.user_id.map(u64::from)),
            state(mount).to_owned(),
            options(mount),
        ]
    };
    let mut rows = vec![TITLES.map(str::to_owned)];
    rows.extend(mounts.iter().map(row));
    let mut widths: [usize; 8] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    });
    const GAP: usize = 2;
    let fixed: usize = widths[2..7].iter().map(|width| width + GAP).sum();
    let room = width.saturating_sub(fixed + GAP);
    if widths[0] + widths[1] > room {
        // Each gets at least half of the room, unless it needs less.
        let half = room / 2;
        widths[0] = widths[0].min(half.max(room.saturating_sub(widths[1])));
        widths[1] = widths[1].min(room.saturating_sub(widths[0]));
    }
    widths[7] = widths[7].min(room.saturating_sub(widths[0] + widths[1] + GAP));
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).filter(|(_, width)| *width > 0);
        let line: Vec<String> = cells.map(|(cell, width)| words::cell(cell, width)).collect();
        let _ = writeln!(text, "{}", line.join("  ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use zarrfs::mount::daemon::procfs::MountEntry;

    use super::*;

    fn mount(mountpoint: &str, config: Option<Value>) -> Mounted {
        let entry = MountEntry {
            id: 1,
            device: "0:1".to_owned(),
            mountpoint: Path::new(mountpoint).to_owned(),
            filesystem_type: "fuse.zarrfs".to_owned(),
            is_read_only: config.is_none(),
            options: "rw".to_owned(),
            source: "s.zarr".to_owned(),
            user_id: Some(1000),
        };
        let state = if config.is_some() { State::Serving } else { State::Closed };
        Mounted { entry, state, config, stats: Some("zarrfs_dirty_bytes 2048\n".to_owned()) }
    }

    #[test]
    fn the_table_fits_the_terminal() {
        let config = json!({"store": "/data/a/very/long/path/to/a/store/in/some/folder.zarr", "pid": 77, "order": "F",
            "prefetch": true, "formats": ["npy", "nc"], "overlay": null});
        let mounts = [mount("/mnt/another/long/path/of/a/mount/point/here", Some(config)), mount("/m", None)];
        let wide = table(&mounts, usize::MAX);
        assert!(wide.contains("order=F,formats=npy:nc") && wide.contains("2 KiB"), "{wide}");
        assert!(
            wide.lines()
                .nth(2)
                .is_some_and(|line| line.contains("closed to this user") && line.contains('?'))
        );
        for width in [20, 60, 80, 100, 120, 150] {
            let text = table(&mounts, width);
            assert_eq!(text.lines().count(), 3);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(width < 80 || widest.is_some_and(|widest| widest <= width), "{width}: {text}");
        }
        assert_eq!(to_json(&mounts[0])["dirty_bytes"], 2048.0);
    }
}
