//! Passwords of registries, which `docker login` keeps in its file or in programs.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::fetch::{refused, run};
use crate::registry::{Registry, State, USER, callbox, host_of};
use crate::server::Answer;

/// A program `docker-credential-test`, which a test writes.
#[test]
fn programs_that_keep_passwords_are_asked() {
    let state = Arc::new(Mutex::new(State::default()));
    let registry = Registry::with(&state, |request| {
        // A server of tokens takes an identity token in a form.
        let is_identity = request.method == "POST" && request.path.starts_with("/token");
        let is_known =
            String::from_utf8_lossy(&request.body).contains("&refresh_token=secretsecret&");
        is_identity.then(|| {
            if is_known {
                Answer::new(200, br#"{"access_token": "push"}"#)
            } else {
                Answer::new(401, b"secretsecret")
            }
        })
    });
    let host = host_of(&registry.server);
    let (folder, reference) = (&registry.folder, &registry.reference);
    let (user, secret) = USER.split_once(':').unwrap();
    let program = folder.path("bin/docker-credential-test");
    let answers = |script: &str| {
        folder.write(
            "bin/docker-credential-test",
            format!("#!/bin/sh\n{script}\n"),
        );
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
    };
    let known = |user: &str, secret: &str| {
        let answer = json!({"ServerURL": host, "Username": user, "Secret": secret});
        format!("read name; [ \"$1 $name\" = 'get {host}' ] && echo '{answer}'")
    };
    let fetch = |config: Value| {
        folder.write("docker/config.json", config.to_string());
        let mut command = folder.command(&["fetch", reference, "-o", "k.wasm", "--json"]);
        let path = std::env::var("PATH").unwrap();
        command
            .env("PATH", format!("{}:{path}", folder.path("bin").display()))
            .env("HF_HOME", folder.path("home"))
            .env("DOCKER_CONFIG", folder.path("docker"))
            .env_remove("HF_HUB_OFFLINE");
        for name in ["http_proxy", "https_proxy", "all_proxy"] {
            command.env_remove(name).env_remove(name.to_uppercase());
        }
        let ran = run(command);
        assert!(
            !ran.stdout.contains(secret) && !ran.stderr.contains(secret),
            "{ran:?}"
        );
        ran
    };
    callbox(folder, &["publish", "1.0.0.wasm", reference]).done();
    let store = json!({"credsStore": "test"});
    answers(&known(user, secret));
    fetch(store.clone()).done();
    fetch(json!({"credHelpers": {&host: "test"}, "credsStore": "none"})).done();
    answers(&known("<token>", secret));
    fetch(store.clone()).done();
    fetch(json!({"auths": {&host: {"identitytoken": secret}}})).done();
    // A program without the password leaves the one of the file.
    answers("echo 'credentials not found in native keychain'; exit 1");
    let auth = STANDARD.encode(USER);
    fetch(json!({"credsStore": "test", "auths": {&host: {"auth": auth}}})).done();
    for (script, code, message) in [
        (
            "exit 1",
            "FAILED_PRECONDITION",
            "docker-credential-test: the program failed",
        ),
        (
            "echo secretsecret",
            "FAILED_PRECONDITION",
            "expected JSON with `Username`",
        ),
        (
            "echo 'credentials not found'; exit 1",
            "PERMISSION_DENIED",
            "asks for a password",
        ),
        (
            r#"echo '{"Username": "<token>", "Secret": "other"}'"#,
            "PERMISSION_DENIED",
            "the server refuses the identity token (status 401)",
        ),
    ] {
        answers(script);
        refused(&fetch(store.clone()), 1, code, message);
    }
    for (name, message) in [
        (
            "../test",
            "expected the name of a program after `docker-credential-`",
        ),
        ("absent", "docker-credential-absent: No such file"),
    ] {
        let ran = fetch(json!({"credsStore": name}));
        refused(&ran, 1, "FAILED_PRECONDITION", message);
    }
}
