//! `stayput completions`, read by the shells themselves.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::process::{Command, Output};

fn stayput(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stayput")).args(arguments).output().unwrap()
}

fn script(shell: &str) -> String {
    let made = stayput(&["completions", shell]);
    assert!(made.status.success(), "{shell}: {made:?}");
    String::from_utf8(made.stdout).unwrap()
}

/// Returns the words that bash offers for a command line whose last word is unfinished.
fn offered(words: &[&str]) -> Vec<String> {
    let (last, line) = (words.len() - 1, words.join(" "));
    let ask = format!(
        "{}\nCOMP_WORDS=({line}) COMP_CWORD={last} COMP_LINE='{line}'\n\
         _stayput stayput '{}' '{}'\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script("bash"),
        words[last],
        words[last - 1],
    );
    let asked = Command::new("bash").args(["--norc", "-c", &ask]).output().unwrap();
    assert!(asked.status.success(), "{asked:?}");
    String::from_utf8(asked.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_and_options() {
    assert_eq!(offered(&["stayput", "serv"]), ["serve"]);
    assert_eq!(offered(&["stayput", "serve", "--open"]), ["--open-to-all"]);
    assert!(offered(&["stayput", "completions", ""]).contains(&"fish".to_owned()));
}

/// Commands that the program starts by itself are not offered.
#[test]
fn hidden_commands_are_not_completed() {
    for hidden in ["warde", "daemo"] {
        assert_eq!(offered(&["stayput", hidden]), [""], "{hidden}");
    }
}

#[test]
fn every_shell_gets_a_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = script(shell);
        assert!(text.contains("demo-server") && text.contains("open-to-all"), "{shell}: {text}");
    }
    let refused = stayput(&["completions", "tcsh"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("bash") && said.contains("zsh"), "{said}");
}

#[test]
fn help_says_where_the_script_goes() {
    let help = String::from_utf8(stayput(&["completions", "--help"]).stdout).unwrap();
    for place in ["bash-completion/completions/stayput", "~/.zfunc/_stayput", "stayput.fish"] {
        assert!(help.contains(place), "{help}");
    }
}
