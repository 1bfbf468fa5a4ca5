//! Passwords of registries, as `docker login` keeps them.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;

use callbox::{Blame, Result, Status, StatusCode};
use serde::Deserialize;

use crate::fetch::http::Token;
use crate::regular_file;

/// The largest file with passwords.
const MOST_BYTES: usize = 1 << 20;

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    /// The user's name and password, in Base64.
    #[serde(default)]
    auth: String,
}

/// The password of a host. Programs that keep passwords are not asked.
///
/// # Errors
/// INVALID_ARGUMENT if there is a file of passwords that cannot be read.
pub(super) fn of_host(host: &str) -> Result<Option<Token>> {
    let Some(path) = path().filter(|path| path.exists()) else {
        return Ok(None);
    };
    let text = regular_file::read(&path, MOST_BYTES).map_err(|failure| failure.status().clone())?;
    // The error's text can quote a password.
    let config: Config = serde_json::from_slice(&text).map_err(|_| {
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
    let found = names.iter().find_map(|name| config.auths.get(name));
    Ok(found.and_then(|entry| Token::basic(&entry.auth)))
}

/// The file of passwords.
fn path() -> Option<PathBuf> {
    let folder = env::var_os("DOCKER_CONFIG").filter(|folder| !folder.is_empty());
    let folder = folder.map(PathBuf::from);
    let folder = folder.or_else(|| Some(env::home_dir()?.join(".docker")))?;
    Some(folder.join("config.json"))
}
