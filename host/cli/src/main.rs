//! The program `callbox`.

fn main() -> std::process::ExitCode {
    callbox_cli::main()
}
