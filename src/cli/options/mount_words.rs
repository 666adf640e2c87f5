//! The words of `-o`: those of mount(8) and fstab(5), and the options of `zarrfs mount`, which are its long flags in another spelling.
//!
//! An option becomes a long flag, and clap parses the command line once more with it, so that options are defined once.

use clap::{Arg, ArgAction, Command};

use zarrfs::formats::find_by_any_name;
use zarrfs::nearest::nearest;

use super::removed::{is_read_only, replace_word};
use crate::cli::exit::{Exit, Outcome};

/// How a word of mount(8) or fstab(5) is treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// It is for mount(8), systemd or the boot scripts, and is ignored here.
    Ignore,
    /// It is passed to the kernel.
    Kernel,
    /// It makes the mount read-only, which is the default.
    ReadOnly,
    /// It takes back an earlier `ro`. It never enables writing, because mount(8) always passes it.
    ReadWrite,
    /// Its value is the name that mount(8) and df show.
    SourceName,
    /// It is an error with this message.
    Refuse(&'static str),
}

/// The words of mount(8), fstab(5), systemd.mount(5) and of every FUSE filesystem.
#[rustfmt::skip]
const KNOWN: &[(&str, Meaning)] = &[
    ("defaults", Meaning::Ignore), ("auto", Meaning::Ignore), ("noauto", Meaning::Ignore),
    ("nofail", Meaning::Ignore), ("fail", Meaning::Ignore), ("_netdev", Meaning::Ignore), ("_rnetdev", Meaning::Ignore),
    ("user", Meaning::Ignore), ("nouser", Meaning::Ignore), ("users", Meaning::Ignore), ("nousers", Meaning::Ignore),
    ("owner", Meaning::Ignore), ("noowner", Meaning::Ignore), ("group", Meaning::Ignore), ("nogroup", Meaning::Ignore),
    ("comment", Meaning::Ignore), ("uhelper", Meaning::Ignore), ("helper", Meaning::Ignore),
    ("silent", Meaning::Ignore), ("loud", Meaning::Ignore), ("subtype", Meaning::Ignore),
    // It is on whenever other users may enter.
    ("default_permissions", Meaning::Ignore),
    ("fsname", Meaning::SourceName),
    ("ro", Meaning::ReadOnly), ("rw", Meaning::ReadWrite),
    ("nosuid", Meaning::Kernel), ("suid", Meaning::Kernel), ("nodev", Meaning::Kernel), ("dev", Meaning::Kernel),
    ("noexec", Meaning::Kernel), ("exec", Meaning::Kernel),
    ("noatime", Meaning::Kernel), ("atime", Meaning::Kernel), ("nodiratime", Meaning::Kernel), ("diratime", Meaning::Kernel),
    ("relatime", Meaning::Kernel), ("norelatime", Meaning::Kernel), ("strictatime", Meaning::Kernel), ("nostrictatime", Meaning::Kernel),
    ("lazytime", Meaning::Kernel), ("nolazytime", Meaning::Kernel),
    ("sync", Meaning::Kernel), ("async", Meaning::Kernel), ("dirsync", Meaning::Kernel),
    ("remount", Meaning::Refuse("remount is not possible: unmount, then mount again with the new options")),
];

/// Flags of mount(8)'s helper protocol, which are not words of `-o`.
const HELPER_ONLY: [&str; 2] = ["sloppy", "fake"];

/// The flag with a list as its value, which users may write with commas.
const FORMATS_FLAG: &str = "--formats=";

/// The meaning of the words of `-o`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MountWords {
    /// Long flags for clap.
    pub flags: Vec<String>,
    /// Words for the kernel: the restrictions that remain (`nosuid` unless `suid` follows).
    pub kernel: Vec<String>,
    /// Words that mount(8) keeps for other programs: `_netdev`, by which systemd unmounts before the network goes. mount(8) also keeps
    /// `x-…` words, and does not pass them on.
    pub utab: Vec<String>,
    /// The value of `fsname=`.
    pub source_name: Option<String>,
    /// Whether `ro` was given.
    pub ro: bool,
    /// Whether `rw` was given.
    pub rw: bool,
    /// Unknown words that `-s` allows.
    pub ignored: Vec<String>,
}

