//! What a mount reports about the members of a catalogue: in `config.json`, and in the metrics, with labels.
//!
//! This file uses `store` and the counters of arrays.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::mount::metrics::{ArrayCounters, escape_label};
use crate::store::{Catalogue, MemberState, Store, Traffic, member_name};

/// A metric with a value for each member.
struct MemberMetric {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    value: fn(&MemberCounts) -> Option<u64>,
}

/// The counts of one member.
#[derive(Default)]
struct MemberCounts {
    is_open: bool,
    reads: u64,
    read_bytes: u64,
    written_bytes: u64,
    errors: u64,
    traffic: Option<Traffic>,
}

/// All metrics of members.
const METRICS: [MemberMetric; 7] = [
    MemberMetric {
        name: "zarrfs_member_open",
        help: "Whether the member could be opened.",
        kind: "gauge",
        value: |counts| Some(counts.is_open.into()),
    },
    MemberMetric {
        name: "zarrfs_member_reads_total",
        help: "Read requests served of the member.",
        kind: "counter",
        value: |counts| Some(counts.reads),
    },
    MemberMetric {
        name: "zarrfs_member_read_bytes_total",
        help: "Bytes of the member's arrays served.",
        kind: "counter",
        value: |counts| Some(counts.read_bytes),
    },
    MemberMetric {
        name: "zarrfs_member_written_bytes_total",
        help: "Bytes written to the member's arrays.",
        kind: "counter",
        value: |counts| Some(counts.written_bytes),
    },
    MemberMetric {
        name: "zarrfs_member_errors_total",
        help: "Requests for the member's arrays that failed.",
        kind: "counter",
        value: |counts| Some(counts.errors),
    },
    MemberMetric {
        name: "zarrfs_member_store_requests_total",
        help: "Requests to the service of the member.",
        kind: "counter",
        value: |counts| Some(counts.traffic.as_ref()?.requests),
    },
    MemberMetric {
        name: "zarrfs_member_store_received_bytes_total",
        help: "Bytes of the replies of the member's service.",
        kind: "counter",
        value: |counts| Some(counts.traffic.as_ref()?.received_bytes),
    },
];

/// Returns the members of a catalogue for `config.json`; null for another store. Without `names_stores`, it does not say where their stores are, nor
/// why one cannot be opened: the reader may not be allowed to search the folders there.
pub fn members_config(store: &dyn Store, names_stores: bool) -> Value {
    let Some(catalogue) = store.catalogue() else { return Value::Null };
    let member = |name: String| {
        let rights = catalogue.rights(&name);
        let (state, error) = match catalogue.state(&name)? {
            MemberState::Opening => ("opening", None),
            MemberState::Open => ("open", None),
            MemberState::Failed(error) => ("failed", Some(error.to_string())),
        };
        let location = catalogue.store_at(&name)?.describe();
        Some(json!({
            "name": name,
            "store": names_stores.then_some(location),
            "state": state,
            "error": error.filter(|_| names_stores),
            "overlay": catalogue.overlay(&name).filter(|_| names_stores),
            "writable": rights.write,
            "create": rights.create,
            "delete": rights.delete,
        }))
    };
    catalogue.names().into_iter().filter_map(member).collect()
}

/// Returns the metrics of the members of a catalogue, as text. `arrays` are the used arrays, by path.
pub fn members_metrics(store: &dyn Store, arrays: &[(&str, &ArrayCounters)]) -> String {
    let Some(catalogue) = store.catalogue() else { return String::new() };
    let counts = counts(catalogue, arrays);
    let mut text = String::new();
    for metric in &METRICS {
        let values: Vec<_> =
            counts.iter().filter_map(|(name, counts)| Some((name, (metric.value)(counts)?))).collect();
        if values.is_empty() {
            continue;
        }
        let _ =
            writeln!(text, "# HELP {} {}\n# TYPE {} {}", metric.name, metric.help, metric.name, metric.kind);
        for (name, value) in values {
            let _ = writeln!(text, "{}{{member=\"{}\"}} {value}", metric.name, escape_label(name));
        }
    }
    text
}

/// Returns the names of all metrics of members.
#[cfg(test)]
pub fn names() -> impl Iterator<Item = &'static str> {
    METRICS.iter().map(|metric| metric.name)
}

fn counts(catalogue: &dyn Catalogue, arrays: &[(&str, &ArrayCounters)]) -> BTreeMap<String, MemberCounts> {
    let counts = |name: String| {
        let is_open = matches!(catalogue.state(&name), Some(MemberState::Open));
        let traffic = catalogue.traffic_of(&name);
        (name, MemberCounts { is_open, traffic, ..MemberCounts::default() })
    };
    let mut all: BTreeMap<String, MemberCounts> = catalogue.names().into_iter().map(counts).collect();
    for (path, counters) in arrays {
        let Some(counts) = member_name(path).and_then(|name| all.get_mut(name)) else { continue };
        counts.reads += counters.reads.load(Ordering::Relaxed);
        counts.read_bytes += counters.bytes.load(Ordering::Relaxed);
        counts.written_bytes += counters.bytes_written.load(Ordering::Relaxed);
        counts.errors += counters.errors.load(Ordering::Relaxed);
    }
    all
}
