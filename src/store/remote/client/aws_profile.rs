//! Profiles of the AWS configuration files (`~/.aws/config`, `~/.aws/credentials`), as the AWS CLI reads them: keys, a region, an
//! endpoint, and a program that prints credentials (`credential_process`).
//!
//! SSO and roles are left to the AWS CLI, which stores their tokens: `aws configure export-credentials` prints their
//! credentials as a `credential_process` does. Invariant: neither keys nor the output of these programs appear in a message.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use serde_json::Value;
use tokio::sync::Mutex;

use crate::store::remote_options::secrets::register_secret;

/// Credentials from a program are renewed this long before they expire.
const RENEWAL: Duration = Duration::from_secs(300);
/// Members of a profile that only the AWS CLI supports.
const CLI_MEMBERS: [&str; 6] =
    ["sso_session", "sso_start_url", "role_arn", "source_profile", "credential_source", "login_session"];

/// A profile.
#[derive(Debug, Default)]
pub(super) struct Profile {
    name: String,
    members: BTreeMap<String, String>,
}

impl Profile {
    /// Loads the profile with this name, or the one that the environment names. Returns `Ok(None)` if there is no `default`
    /// profile.
    pub(super) fn load(name: Option<&str>) -> Result<Option<Self>, String> {
        let chosen = name.map(str::to_owned).or_else(|| variable("AWS_PROFILE"));
        // If a service manager sets no HOME, this is the home of the user.
        let home = || std::env::home_dir().unwrap_or_else(|| PathBuf::from("/")).join(".aws");
        let path = |name, file| variable(name).map_or_else(|| home().join(file), PathBuf::from);
        let name = chosen.clone().unwrap_or_else(|| "default".to_owned());
        let of_config = if name == "default" { name.clone() } else { format!("profile {name}") };
        let (config, credentials) =
            (path("AWS_CONFIG_FILE", "config"), path("AWS_SHARED_CREDENTIALS_FILE", "credentials"));
        let mut members = BTreeMap::new();
        let mut is_there = false;
        for (path, section) in [(&config, &of_config), (&credentials, &name)] {
            let text = match std::fs::read_to_string(path) {
                Ok(text) => text,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(format!("{}: cannot be read: {error}", path.display())),
            };
            if let Some(found) = find_section(&text, section) {
                is_there = true;
                members.extend(found);
            }
        }
        match (is_there, chosen) {
            (true, _) => Ok(Some(Profile { name, members })),
            (false, None) => Ok(None),
            (false, Some(name)) => Err(format!(
                "there is no profile '{name}' in {} or {}: 'aws configure list-profiles' lists them",
                config.display(),
                credentials.display()
            )),
        }
    }

    /// Returns a member, such as `region`.
    pub(super) fn get(&self, member: &str) -> Option<&str> {
        self.members.get(member).map(String::as_str)
    }

    /// Returns its credentials, if it has any.
    pub(super) fn credentials(&self) -> Option<Credentials> {
        if let (Some(key_id), Some(secret_key)) =
            (self.get("aws_access_key_id"), self.get("aws_secret_access_key"))
        {
            let token = self.get("aws_session_token").map(str::to_owned);
            register_secret(secret_key);
            token.iter().for_each(|token| register_secret(token));
            let credential =
                AwsCredential { key_id: key_id.to_owned(), secret_key: secret_key.to_owned(), token };
            return Some(Credentials { source: CredentialSource::Keys(Arc::new(credential)) });
        }
        let is_cli_member = |member: &&&str| self.members.contains_key(**member);
        let program = if let Some(command) = self.get("credential_process") {
            CredentialProgram::for_process(command)
        } else if let Some(member) = CLI_MEMBERS.iter().find(is_cli_member) {
            CredentialProgram::for_cli(&self.name, member)
        } else {
            return None;
        };
        let source = CredentialSource::Program { program: Arc::new(program), last: Mutex::new(None) };
        Some(Credentials { source })
    }
}

/// Returns a variable of the environment, unless it is empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the members of a section.
fn find_section(text: &str, section: &str) -> Option<BTreeMap<String, String>> {
    let mut found: Option<BTreeMap<String, String>> = None;
    let mut is_here = false;
    for line in text.lines() {
        // An indented line belongs to the member before it.
        let (is_nested, line) = (line.starts_with([' ', '\t']), line.trim());
        if line.starts_with(['#', ';']) || line.is_empty() || is_nested {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name.split(']').next().unwrap_or_default();
            is_here = name.split_whitespace().eq(section.split_whitespace())
                || name.replace('"', "").split_whitespace().eq(section.split_whitespace());
            if is_here {
                found.get_or_insert_default();
            }
        } else if let (true, Some((key, value)), Some(found)) = (is_here, line.split_once('='), &mut found) {
            let value = value.split(" #").next().unwrap_or_default().trim();
            found.insert(key.trim().to_ascii_lowercase(), value.to_owned());
        }
    }
    found
}

/// Credentials of a profile, which may expire.
pub(super) struct Credentials {
    source: CredentialSource,
}

enum CredentialSource {
    Keys(Arc<AwsCredential>),
    Program { program: Arc<CredentialProgram>, last: Mutex<Option<Renewable>> },
}

/// A program that prints credentials.
struct CredentialProgram {
    words: Vec<String>,
    /// The name for messages.
    what: String,
    /// The advice if it fails.
    remedy: String,
}

/// The output of a program, and when it expires.
struct Renewable {
    credential: Arc<AwsCredential>,
    expires: Option<SystemTime>,
}

/// Shows no secrets.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

