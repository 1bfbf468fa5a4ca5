//! Large files of the Hub: the transfers of Git LFS, in one part or in several.

use std::collections::BTreeMap;

use callbox::{Blame, Result, Status, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::hub::Repository;
use crate::failure::Outcome;
use crate::fetch::cache::digest;
use crate::fetch::http::{Address, Call, Reply, denied, lie, quoted};

const JSON: &str = "application/vnd.git-lfs+json";

/// The header of an upload in several parts, which has their size in bytes.
const PART_BYTES: &str = "chunk_size";

/// The most parts of a file, as the Hub's storage has it.
const MOST_PARTS: usize = 10_000;

#[derive(Deserialize)]
struct Batch {
    objects: Vec<Object>,
}

#[derive(Deserialize)]
struct Object {
    oid: String,
    #[serde(default)]
    error: Option<Problem>,
    #[serde(default)]
    actions: Option<Actions>,
}

#[derive(Deserialize)]
struct Problem {
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Actions {
    upload: Action,
    #[serde(default)]
    verify: Option<Action>,
}

#[derive(Deserialize)]
struct Action {
    href: String,
    #[serde(default)]
    header: BTreeMap<String, String>,
}

/// Uploads a file, unless the Hub has it.
pub(super) fn upload(repository: &Repository<'_>, bytes: &[u8], branch: &str) -> Outcome<()> {
    let oid = digest(bytes);
    let path = format!("kernels/{}.git/info/lfs/objects/batch", repository.name);
    let address = repository.address(&path)?;
    let payload = json!({
        "operation": "upload",
        "transfers": ["basic", "multipart"],
        "objects": [{"oid": oid, "size": bytes.len()}],
        "hash_algo": "sha256",
        "ref": {"name": branch},
    });
    let body = payload.to_string();
    let reply = repository.ask("POST", &address, Some((JSON, body.as_bytes())))?;
    let batch: Batch = reply.done(&address)?.json(&address)?;
    let object = batch.objects.into_iter().find(|object| object.oid == oid);
    let object = object.ok_or_else(|| lie(format!("{address}: expected an answer for {oid}")))?;
    if let Some(problem) = object.error {
        let message = format!(
            "{address}: the file is refused: {}",
            quoted(&problem.message)
        );
        return Err(Status::new(StatusCode::FailedPrecondition, Blame::Host, message).into());
    }
    // Without actions, the Hub has the file.
    let Some(actions) = object.actions else {
        return Ok(());
    };
    match actions.upload.header.get(PART_BYTES) {
        None => {
            send(repository, &actions.upload, "PUT", bytes)?;
        }
        Some(size) => {
            let in_answer = |status: Status| status.context(&address);
            let parts = parts(bytes, size, &actions.upload.header).map_err(in_answer)?;
            send_parts(repository, &actions.upload.href, &oid, &parts)?;
        }
    }
    if let Some(verify) = actions.verify {
        let body = json!({"oid": oid, "size": bytes.len()}).to_string();
        send(repository, &verify, "POST", body.as_bytes())?;
    }
    Ok(())
}

/// The parts of a file, each with the address that takes it. The headers have the addresses under
/// the numbers of the parts.
fn parts<'a>(
    bytes: &'a [u8],
    size: &str,
    headers: &'a BTreeMap<String, String>,
) -> Result<Vec<(&'a str, &'a [u8])>> {
    let size: usize = size.parse().ok().filter(|&size| size > 0).ok_or_else(|| {
        let found = quoted(size);
        lie(format!(
            "expected the size of parts in bytes, found {found}"
        ))
    })?;
    let numbered = headers.iter().filter_map(|(name, address)| {
        let number: usize = name.parse().ok()?;
        Some((number, address.as_str()))
    });
    let addresses: BTreeMap<_, _> = numbered.collect();
    let count = bytes.len().div_ceil(size);
    if count > MOST_PARTS || !addresses.keys().copied().eq(1..=count) {
        let found = addresses.len();
        let bytes = bytes.len();
        return Err(lie(format!(
            "expected addresses for {count} parts, at most {MOST_PARTS}, of {size} bytes each for \
             {bytes} bytes, found {found}"
        )));
    }
    Ok(addresses.into_values().zip(bytes.chunks(size)).collect())
}

/// Uploads the parts of a file one after the other, and has the storage join them.
fn send_parts(
    repository: &Repository<'_>,
    join: &str,
    oid: &str,
    parts: &[(&str, &[u8])],
) -> Outcome<()> {
    let mut tags = Vec::new();
    for (number, (address, part)) in (1..).zip(parts) {
        let reply = send(repository, &Action::at(address), "PUT", part)?;
        let tag = reply.header("etag").filter(|tag| !tag.is_empty());
        let tag = tag.ok_or_else(|| {
            let message = format!(
                "expected an entity tag for part {number} of {}",
                parts.len()
            );
            lie(message).context(quoted(address.split('?').next().unwrap_or_default()))
        })?;
        tags.push(json!({"partNumber": number, "etag": tag}));
    }
    let body = json!({"oid": oid, "parts": tags}).to_string();
    send(repository, &Action::at(join), "POST", body.as_bytes()).map(|_| ())
}

impl Action {
    /// A request without headers of its own.
    fn at(address: &str) -> Self {
        Self {
            href: address.to_owned(),
            header: BTreeMap::new(),
        }
    }
}

/// Does what the Hub asks for. Storage at another host gets no token.
fn send(
    repository: &Repository<'_>,
    action: &Action,
    method: &'static str,
    body: &[u8],
) -> Outcome<Reply> {
    let wrong = |message: String| lie(format!("expected an address of storage: {message}"));
    let address = Address::parse(&action.href).map_err(wrong)?;
    let hub = repository.address("")?;
    if hub.is_secure() && !address.is_secure() {
        return Err(denied(format!("{hub} sends the file from https to {address}")).into());
    }
    let is_hub = address.origin() == hub.origin();
    let mut headers: Vec<(&str, &str)> = Vec::new();
    if method == "POST" {
        headers.extend([("Accept", JSON), ("Content-Type", JSON)]);
    }
    let own = action
        .header
        .iter()
        .map(|(name, value)| (&**name, &**value));
    // The Hub's own headers would repeat the token.
    headers.extend(own.filter(|(name, _)| !(is_hub && name.eq_ignore_ascii_case("authorization"))));
    let call = Call {
        method,
        address: &address,
        token: is_hub.then_some(repository.token),
        headers: &headers,
        body: Some(body),
        most: 1 << 20,
    };
    Ok(repository.client.send(call)?.done(&address)?)
}