/// Reads the values of `-o`. `mount` is clap's definition of `zarrfs mount`, and `sloppy` is mount(8)'s `-s`.
pub fn read(values: &[String], mount: &Command, sloppy: bool) -> Outcome<MountWords> {
    let mut words = MountWords::default();
    let mut stays_read_only = false;
    for word in values.iter().flat_map(|value| split(value)) {
        let (name, value) = name_and_value(&word);
        stays_read_only |= is_read_only(name, value);
        let word = replace_word(name, value).unwrap_or(word);
        let (name, value) = name_and_value(&word);
        if word == "_netdev" {
            words.utab.push(word.clone());
        }
        if name.is_empty() || name.starts_with("x-") || name.starts_with("X-") {
            continue;
        }
        if let Some((_, meaning)) = KNOWN.iter().find(|(known, _)| *known == name) {
            known_word(&mut words, name, value, *meaning)?;
        } else if let Some(option) = option(mount, &name.replace('_', "-")) {
            words.flags.push(flag(option, value)?);
        } else if sloppy {
            words.ignored.push(word);
        } else if words.flags.last().is_some_and(|flag| flag.starts_with(FORMATS_FLAG))
            && find_by_any_name(name).is_some()
        {
            return Err(Exit::Usage(format!(
                "a comma ends the option 'formats': write formats=…:{name}, with colons between the names"
            )));
        } else {
            return Err(Exit::Usage(unknown(name, mount)));
        }
    }
    if stays_read_only {
        (words.ro, words.rw) = (true, false);
    }
    Ok(words)
}

fn name_and_value(word: &str) -> (&str, Option<&str>) {
    word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)))
}

fn known_word(words: &mut MountWords, name: &str, value: Option<&str>, meaning: Meaning) -> Outcome {
    match meaning {
        Meaning::Ignore => {}
        Meaning::Kernel => {
            let opposite = match name.strip_prefix("no") {
                Some(positive) => positive.to_owned(),
                None if name == "async" => "sync".to_owned(),
                None => format!("no{name}"),
            };
            words.kernel.retain(|earlier| *earlier != opposite && earlier != name);
            // The kernel's defaults need not be passed.
            if !["suid", "dev", "exec", "atime", "diratime", "async"].contains(&name)
                && !is_opposite_of_default(name)
            {
                words.kernel.push(name.to_owned());
            }
        }
        Meaning::ReadOnly => (words.ro, words.rw) = (true, false),
        Meaning::ReadWrite => (words.ro, words.rw) = (false, true),
        Meaning::SourceName => words.source_name = value.map(str::to_owned),
        Meaning::Refuse(sentence) => return Err(Exit::Usage(sentence.to_owned())),
    }
    Ok(())
}

/// Returns whether a word such as `norelatime` only cancels an earlier one.
fn is_opposite_of_default(name: &str) -> bool {
    ["norelatime", "nostrictatime", "nolazytime"].contains(&name)
}

/// Splits at commas. `\,` is a comma inside a value.
fn split(value: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut characters = value.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, characters.peek()) {
            ('\\', Some(',')) => {
                characters.next();
                words.last_mut().into_iter().for_each(|word| word.push(','));
            }
            (',', _) => words.push(String::new()),
            _ => words.last_mut().into_iter().for_each(|word| word.push(character)),
        }
    }
    words
}

/// Returns the option of `zarrfs mount` with this name.
fn option<'a>(mount: &'a Command, name: &str) -> Option<&'a Arg> {
    mount
        .get_arguments()
        .filter(|argument| !matches!(argument.get_action(), ArgAction::Help | ArgAction::Version))
        .filter(|argument| !HELPER_ONLY.contains(&argument.get_id().as_str()))
        .find(|argument| argument.get_long() == Some(name))
}

/// Returns the long flag for an option.
fn flag(option: &Arg, value: Option<&str>) -> Outcome<String> {
    let long = option.get_long().unwrap_or_default();
    match value {
        Some(value) => Ok(format!("--{long}={value}")),
        // Without this, clap would take the next argument for the value.
        None if option.get_num_args().is_some_and(|values| values.min_values() > 0) => {
            let value_name = option
                .get_value_names()
                .and_then(|names| names.first())
                .map_or("VALUE", |name| name.as_str());
            Err(Exit::Usage(format!("option '{long}' after -o has no value: write {long}={value_name}")))
        }
        None => Ok(format!("--{long}")),
    }
}

