//! `stayput install` on the files of eight clients, and the same files read by `stayput check`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

/// Program under test, which is also the server of the fixtures.
const PROGRAM: &str = env!("CARGO_BIN_EXE_stayput");

/// Client, its file in the home folder, and the text of the file.
const CLIENTS: [(&str, &str, &str); 8] = [
    ("claude-code", ".claude.json", include_str!("install/claude-code.json")),
    ("codex", ".codex/config.toml", include_str!("install/codex.toml")),
    ("gemini", ".gemini/settings.json", include_str!("install/gemini.json")),
    ("opencode", ".config/opencode/opencode.json", include_str!("install/opencode.json")),
    ("cursor", ".cursor/mcp.json", include_str!("install/cursor.json")),
    ("vscode", ".config/Code/User/mcp.json", include_str!("install/vscode.json")),
    (
        "claude-desktop",
        ".config/Claude/claude_desktop_config.json",
        include_str!("install/claude-desktop.json"),
    ),
    ("windsurf", ".codeium/windsurf/mcp_config.json", include_str!("install/windsurf.json")),
];

/// Home folder with the file of one client.
struct Home {
    folder: TempDir,
    client: &'static str,
    file: PathBuf,
    text: String,
}

impl Home {
    fn new(client: &str) -> Self {
        let (client, path, text) = CLIENTS.into_iter().find(|it| it.0 == client).unwrap();
        let folder = TempDir::new().unwrap();
        let file = folder.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let here = folder.path().to_str().unwrap();
        let text = text.replace("PROGRAM", PROGRAM).replace("FOLDER", here);
        fs::write(&file, &text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        Self { folder, client, file, text }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).current_dir(self.folder.path());
        command.env("HOME", self.folder.path()).stdin(Stdio::null());
        for name in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"] {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> (Output, String) {
        let output = self.command(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output, said)
    }

    /// Runs `stayput install` for the client, which must succeed.
    fn install(&self, arguments: &[&str]) -> String {
        let all: Vec<&str> = ["install", self.client].iter().chain(arguments).copied().collect();
        let (output, said) = self.run(&all);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}{errors}", self.client);
        said
    }

    fn now(&self) -> String {
        fs::read_to_string(&self.file).unwrap()
    }

    fn backup(&self) -> PathBuf {
        let mut path = self.file.clone().into_os_string();
        path.push(".before-stayput");
        path.into()
    }
}

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o777
}

/// Lines that are in one text only, as sorted lists.
fn difference(one: &str, two: &str) -> (Vec<String>, Vec<String>) {
    let only = |one: &str, two: &str| {
        let other: Vec<&str> = two.lines().collect();
        one.lines().filter(|line| !other.contains(line)).map(str::to_owned).collect()
    };
    (only(one, two), only(two, one))
}

/// A dry run writes nothing. An install changes the commands alone, keeps permissions, and a second one changes nothing.
/// `--undo` restores the file byte for byte.
#[test]
fn install_and_undo_in_every_client() {
    for (client, ..) in CLIENTS {
        let home = Home::new(client);
        let said = home.install(&["--dry-run"]);
        assert!(said.contains("\n+ ") && said.contains("notes: is put behind Stayput"), "{said}");
        assert!(home.now() == home.text && !home.backup().exists(), "{client}: a dry run wrote");

        let said = home.install(&["--yes"]);
        let wrapped = home.now();
        let (gone, new) = difference(&home.text, &wrapped);
        let (words, command) = (new.join("\n"), format!("\"{PROGRAM}\""));
        assert!(words.contains("\"stdio\"") && words.contains(&command), "{client}: {new:?}");
        // Without the name, two entries with one command and two tokens would be one server.
        assert!(words.contains("\"--server=notes\""), "{client}: {new:?}");
        assert!(gone.len() <= 9, "{client}: {gone:?}");
        let secret = home.text.lines().find(|line| line.contains("s3cr3t"));
        assert!(secret.is_none_or(|line| wrapped.contains(line)), "{client}: {wrapped}");
        assert!(!said.contains("s3cr3t"), "{client}: {said}");
        for comment in ["# the demo", "// the demo", "/* a notebook */", "# with state"] {
            assert_eq!(
                home.text.contains(comment),
                wrapped.contains(comment),
                "{client}: {comment}"
            );
        }
        assert_eq!((mode(&home.file), mode(&home.backup())), (0o600, 0o600), "{client}");
        assert_eq!(fs::read_to_string(home.backup()).unwrap(), home.text, "{client}");

        let said = home.install(&["--yes"]);
        assert!(said.contains("There is nothing to change"), "{client}: {said}");
        assert_eq!(home.now(), wrapped, "{client}");

        home.install(&["--undo", "--yes"]);
        assert_eq!(home.now(), home.text, "{client}");
        assert!(!home.backup().exists() && mode(&home.file) == 0o600, "{client}");
        let folder = fs::read_dir(home.file.parent().unwrap()).unwrap();
        let left = folder.map(|it| it.unwrap().file_name()).filter(|it| {
            it.to_string_lossy().contains("stayput") || it.to_string_lossy().contains(".json.")
        });
        assert_eq!(left.count(), 0, "{client} left a file");
    }
}

