//! Files that signing does not replace, or whose mode it keeps.

use crate::packages::refuse;
use crate::signing::{ALICE, folder};

#[test]
fn a_key_is_not_replaced_by_what_it_signs() {
    let folder = folder();
    let message = "expected another file to write than the secret key of the signature";
    let sign = [
        "sign",
        "plain.wasm",
        "--key",
        "alice.pem",
        "-o",
        "./alice.pem",
    ];
    refuse(&folder, &sign, 2, "INVALID_ARGUMENT", message);
    for flag in ["-o", "--into"] {
        let pack = ["pack", "k", "--sign", "alice.pem", flag, "alice.pem"];
        refuse(&folder, &pack, 2, "INVALID_ARGUMENT", message);
    }
    let kept = std::fs::read_to_string(folder.path("alice.pem")).unwrap();
    assert_eq!(kept, ALICE);
}

#[cfg(unix)]
#[test]
fn a_signed_file_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    let path = folder.path("plain.wasm");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    folder
        .run(&["sign", "plain.wasm", "--key", "bob.key"])
        .done();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
}
