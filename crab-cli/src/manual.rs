//! Completions and the manual page, made from the definition of the command line.

use clap::{Command, CommandFactory, ValueEnum};
use clap_complete::Shell;
use crab_core::protocol::FailureKind;

use crate::args::{Args, COMMANDS};
use crate::setup::Stop;

/// The completions of a shell.
pub(crate) fn completions(shell: Shell) -> String {
    let mut out = vec![];
    clap_complete::generate(shell, &mut with_commands(), "crab", &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// The manual page, as `man` reads it.
pub(crate) fn page() -> Result<String, Stop> {
    let mut out = vec![];
    clap_mangen::Man::new(Args::command()).render(&mut out).map_err(|err| {
        Stop::new(FailureKind::Internal, format!("the manual page could not be made: {err}"))
    })?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// The definition with the commands as such, which the program itself tells from the words of a prompt.
fn with_commands() -> Command {
    let mut command = Args::command();
    for (name, args, about) in COMMANDS {
        let mut own = Command::new(name).about(about);
        if name == "completions" {
            let shells =
                [Shell::Bash, Shell::Zsh, Shell::Fish].into_iter().filter_map(|it| it.to_possible_value());
            own =
                own.arg(clap::Arg::new(args).value_parser(clap::builder::PossibleValuesParser::new(shells)));
        }
        command = command.subcommand(own);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_gets_options_and_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = completions(shell);
            for word in ["max-turns", "sessions", "doctor"] {
                assert!(text.contains(word), "{shell} lacks {word}");
            }
        }
    }

    #[test]
    fn the_page_names_every_option_and_command() {
        let page = page().unwrap();
        for word in [r"\-\-yolo", "crab models", "Exit codes"] {
            assert!(page.contains(word), "{word}");
        }
    }
}
