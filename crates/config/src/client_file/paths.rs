//! Clients whose files Stayput knows, and the places of these files.

use std::path::PathBuf;

use crate::environment::Environment;

/// MCP client with a configuration file of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// Claude Code: `~/.claude.json`.
    ClaudeCode,
    /// Codex: `~/.codex/config.toml`.
    Codex,
    /// Gemini CLI: `~/.gemini/settings.json`.
    Gemini,
    /// opencode: `~/.config/opencode/opencode.json`.
    Opencode,
    /// Cursor: `~/.cursor/mcp.json`.
    Cursor,
    /// VS Code: `mcp.json` of the user.
    VsCode,
    /// Claude Desktop: `claude_desktop_config.json`.
    ClaudeDesktop,
    /// Windsurf: `~/.codeium/windsurf/mcp_config.json`.
    Windsurf,
}

impl Client {
    /// All clients.
    pub const ALL: [Self; 8] = [
        Self::ClaudeCode,
        Self::Codex,
        Self::Gemini,
        Self::Opencode,
        Self::Cursor,
        Self::VsCode,
        Self::ClaudeDesktop,
        Self::Windsurf,
    ];

    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Cursor => "cursor",
            Self::VsCode => "vscode",
            Self::ClaudeDesktop => "claude-desktop",
            Self::Windsurf => "windsurf",
        }
    }

    /// Returns the file of the user; `None` without a home folder.
    #[must_use]
    pub fn file(self, environment: &Environment) -> Option<PathBuf> {
        let home = || environment.home();
        let settings = || match cfg!(target_os = "macos") {
            true => Some(home()?.join("Library/Application Support")),
            false => {
                environment.folder("XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config")))
            }
        };
        match self {
            Self::ClaudeCode => {
                let folder = environment.folder("CLAUDE_CONFIG_DIR").or_else(home);
                Some(folder?.join(".claude.json"))
            }
            Self::Codex => {
                let folder = environment.folder("CODEX_HOME");
                Some(folder.or_else(|| Some(home()?.join(".codex")))?.join("config.toml"))
            }
            Self::Gemini => Some(home()?.join(".gemini/settings.json")),
            Self::Opencode => opencode(environment),
            Self::Cursor => Some(home()?.join(".cursor/mcp.json")),
            Self::VsCode => Some(settings()?.join("Code/User/mcp.json")),
            Self::ClaudeDesktop => Some(settings()?.join("Claude/claude_desktop_config.json")),
            Self::Windsurf => Some(home()?.join(".codeium/windsurf/mcp_config.json")),
        }
    }
}

/// Returns the file of opencode, which has one of two names, and the same folder on every system.
fn opencode(environment: &Environment) -> Option<PathBuf> {
    if let Some(file) = environment.folder("OPENCODE_CONFIG") {
        return Some(file);
    }
    let folder = environment.folder("XDG_CONFIG_HOME");
    let folder = folder.or_else(|| Some(environment.home()?.join(".config")))?.join("opencode");
    let commented = folder.join("opencode.jsonc");
    let plain = folder.join("opencode.json");
    Some(if !plain.is_file() && commented.is_file() { commented } else { plain })
}
