//! Code fences of a page, and the programs that run them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::{
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Stdio,
};

use stayput_testkit::peers;
use tempfile::TempDir;
use tokio::{process::Command, time::timeout};

use crate::support::LONG;

/// Code fence of a page.
#[derive(Debug)]
pub(crate) struct Snippet {
    /// Words behind the backquotes: the language, and what runs it.
    pub(crate) kind: String,
    pub(crate) text: String,
}

/// Returns the code fences of a page of the repository.
pub(crate) fn of_page(page: &str) -> Vec<Snippet> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join(page)).unwrap();
    let mut snippets = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else { continue };
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        snippets.push(Snippet { kind: kind.to_owned(), text: body.join("\n") });
    }
    snippets
}

/// Folder with everything that snippets need: the programs `stayput`, `npx` and `python`, and npm's packages.
pub(crate) struct Desk {
    folder: TempDir,
}

impl Desk {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        symlink(env!("CARGO_BIN_EXE_stayput"), bin.join("stayput")).unwrap();
        let inspector = peers::inspector();
        // Pinned package in place of the one that `npx -y PACKAGE --cli` downloads and runs.
        let (node, file) = (inspector.program.display(), inspector.args[0].display());
        write_program(&bin.join("npx"), &format!("shift 2\nexec {node} {file} \"$@\""));
        symlink(peers::folder().unwrap().join("node_modules"), folder.path().join("node_modules"))
            .unwrap();
        Self { folder }
    }

    /// Runs a snippet in `cwd` and returns its standard output.
    pub(crate) async fn run(&self, snippet: &Snippet, cwd: &Path) -> String {
        let (program, file) = self.program(&snippet.kind);
        let file = self.folder.path().join(file);
        std::fs::write(&file, &snippet.text).unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new(program);
        command.arg(&file).current_dir(cwd).stdin(Stdio::null()).kill_on_drop(true);
        command.env("PATH", format!("{}:{path}", self.folder.path().join("bin").display()));
        command.env("HOME", self.folder.path()).env("XDG_DATA_HOME", cwd.join("data"));
        let output = timeout(LONG, command.output()).await.unwrap().unwrap();
        let (out, errors) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}\n{out}{errors}", snippet.text);
        out
    }

    fn program(&self, kind: &str) -> (PathBuf, &'static str) {
        let python = |name: &str| peers::folder().unwrap().join(name).join("bin/python");
        match kind {
            "python sdk1" => (python("python-sdk1"), "snippet.py"),
            "python sdk2" => (python("python"), "snippet.py"),
            "js" => (peers::node(), "snippet.mjs"),
            "sh" => ("/bin/bash".into(), "snippet.sh"),
            other => panic!("nothing runs {other:?}"),
        }
    }
}

fn write_program(file: &Path, text: &str) {
    std::fs::write(file, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}
