//! `sennit completions` and `sennit man`: what shells and `man` know of the commands.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::{Cli, Exit, Failure, output};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit completions bash > /etc/bash_completion.d/sennit
  sennit completions fish > ~/.config/fish/completions/sennit.fish")]
pub(super) struct CompletionsArgs {
    /// Which shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit man | man -l -
  sennit man --dir /usr/share/man/man1")]
pub(super) struct ManArgs {
    /// Write the pages of all commands into this directory; without it, print the first
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn completions(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "sennit", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

pub(super) fn man(args: &ManArgs) -> Result<Exit, Failure> {
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        let rendered = clap_mangen::Man::new(Cli::command()).render(&mut page);
        rendered.map_err(Failure::runtime)?;
        return output::print(&String::from_utf8_lossy(&page));
    };
    let written =
        std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(Cli::command(), dir));
    let shown = dir.display();
    written.map_err(|error| Failure::io(&error, format!("cannot write to {shown}: {error}")))?;
    output::say!("The pages are in {shown}.");
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_every_shell_a_script() {
        let dir = tempfile::tempdir().unwrap();
        let args = ManArgs {
            dir: Some(dir.path().into()),
        };
        man(&args).unwrap();
        let all = Cli::command();
        for command in all.get_subcommands().filter(|it| !it.is_hide_set()) {
            let page = dir.path().join(format!("sennit-{}.1", command.get_name()));
            let text = std::fs::read_to_string(&page).unwrap();
            assert!(text.contains(".SH"), "{}", page.display());
        }
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "sennit", &mut script);
            assert!(
                String::from_utf8(script).unwrap().contains("doctor"),
                "{shell}"
            );
        }
    }
}