/// Returns the message about an unknown word.
fn unknown(name: &str, mount: &Command) -> String {
    let shown = mount
        .get_arguments()
        .filter(|argument| !argument.is_hide_set())
        .filter_map(|argument| argument.get_long());
    let known = shown.chain(KNOWN.iter().map(|(word, _)| *word));
    match nearest(&name.replace('_', "-"), known) {
        Some(near) => format!("unknown option '{name}' after -o: did you mean '{near}'?"),
        None => format!("unknown option '{name}' after -o: 'zarrfs mount --help' lists the options"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn words(values: &[&str]) -> Outcome<MountWords> {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        read(&values, &crate::cli::mount_definition(), false)
    }

    #[test]
    fn words_become_flags() {
        let read = words(&["cache-size=2G,direct_io", "byte_order=big"]).unwrap();
        assert_eq!(read.flags, ["--cache-size=2G", "--direct-io", "--byte-order=big"]);
    }

    #[test]
    fn names_of_formats_have_colons_between_them() {
        assert_eq!(words(&["formats=npy:nc,ro"]).unwrap().flags, ["--formats=npy:nc"]);
        assert_eq!(
            words(&[r"formats=npy\,nc", "formats=tif"]).unwrap().flags,
            ["--formats=npy,nc", "--formats=tif"]
        );
        let Err(Exit::Usage(sentence)) = words(&["formats=npy,nc"]) else { unreachable!() };
        assert_eq!(
            sentence,
            "a comma ends the option 'formats': write formats=…:nc, with colons between the names"
        );
    }

    #[test]
    fn words_of_fstab_pass() {
        let read = words(&[concat!(
            "defaults,noauto,nofail,_netdev,user,users,owner,group,user=ann,x-systemd.automount,X-mount.mkdir=0755,",
            "comment=my data,ro,rw,auto,default_permissions,fsname=data,subtype=zarrfs,allow_other,,"
        )])
        .unwrap();
        assert_eq!(read.flags, ["--allow-other"]);
        assert_eq!(read.source_name.as_deref(), Some("data"));
        assert!(read.rw && !read.ro);
    }

    #[test]
    fn later_kernel_words_take_back_earlier_ones() {
        let read =
            words(&["nosuid,nodev,noexec,noatime,suid,dirsync,sync,async,relatime,norelatime"]).unwrap();
        assert_eq!(read.kernel, ["nodev", "noexec", "noatime", "dirsync"]);
    }

    #[test]
    fn an_escaped_comma_belongs_to_the_value() {
        assert_eq!(words(&[r"log-file=/var/log/a\,b"]).unwrap().flags, ["--log-file=/var/log/a,b"]);
    }

    #[test]
    fn removed_options_are_replaced() {
        let read = words(&["threads=2,read-only,prefetch,session_threads=3"]).unwrap();
        assert_eq!(read.flags, ["--tune=threads=2", "--tune=prefetch=on"]);
        assert!(read.ro);
        // 'read-only' held whatever else was given, and mount(8) passes 'rw' by itself.
        let read = words(&["read_only,rw,writable"]).unwrap();
        assert!(read.ro && !read.rw);
        assert!(words(&["requester-pays=off"]).is_err() && words(&["read-only=off"]).is_err());
    }

    #[test]
    fn unknown_words_are_refused_with_the_nearest() {
        let Err(Exit::Usage(sentence)) = words(&["cache_sise=2G"]) else { unreachable!() };
        assert_eq!(sentence, "unknown option 'cache_sise' after -o: did you mean 'cache-size'?");
        let Err(Exit::Usage(sentence)) = words(&["umask"]) else { unreachable!() };
        assert_eq!(sentence, "option 'umask' after -o has no value: write umask=OCTAL");
        assert!(words(&["sloppy"]).is_err());
        assert!(matches!(words(&["remount"]), Err(Exit::Usage(sentence)) if sentence.contains("unmount")));
        let sloppy = read(&["zap,ro".to_owned()], &crate::cli::mount_definition(), true).unwrap();
        assert_eq!(sloppy.ignored, ["zap"]);
    }
}
