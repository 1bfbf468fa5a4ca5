//! What building the folder of a kernel replaces, and which programs it runs.

use std::fs;

use crate::support::{Folder, Ran};

/// A file with the name of the module that no build wrote: a signed package, say.
#[test]
fn a_module_from_elsewhere_is_not_replaced() {
    let folder = Folder::new();
    folder.run(&["new", "k", "--lang", "c"]).done();
    for contents in ["text", "\0asm\x01\0\0\0"] {
        folder.write("k/k.wasm", contents);
        for command in ["build", "test", "bench"] {
            let ran = folder.run(&[command, "k"]);
            assert_eq!(ran.code, 1, "{ran:?}");
            let message = "k.wasm: expected the module that an earlier build wrote here, found";
            assert!(ran.stderr.contains("FAILED_PRECONDITION"), "{ran:?}");
            assert!(ran.stderr.contains(message), "{ran:?}");
        }
        assert_eq!(folder.read("k/k.wasm"), contents.as_bytes());
    }
    fs::remove_file(folder.path("k/k.wasm")).unwrap();
    folder.run(&["build", "k"]).done();
    // What a build wrote, the next one replaces.
    folder.run(&["build", "k"]).done();
    let mut built = folder.read("k/k.wasm");
    built.extend(b"\0\x05\x04more");
    folder.write("k/k.wasm", &built);
    assert_eq!(folder.run(&["build", "k"]).code, 1);
    assert_eq!(folder.read("k/k.wasm"), built);
}

#[cfg(unix)]
#[test]
fn a_link_in_the_place_of_the_module_is_not_replaced() {
    let folder = Folder::new();
    folder.run(&["new", "k", "--lang", "c"]).done();
    folder.run(&["build", "k"]).done();
    fs::rename(folder.path("k/k.wasm"), folder.path("mine")).unwrap();
    std::os::unix::fs::symlink("../mine", folder.path("k/k.wasm")).unwrap();
    assert_eq!(folder.run(&["build", "k"]).code, 1);
    assert!(folder.path("k/k.wasm").is_symlink());
}

/// clang runs a `wasm-opt` of the PATH when it links, by which modules would differ.
#[cfg(unix)]
#[test]
fn an_optimizer_of_the_path_does_not_run() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = Folder::new();
    folder.run(&["new", "k", "--lang", "c"]).done();
    folder.run(&["build", "k"]).done();
    let without = folder.read("k/k.wasm");
    folder.write("bin/wasm-opt", "#!/bin/sh\ntouch \"$RAN\"\nexit 1\n");
    let program = folder.path("bin/wasm-opt");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let folders = std::iter::once(folder.path("bin")).chain(std::env::split_paths(&path));
    let mut command = folder.command(&["build", "k"]);
    command.env("PATH", std::env::join_paths(folders).unwrap());
    let ran = Ran::new(&command.env("RAN", folder.path("ran")).output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!folder.path("ran").exists());
    assert_eq!(folder.read("k/k.wasm"), without);
}

#[test]
fn help_says_that_native_code_runs_with_the_users_rights() {
    let folder = Folder::new();
    for command in ["build", "bench", "watch", "test"] {
        let help = folder.run(&[command, "--help"]).done();
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("with your rights"), "{help}");
    }
}
