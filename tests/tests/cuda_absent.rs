//! Without CUDA, callbox reports the reason, the same each time, and does not panic. Each test runs
//! a process of its own, because the answer is kept for the life of a process.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and a child says what it found"
)]

use std::process::Command;

use callbox::StatusCode;
use callbox::cuda::{CudaDevice, probe};
use callbox_cuda_stand_in::StandIn;

/// The environment variable with the scene that the child plays.
const SCENE: &str = "CALLBOX_TEST_CUDA_SCENE";

/// Runs one scene in a process of its own, and returns what it prints.
fn in_a_process(scene: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_child", "--nocapture"])
        .env(SCENE, scene)
        .output()
        .unwrap();
    assert!(output.status.success(), "{scene}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let said = text.lines().find_map(|line| {
        let (_, said) = line.split_once("said: ")?;
        Some(said.to_owned())
    });
    said.unwrap_or_else(|| panic!("{scene}: {text}"))
}

#[test]
fn the_child() {
    let Some(scene) = std::env::var_os(SCENE) else {
        return;
    };
    match scene.to_str().unwrap() {
        "nothing" => {}
        "no device" => assert!(StandIn::preload().set_devices(0)),
        "old" => StandIn::preload().set_driver_version(12_040),
        "there" => drop(StandIn::preload()),
        other => panic!("no scene {other}"),
    }
    let first = probe().map(|driver| driver.devices());
    assert_eq!(probe().map(|driver| driver.devices()), first);
    match first {
        Ok(devices) => println!("said: {devices} devices"),
        Err(status) => {
            assert_eq!(status.code(), StatusCode::Unavailable);
            assert_eq!(CudaDevice::open(0).unwrap_err(), status);
            println!("said: {}", status.message());
        }
    }
}

#[test]
fn a_driver_without_devices_is_no_use() {
    assert_eq!(
        in_a_process("no device"),
        "CUDA is unavailable: expected an NVIDIA GPU, found a driver without devices"
    );
}

#[test]
fn a_driver_that_is_too_old_is_named() {
    assert_eq!(
        in_a_process("old"),
        "CUDA is unavailable: expected a driver for CUDA 12.8 or newer, found one for CUDA 12.4"
    );
}

#[test]
fn a_driver_with_a_device_is_there() {
    assert_eq!(in_a_process("there"), "1 devices");
}

#[test]
fn without_a_driver_there_is_no_cuda() {
    let said = in_a_process("nothing");
    // On a machine with a GPU, the child finds its driver.
    let has_driver = said.ends_with("devices");
    assert!(
        has_driver
            || said.starts_with("CUDA is unavailable: expected NVIDIA's driver (libcuda.so.1"),
        "{said}"
    );
}
