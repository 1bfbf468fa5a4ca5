//! Passwords of registries, as `docker login` keeps them: in a file, or in a program.

use std::collections::BTreeMap;
use std::env;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callbox::{Blame, Result, Status, StatusCode};
use serde::Deserialize;

use crate::fetch::http::Token;
use crate::regular_file;

/// The largest file with passwords, and the longest answer of a program.
const MOST_BYTES: usize = 1 << 20;

/// How long a program may take, which can ask the user.
const MOST_TIME: Duration = Duration::from_secs(60);

/// What a user has for a registry.
#[derive(Debug)]
pub(super) enum Credential {
    /// A name and a password.
    Password(Token),
    /// An identity token, for which the server of tokens gives others.
    Identity(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
    /// The program that has the passwords of all registries.
    #[serde(default)]
    creds_store: String,
    /// The programs that have those of some registries.
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
struct Entry {
    /// The user's name and password, in Base64.
    #[serde(default)]
    auth: String,
    #[serde(default)]
    identitytoken: String,
}

/// What a program answers.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// What the user has for a host.
///
/// # Errors
/// INVALID_ARGUMENT if there is a file of passwords that cannot be read, and FAILED_PRECONDITION
/// if a program that it names fails.
pub(super) fn of_host(host: &str) -> Result<Option<Credential>> {
    let Some(path) = path().filter(|path| path.exists()) else {
        return Ok(None);
    };
    let text = regular_file::read(&path, MOST_BYTES).map_err(|failure| failure.status().clone())?;
    // The error's text can quote a password.
    let mut config: Config = serde_json::from_slice(&text).map_err(|_| {
        let message = "expected the JSON of `docker login`";
        let status = Status::new(StatusCode::InvalidArgument, Blame::Caller, message);
        status.context(path.display())
    })?;
    let names = [
        host.to_owned(),
        format!("https://{host}"),
        format!("https://{host}/v2/"),
        format!("https://{host}/v1/"),
    ];
    let helper = names.iter().find_map(|name| config.cred_helpers.get(name));
    let helper = helper.unwrap_or(&config.creds_store);
    if !helper.is_empty() {
        let in_file = |status: Status| status.context(path.display());
        for name in &names[..2] {
            if let Some(found) = ask(helper, name).map_err(in_file)? {
                return Ok(Some(found));
            }
        }
    }
    let found = names.iter().find_map(|name| config.auths.remove(name));
    let entry = found.unwrap_or_default();
    if !entry.identitytoken.is_empty() {
        return Ok(Some(Credential::Identity(entry.identitytoken)));
    }
    Ok(Token::basic(&entry.auth).map(Credential::Password))
}

/// Asks the program `docker-credential-NAME`. `None` if it has no password of the host.
fn ask(name: &str, host: &str) -> Result<Option<Credential>> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !name.chars().all(is_plain) {
        return Err(failed(
            "expected the name of a program after `docker-credential-`",
        ));
    }
    let program = format!("docker-credential-{name}");
    let failed = |reason: &str| failed(&format!("{program}: {reason}"));
    let mut child = Command::new(&program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // It can quote a secret.
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(&error.to_string()))?;
    if let Some(mut input) = child.stdin.take() {
        // A program that needs no input may have ended.
        let _ = input.write_all(host.as_bytes());
    }
    let output = child.stdout.take();
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        let read = output.map(|output| output.take(MOST_BYTES as u64).read_to_end(&mut text));
        read.and_then(std::result::Result::ok).map(|_| text)
    });
    let is_done = wait(&mut child).map_err(|error| failed(&error.to_string()))?;
    let Some(is_done) = is_done else {
        return Err(failed("the program took more than a minute"));
    };
    let text = reader.join().ok().flatten().unwrap_or_default();
    if !is_done {
        // This is how programs say it, on their standard output.
        if String::from_utf8_lossy(&text).contains("credentials not found") {
            return Ok(None);
        }
        return Err(failed("the program failed"));
    }
    let answer: Answer = serde_json::from_slice(&text)
        .map_err(|_| failed("expected JSON with `Username` and `Secret`"))?;
    if answer.username == "<token>" {
        return Ok(Some(Credential::Identity(answer.secret)));
    }
    let pair = STANDARD.encode(format!("{}:{}", answer.username, answer.secret));
    Ok(Token::basic(&pair).map(Credential::Password))
}

/// Whether a program succeeded. `None` if it took too long, and was ended.
fn wait(child: &mut Child) -> std::io::Result<Option<bool>> {
    let until = Instant::now() + MOST_TIME;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if Instant::now() > until {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn failed(message: &str) -> Status {
    Status::new(StatusCode::FailedPrecondition, Blame::Caller, message)
}

/// The file of passwords.
fn path() -> Option<PathBuf> {
    let folder = env::var_os("DOCKER_CONFIG").filter(|folder| !folder.is_empty());
    let folder = folder.map(PathBuf::from);
    let folder = folder.or_else(|| Some(env::home_dir()?.join(".docker")))?;
    Some(folder.join("config.json"))
}