#[async_trait]
impl CredentialProvider for Credentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let (program, last) = match &self.source {
            CredentialSource::Keys(credential) => return Ok(credential.clone()),
            CredentialSource::Program { program, last } => (program.clone(), last),
        };
        let failed = |reason: String| object_store::Error::Generic { store: "S3", source: reason.into() };
        let mut last = last.lock().await;
        let is_good =
            |known: &Renewable| known.expires.is_none_or(|expires| SystemTime::now() + RENEWAL < expires);
        if let Some(known) = last.as_ref().filter(|known| is_good(known)) {
            return Ok(known.credential.clone());
        }
        let fresh = tokio::task::spawn_blocking(move || program.run())
            .await
            .map_err(|error| failed(error.to_string()))?
            .map_err(failed)?;
        let credential = fresh.credential.clone();
        *last = Some(fresh);
        Ok(credential)
    }
}

impl CredentialProgram {
    /// Returns the `credential_process` of a profile.
    fn for_process(command: &str) -> Self {
        CredentialProgram {
            words: ["sh", "-c", command].map(str::to_owned).to_vec(),
            what: "the credential_process of the AWS profile".to_owned(),
            remedy: "run it by hand to see why".to_owned(),
        }
    }

    /// Returns the AWS CLI, for a profile with this member.
    fn for_cli(profile: &str, member: &str) -> Self {
        let words = ["aws", "configure", "export-credentials", "--format", "process", "--profile", profile];
        CredentialProgram {
            words: words.map(str::to_owned).to_vec(),
            what: format!(
                "the AWS profile '{profile}' has {member}, so 'aws configure export-credentials' is asked, which"
            ),
            remedy: match member.starts_with("sso") {
                true => format!("'aws sso login --profile {profile}' logs in"),
                false => format!("'aws sts get-caller-identity --profile {profile}' says why"),
            },
        }
    }

    fn run(&self) -> Result<Renewable, String> {
        let refused = |reason: &str| format!("{} {reason}", self.what);
        let (name, words) = self.words.split_first().ok_or_else(|| refused("has no name"))?;
        let command = &mut Command::new(name);
        let output = match command.args(words).stdin(Stdio::null()).stderr(Stdio::null()).output() {
            Ok(output) => output,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(refused(&format!("needs the program '{name}': install it")));
            }
            Err(error) => return Err(refused(&format!("cannot be run: {error}"))),
        };
        if !output.status.success() {
            return Err(refused(&format!("failed ({}): {}", output.status, self.remedy)));
        }
        let printed: Value =
            serde_json::from_slice(&output.stdout).map_err(|_| refused("did not print JSON"))?;
        let text = |member: &str| printed.get(member).and_then(Value::as_str).map(str::to_owned);
        let (Some(key_id), Some(secret_key)) = (text("AccessKeyId"), text("SecretAccessKey")) else {
            return Err(refused("did not print AccessKeyId and SecretAccessKey"));
        };
        let expires = text("Expiration").and_then(|time| time.parse::<jiff::Timestamp>().ok());
        let credential = AwsCredential { key_id, secret_key, token: text("SessionToken") };
        register_secret(&credential.secret_key);
        credential.token.iter().for_each(|token| register_secret(token));
        Ok(Renewable { credential: Arc::new(credential), expires: expires.map(SystemTime::from) })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    const CONFIG: &str = "# comment\n[default]\nregion = eu-west-1\n\n[profile lab]\nregion=eu-central-1 # near\n\
                          s3 =\n  addressing_style = path\n[profile sso]\nsso_session = here\n";

    #[test]
    fn sections_are_found() {
        let of = |section: &str, member: &str| {
            find_section(CONFIG, section).and_then(|found| found.get(member).cloned())
        };
        assert_eq!(of("default", "region").as_deref(), Some("eu-west-1"));
        assert_eq!(of("profile lab", "region").as_deref(), Some("eu-central-1"));
        assert_eq!(of("profile lab", "addressing_style"), None);
        assert!(find_section(CONFIG, "lab").is_none());
    }

    #[test]
    fn the_cli_exports_credentials_of_sso() {
        let members = find_section(CONFIG, "profile sso").unwrap();
        let profile = Profile { name: "sso".to_owned(), members };
        let Some(Credentials { source: CredentialSource::Program { program, .. } }) = profile.credentials()
        else {
            panic!("no program")
        };
        assert_eq!(
            program.words.join(" "),
            "aws configure export-credentials --format process --profile sso"
        );
        let words = ["sh", "-c", "exit 3"].map(str::to_owned).to_vec();
        let sentence = CredentialProgram { words, ..CredentialProgram::for_cli("sso", "sso_session") }
            .run()
            .err()
            .unwrap();
        assert!(sentence.contains("has sso_session") && sentence.contains("aws sso login --profile sso"));
        let words = vec!["no-such-aws".to_owned()];
        let sentence = CredentialProgram { words, ..CredentialProgram::for_cli("sso", "sso_session") }
            .run()
            .err()
            .unwrap();
        assert!(sentence.contains("needs the program 'no-such-aws'"), "{sentence}");
    }

    #[test]
    fn programs_print_credentials() {
        let good = r#"echo '{"Version":1,"AccessKeyId":"a","SecretAccessKey":"hunter2","Expiration":"2020-01-01T00:00:00Z"}'"#;
        let fresh = CredentialProgram::for_process(good).run().unwrap();
        assert_eq!(fresh.credential.key_id, "a");
        assert!(fresh.expires.unwrap() < SystemTime::now());
        for bad in [
            "echo hunter2",
            "echo '{\"SecretAccessKey\":\"hunter2\"}'",
            "echo hunter2; exit 3",
            "/no/such hunter2",
        ] {
            let sentence = CredentialProgram::for_process(bad).run().err().unwrap();
            assert!(!sentence.contains("hunter2"), "{sentence}");
        }
    }
}
