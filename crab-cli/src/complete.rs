//! What Tab offers: paths behind `@`, slash commands and their arguments.

use std::path::{Path, PathBuf};

use reedline::{Completer, CompletionResult, Span, Suggestion};

use crate::commands;

/// More than a screen of names helps nobody.
const MOST: usize = 200;

/// Completes in the working directory.
pub(crate) struct Completions {
    /// Where relative paths begin.
    pub(crate) cwd: PathBuf,
}

impl Completer for Completions {
    fn complete(&mut self, line: &str, pos: usize) -> CompletionResult {
        CompletionResult::fresh(self.offer(line, pos))
    }
}

impl Completions {
    fn offer(&self, line: &str, pos: usize) -> Vec<Suggestion> {
        let before = line.get(..pos).unwrap_or(line);
        if before.starts_with('/') && (!before[1..].contains('/') || before.contains(' ')) {
            return slash(before, pos);
        }
        let start = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let Some(path) = before[start..].strip_prefix('@') else { return vec![] };
        paths(&self.cwd, path)
            .into_iter()
            .map(|path| suggestion(format!("@{path}"), None, (start, pos)))
            .collect()
    }
}

fn slash(typed: &str, pos: usize) -> Vec<Suggestion> {
    match typed.split_once(' ') {
        None => {
            let fitting = commands::COMMANDS.iter().filter(|command| command.name.starts_with(typed));
            let offer = |command: &commands::Slash| {
                suggestion(command.name.to_owned(), Some(command.about.to_owned()), (0, pos))
            };
            fitting.map(offer).collect()
        }
        Some((name, rest)) => {
            let start = pos - rest.len();
            let fitting = commands::arguments(name).into_iter().filter(|word| word.contains(rest));
            fitting.take(MOST).map(|word| suggestion(word, None, (start, pos))).collect()
        }
    }
}

/// Names that begin like the last part of `typed`, folders with a slash behind them. Hidden ones only when asked for.
fn paths(cwd: &Path, typed: &str) -> Vec<String> {
    let (folder, name) = typed.rsplit_once('/').map_or(("", typed), |(folder, name)| (folder, name));
    let shown = if typed.contains('/') { format!("{folder}/") } else { String::new() };
    let dir = match folder.strip_prefix('~') {
        Some(rest) => {
            let Some(home) = std::env::var_os("HOME") else { return vec![] };
            PathBuf::from(home).join(rest.trim_start_matches('/'))
        }
        None if typed.starts_with('/') => PathBuf::from(format!("{folder}/")),
        None => cwd.join(folder),
    };
    // A folder that can't be read has nothing to offer.
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let own = entry.file_name().into_string().ok()?;
            let fits = own.starts_with(name) && (name.starts_with('.') || !own.starts_with('.'));
            let is_dir = entry.path().is_dir();
            fits.then(|| format!("{shown}{own}{}", if is_dir { "/" } else { "" }))
        })
        .collect();
    names.sort();
    names.truncate(MOST);
    names
}

fn suggestion(value: String, description: Option<String>, (start, end): (usize, usize)) -> Suggestion {
    let append_whitespace = !value.ends_with('/');
    Suggestion { value, description, span: Span::new(start, end), append_whitespace, ..Suggestion::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["src/main.rs", "src/lib.rs", "README.md", ".hidden"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let completions = Completions { cwd: folder.path().to_path_buf() };
        let offered = completions.offer(line, line.len());
        let completed: Vec<_> =
            offered.iter().map(|it| format!("{}{}", &line[..it.span.start], it.value)).collect();
        assert_eq!(completed, expected, "{line}");
    }

    #[test]
    fn paths_are_offered_behind_an_at() {
        check("see @src/m", &["see @src/main.rs"]);
        check("@", &["@README.md", "@src/"]);
        check("@.h", &["@.hidden"]);
        check("me@src", &[]);
        check("@nowhere/x", &[]);
        check("plain", &[]);
    }

    #[test]
    fn commands_and_their_arguments_are_offered() {
        check("/mo", &["/model"]);
        check("/thinking me", &["/thinking medium"]);
        check("/usr/bi", &[]);
        check("say /mo", &[]);
    }
}
