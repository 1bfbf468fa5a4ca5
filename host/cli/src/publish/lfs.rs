//! Large files of the Hub: the basic transfer of Git LFS.

use std::collections::BTreeMap;

use callbox::{Blame, Status, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::hub::Repository;
use crate::failure::Outcome;
use crate::fetch::cache::digest;
use crate::fetch::http::{Address, Call, denied, lie, quoted};

const JSON: &str = "application/vnd.git-lfs+json";

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
        "transfers": ["basic"],
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
    if actions.upload.header.contains_key("chunk_size") {
        let message = format!(
            "{address}: the Hub wants {} bytes in several parts, which callbox does not send: \
             publish with `callbox pack --hub` and `hf upload`",
            bytes.len()
        );
        return Err(Status::unimplemented(message).into());
    }
    send(repository, &actions.upload, "PUT", bytes)?;
    if let Some(verify) = actions.verify {
        let body = json!({"oid": oid, "size": bytes.len()}).to_string();
        send(repository, &verify, "POST", body.as_bytes())?;
    }
    Ok(())
}

/// Does what the Hub asks for. Storage at another host gets no token.
fn send(
    repository: &Repository<'_>,
    action: &Action,
    method: &'static str,
    body: &[u8],
) -> Outcome<()> {
    let wrong = |message: String| lie(format!("expected an address of storage: {message}"));
    let address = Address::parse(&action.href).map_err(wrong)?;
    let hub = repository.address("")?;
    if hub.is_secure() && !address.is_secure() {
        return Err(denied(format!("{hub} sends the file from https to {address}")).into());
    }
    let is_hub = address.origin() == hub.origin();
    let mut headers: Vec<(&str, &str)> = Vec::new();
    if method == "POST" {
        headers.push(("Content-Type", JSON));
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
    repository.client.send(call)?.done(&address)?;
    Ok(())
}