/// `check` reads the files of all clients, before and after the install: the server behind Stayput is the same one.
#[test]
fn check_reads_the_files_of_every_client() {
    for (client, ..) in CLIENTS {
        let home = Home::new(client);
        let file = home.file.to_str().unwrap();
        for step in ["before", "after"] {
            let (output, said) = home.run(&["check", "--config", file, "--json"]);
            let errors = String::from_utf8_lossy(&output.stderr);
            let all = format!("{client} {step}: {said}{errors}");
            assert!(said.contains(r#""server":"notes","tools":4"#), "{all}");
            assert!(!said.contains("\"off\"") && !all.contains("s3cr3t"), "{all}");
            match client {
                "claude-code" => {
                    assert!(all.contains("\"project\"") && !all.contains("elsewhere"), "{all}");
                }
                "vscode" => assert!(all.contains("${input:token} is missing"), "{all}"),
                "gemini" => assert!(said.contains("\"far\"") && !said.contains("allowed"), "{all}"),
                _ => {}
            }
            home.install(&["--yes"]);
        }
    }
}

/// A client that has written to its file since keeps what it wrote: `--undo` changes the commands alone. A server that
/// its user had put behind Stayput before stays there.
#[test]
fn undo_keeps_what_the_client_wrote() {
    let home = Home::new("cursor");
    let own = format!(r#""own": {{ "command": "{PROGRAM}", "args": ["stdio", "--", "x"] }}"#);
    let text = home.text.replacen("{ \"notes\"", &format!("{{ {own}, \"notes\""), 1);
    fs::write(&home.file, &text).unwrap();
    let said = home.install(&["--yes"]);
    assert!(said.contains("own: is behind Stayput already"), "{said}");
    let changed = home.now().replacen("{ \"mcpServers\"", "{ \"theme\": 1, \"mcpServers\"", 1);
    fs::write(&home.file, &changed).unwrap();
    home.install(&["--undo", "--yes"]);
    let expected = text.replacen("{ \"mcpServers\"", "{ \"theme\": 1, \"mcpServers\"", 1);
    assert_eq!(home.now(), expected);
}

/// A server that is added later is put behind Stayput by a second install, and `--undo` removes it from all.
#[test]
fn second_install_adds_new_servers() {
    let home = Home::new("claude-desktop");
    home.install(&["--yes"]);
    let more = |text: &str| {
        text.replacen("\"notes\": {", "\"more\": { \"command\": \"y\" }, \"notes\": {", 1)
    };
    fs::write(&home.file, more(&home.now())).unwrap();
    let said = home.install(&["--yes"]);
    assert!(said.contains("more: is put behind") && said.contains("notes: is behind"), "{said}");
    let more = r#""args": ["stdio", "--server=more", "--", "y"]"#;
    assert!(home.now().contains(more), "{}", home.now());
    home.install(&["--undo", "--yes"]);
    let text = home.now();
    assert!(text.contains("\"command\": \"y\"") && !text.contains("\"stdio\""), "{text}");
}

/// Without `--yes` the answer decides; the end of the input is a no. A link to the file stays a link.
#[test]
fn question_is_asked_before_a_write() {
    let home = Home::new("cursor");
    let link = home.folder.path().join("link.json");
    std::os::unix::fs::symlink(&home.file, &link).unwrap();
    let link = link.to_str().unwrap();
    for (answer, written) in [("", false), ("n\n", false), ("y\n", true)] {
        let mut command = home.command(&["install", "cursor", "--file", link]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("Write this? [y/N]"), "{said}");
        assert_eq!(
            (output.status.success(), home.now() != home.text),
            (written, written),
            "{said}"
        );
    }
    assert!(fs::symlink_metadata(link).unwrap().is_symlink());
}

/// Files that are missing, empty or broken are named in a sentence, and nothing is written.
#[test]
fn unusable_files_are_reported() {
    let home = Home::new("codex");
    for (text, says) in [
        ("[mcp_servers", "config.toml:1:"),
        ("model = 1\n", "It has no servers"),
        ("[mcp_servers.x]\ncommand = 7\n", "has no command that can be read"),
    ] {
        fs::write(&home.file, text).unwrap();
        let (output, said) = home.run(&["install", "codex", "--yes"]);
        let all = said + &String::from_utf8_lossy(&output.stderr);
        assert!(all.contains(says), "{all}");
        assert_eq!(home.now(), text);
    }
    fs::remove_file(&home.file).unwrap();
    let (output, _) = home.run(&["install", "codex"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("does not exist") && errors.contains("--file"), "{errors}");
    assert_eq!(output.status.code(), Some(1));
}

/// Without a client the error lists all of them, and those that have a file here. After a write the output names the
/// next command.
#[test]
fn next_step_is_named() {
    let home = Home::new("cursor");
    let (output, _) = home.run(&["install"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        errors.contains("claude-code, codex, gemini")
            && errors.contains("with a file here: cursor"),
        "{errors}"
    );
    let (output, _) = home.run(&["install", "cursor"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("or use --yes"), "{errors}");
    let said = home.install(&["--yes"]);
    assert!(said.contains(&format!("stayput check --config {}", home.file.display())), "{said}");
    assert!(!home.install(&["--undo", "--yes"]).contains("stayput check"));
}
