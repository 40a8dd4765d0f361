//! Command line of `stayput completions`.

use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;

use super::Cli;

const PLACES: &str = "\
Where the script goes:
  bash        ~/.local/share/bash-completion/completions/stayput
  zsh         ~/.zfunc/_stayput, with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc
  fish        ~/.config/fish/completions/stayput.fish
  elvish      ~/.config/elvish/lib/stayput.elv, with `use stayput` in rc.elv beside lib
  powershell  a file that $PROFILE runs

Example:
  stayput completions bash > ~/.local/share/bash-completion/completions/stayput";

/// Arguments of `stayput completions`.
#[derive(Debug, Args)]
#[command(after_help = PLACES)]
pub(crate) struct Completions {
    /// Shell that reads the script
    shell: Shell,
}

impl Completions {
    /// Returns the script for the shell. clap would also complete hidden commands, so they are left out.
    pub(crate) fn script(&self) -> Vec<u8> {
        let all = Cli::command();
        let shown = all.get_subcommands().filter(|it| !it.is_hide_set()).cloned();
        let mut shown = Command::new("stayput").subcommands(shown);
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut shown, "stayput", &mut script);
        script
    }
}
