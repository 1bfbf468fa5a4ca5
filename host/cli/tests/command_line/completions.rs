//! `callbox completions`: the scripts for each shell, and completions in bash.

use crate::support::Folder;

const SHELLS: [&str; 5] = ["bash", "elvish", "fish", "powershell", "zsh"];

#[test]
fn scripts_have_the_commands_that_help_shows() {
    let folder = Folder::new();
    let help = folder.run(&["--help"]).done();
    let commands = help.split("Commands:\n").nth(1).unwrap();
    let commands: Vec<&str> = commands
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.contains(&"completions"), "{commands:?}");
    for shell in SHELLS {
        let script = folder.run(&["completions", shell]).done();
        for word in commands.iter().chain(&["output-dir", "allow-native"]) {
            assert!(script.contains(word), "expected {word} for {shell}");
        }
        // The command that serves a module's process is hidden.
        assert!(
            !script.contains("worker"),
            "found a hidden command for {shell}"
        );
    }
}

#[cfg(target_os = "linux")]
#[test]
fn bash_completes_commands_flags_and_shells() {
    let folder = Folder::new();
    folder.write("completions", folder.run(&["completions", "bash"]).done());
    for (words, expected) in [
        (&["callbox", "ins"][..], "inspect"),
        (&["callbox", "run", "--output-d"], "--output-dir"),
        (&["callbox", "completions", "z"], "zsh"),
        (&["callbox", "nonsense-"], ""),
    ] {
        let (before, last) = (words[words.len() - 2], words[words.len() - 1]);
        let script = format!(
            "source ./completions
             COMP_WORDS=({}) COMP_CWORD={}
             _callbox callbox '{last}' '{before}'
             echo \"${{COMPREPLY[*]}}\"",
            words.join(" "),
            words.len() - 1
        );
        let mut bash = std::process::Command::new("bash");
        let bash = bash.args(["--norc", "--noprofile", "-c", &script]);
        let output = bash.current_dir(folder.path("")).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        let found = String::from_utf8(output.stdout).unwrap();
        assert_eq!(found.trim(), expected, "{words:?}: {error}");
    }
}

#[test]
fn another_shell_is_wrong_usage() {
    let folder = Folder::new();
    for (arguments, message) in [
        (&["completions"][..], "required arguments were not provided"),
        (&["completions", "tcsh"], "invalid value 'tcsh'"),
    ] {
        let ran = folder.run(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
        assert!(ran.stderr.contains(message), "{ran:?}");
    }
}
