//! A hub that takes commits, with one repository.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::fetch::{COMMIT, Files, OTHER, TOKEN, digest};
use crate::server::{Answer, Request, Server};

/// The repository of a hub.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) exists: bool,
    /// The commit of the branch `v1`.
    pub(crate) branch: Option<&'static str>,
    pub(crate) files: Files,
    /// What was uploaded to storage.
    pub(crate) stored: Vec<Vec<u8>>,
    /// Which files the hub wants in storage.
    pub(crate) lfs: &'static str,
    pub(crate) visibility: Option<Value>,
}

/// A hub, at which `change` decides some answers.
pub(crate) fn hub(
    state: &Arc<Mutex<State>>,
    change: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static,
) -> Server {
    let state = Arc::clone(state);
    Server::new(move |request| match change(request) {
        Some(answer) => answer,
        None => answer(&mut state.lock().unwrap(), request),
    })
}

fn answer(state: &mut State, request: &Request) -> Answer {
    let json = |value: Value| Answer::new(200, value.to_string().as_bytes());
    let body = || serde_json::from_slice::<Value>(&request.body).unwrap();
    let is_own = request.header("authorization") == Some(format!("Bearer {TOKEN}").as_str());
    if !is_own {
        return Answer::new(401, b"{}");
    }
    let host = request.header("host").unwrap();
    let commit = if state.files.is_empty() {
        COMMIT
    } else {
        OTHER
    };
    match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/api/repos/create") => {
            let asked = body();
            assert_eq!(
                (&asked["organization"], &asked["name"], &asked["type"]),
                (&json!("org"), &json!("negate"), &json!("kernel"))
            );
            state.visibility = asked.get("visibility").cloned();
            state.exists = true;
            json(json!({"url": "any"}))
        }
        _ if !state.exists => Answer::new(404, b""),
        ("GET", "/api/kernels/org/negate/refs") => {
            let branch = |name, commit| json!({"name": name, "ref": "any", "targetCommit": commit});
            let main = branch("main", "0".repeat(40));
            let v1 = state.branch.map(|commit| branch("v1", commit.to_owned()));
            let branches: Vec<_> = std::iter::once(main).chain(v1).collect();
            json(json!({"branches": branches, "converts": [], "tags": []}))
        }
        ("POST", "/api/kernels/org/negate/branch/v1") => {
            state.branch = Some(commit);
            json(json!({}))
        }
        ("POST", "/api/kernels/org/negate/preupload/v1") => {
            let asked = body();
            let files = asked["files"].as_array().unwrap().iter().map(|file| {
                let path = file["path"].as_str().unwrap();
                STANDARD.decode(file["sample"].as_str().unwrap()).unwrap();
                let is_lfs = !state.lfs.is_empty() && path.ends_with(state.lfs);
                let mode = if is_lfs { "lfs" } else { "regular" };
                json!({"path": path, "uploadMode": mode, "shouldIgnore": false, "oid": null})
            });
            json(json!({"files": files.collect::<Vec<_>>()}))
        }
        ("POST", "/kernels/org/negate.git/info/lfs/objects/batch") => {
            let asked = body();
            assert_eq!(asked["operation"], "upload");
            let oid = &asked["objects"][0]["oid"];
            let action = |path: &str| json!({"href": format!("http://{host}{path}"), "header": {}});
            let actions = json!({"upload": action("/storage"), "verify": action("/verify")});
            json(json!({"transfer": "basic", "objects": [{"oid": oid, "actions": actions}]}))
        }
        ("PUT", "/storage") => {
            state.stored.push(request.body.clone());
            json(json!({}))
        }
        ("POST", "/verify") => {
            let asked = body();
            let mut stored = state.stored.iter();
            let is_there = stored.any(|file| digest(file) == asked["oid"].as_str().unwrap());
            Answer::new(if is_there { 200 } else { 404 }, b"{}")
        }
        ("POST", "/api/kernels/org/negate/commit/v1") => {
            let parent = state.branch.unwrap();
            commit_files(state, &request.body, parent);
            state.branch = Some(OTHER);
            json(json!({"commitUrl": "any", "commitOid": OTHER}))
        }
        ("GET" | "HEAD", path) => {
            let rest = path
                .strip_prefix("/kernels/org/negate/resolve/")
                .unwrap_or("/");
            let (revision, path) = rest.split_once('/').unwrap();
            let commit = if revision == "v1" {
                state.branch
            } else {
                Some(OTHER)
            };
            match (commit, state.files.get(path)) {
                (Some(commit), Some(file)) => Answer::new(200, file).with("X-Repo-Commit", commit),
                _ => Answer::new(404, b""),
            }
        }
        _ => Answer::new(400, b"{}"),
    }
}

/// Does what the lines of a commit say.
fn commit_files(state: &mut State, lines: &[u8], parent: &str) {
    let lines = std::str::from_utf8(lines).unwrap().lines();
    let mut lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let header = lines.next().unwrap();
    assert_eq!(header["key"], "header");
    assert_eq!(header["value"]["parentCommit"], parent);
    for line in lines {
        let value = &line["value"];
        let path = value["path"].as_str().unwrap().to_owned();
        match line["key"].as_str().unwrap() {
            "file" => {
                assert_eq!(value["encoding"], "base64");
                let content = STANDARD.decode(value["content"].as_str().unwrap()).unwrap();
                state.files.insert(path, content);
            }
            "lfsFile" => {
                let oid = value["oid"].as_str().unwrap();
                let mut stored = state.stored.iter();
                let file = stored.find(|file| digest(file) == oid).unwrap().clone();
                assert_eq!(
                    (&value["size"], &value["algo"]),
                    (&json!(file.len()), &json!("sha256"))
                );
                state.files.insert(path, file);
            }
            "deletedFile" => assert!(state.files.remove(&path).is_some(), "{path}"),
            other => panic!("{other}"),
        }
    }
}
