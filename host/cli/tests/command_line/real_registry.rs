//! `callbox publish` and `callbox fetch` with the registry of Debian.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::fetch::refused;
use crate::fetched_bundles::bundle_of;
use crate::referrers::write_rules;
use crate::registry::{callbox, folder};

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The registry of Debian's package `docker-registry`, if it is installed, or the one that the
/// variable names.
#[test]
fn a_real_registry_takes_and_gives_packages() {
    let named = std::env::var_os("CALLBOX_DOCKER_REGISTRY").map(PathBuf::from);
    let program = named.unwrap_or_else(|| "/usr/bin/docker-registry".into());
    if !program.exists() {
        eprintln!("not run: {} is not installed", program.display());
        return;
    }
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let host = format!("127.0.0.1:{port}");
    let folder = folder(&host);
    // The hash of the password `secretsecret`.
    let user = "user:$2b$05$abcdefghijklmnopqrstuuGVJCQNsz03YEB5S/PfgS6BZF5TnhtLu\n";
    folder.write("htpasswd", user);
    let text = format!(
        "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {host}\n\
         auth:\n  htpasswd:\n    realm: basic-realm\n    path: {}\n",
        folder.path("registry").display(),
        folder.path("htpasswd").display()
    );
    folder.write("config.yml", text);
    let mut command = Command::new(program);
    command.arg("serve").arg(folder.path("config.yml"));
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _running = Running(child.unwrap());
    while std::net::TcpStream::connect(&host).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let reference = format!("oci:{host}/org/negate:1");
    let ran = callbox(&folder, &["publish", "1.0.0.wasm", &reference, "--json"]);
    let manifest = ran.object()["published"]["manifest_digest"].clone();
    ran.done();
    callbox(
        &folder,
        &["fetch", &reference, "--write-lock", "callbox.lock"],
    )
    .done();
    assert_eq!(folder.read("negate.wasm"), folder.read("1.0.0.wasm"));
    let again = callbox(&folder, &["publish", "1.0.0.wasm", &reference, "--json"]);
    assert_eq!(again.object()["published"]["changed"], false, "{again:?}");
    // Bundles, of which this registry keeps no list.
    write_rules(&folder, &[]);
    let trusted = ["fetch", &reference, "--trust", "trust.json", "--json"];
    refused(
        &callbox(&folder, &trusted),
        1,
        "PERMISSION_DENIED",
        "found no signature",
    );
    let bundle = bundle_of(&folder.read("1.0.0.wasm"));
    folder.write("1.0.0.wasm.sig", &bundle);
    for changed in [true, false] {
        let ran = callbox(&folder, &["publish", "1.0.0.wasm", &reference, "--json"]);
        assert_eq!(ran.object()["published"]["changed"], changed, "{ran:?}");
    }
    callbox(&folder, &trusted).done();
    assert_eq!(folder.read("negate.wasm.sig"), bundle);
    std::fs::remove_file(folder.path("negate.wasm.sig")).unwrap();
    callbox(&folder, &["publish", "1.1.0.wasm", &reference]).done();
    callbox(&folder, &["update", "--yes"]).done();
    assert_eq!(folder.read("negate.wasm"), folder.read("1.1.0.wasm"));
    let old = format!("oci:{host}/org/negate@{}", manifest.as_str().unwrap());
    callbox(&folder, &["fetch", &old, "-o", "old.wasm"]).done();
    assert_eq!(folder.read("old.wasm"), folder.read("1.0.0.wasm"));
    folder.write("docker/config.json", "{}");
    let ran = callbox(&folder, &["fetch", &old, "-o", "none.wasm", "--json"]);
    refused(&ran, 1, "PERMISSION_DENIED", "asks for a password");
}
