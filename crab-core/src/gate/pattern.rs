//! What a rule's pattern means: which paths, and which texts.

use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::paths;

/// What makes a part of a path more than a name.
const META: [char; 5] = ['*', '?', '[', '{', '\\'];

/// The pattern of a rule.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    said: String,
    /// As a path: without `~` and `./`.
    text: String,
    /// It is about what lies below the roots, whatever it looks like: it began with `./`.
    is_local: bool,
    /// What it means.
    paths: GlobSet,
    /// The folder whose content it means.
    folder: GlobSet,
    /// The part before the first special sign, as it is written.
    literal: String,
}

/// A place that a pattern names: where it is, and how the pattern writes it.
#[derive(Clone, Debug)]
pub(super) struct Alias {
    place: PathBuf,
    written: PathBuf,
}

impl Pattern {
    pub(super) fn new(said: &str) -> Result<Self, String> {
        let home = std::env::home_dir().filter(|_| said.starts_with("~/"));
        let below = said.strip_prefix("./").or((said == ".").then_some(""));
        let text = match (home, below) {
            (Some(home), _) => format!("{}{}", home.display(), &said[1..]),
            (None, Some("")) => "**".to_owned(),
            (None, Some(below)) => below.to_owned(),
            (None, None) => said.to_owned(),
        };
        let is_local = below.is_some();
        let base = text.trim_end_matches('/');
        let anywhere = if is_local || base.contains('/') { "" } else { "**/" };
        let folder = base.strip_suffix("/**").filter(|folder| !folder.is_empty());
        let literal: Vec<&str> = base.split('/').take_while(|part| !part.contains(META)).collect();
        Ok(Self {
            paths: globs(&[&format!("{anywhere}{base}"), &format!("{anywhere}{base}/**")])?,
            folder: globs(folder.as_slice())?,
            literal: literal.join("/"),
            said: said.to_owned(),
            text,
            is_local,
        })
    }

    /// Whether a text fits, in which `*` stands for any text.
    pub(super) fn fits(&self, text: &str) -> bool {
        wildcard(&self.said, text)
    }

    /// The narrow reading, for rules that allow. A path is absolute or relative to the working directory `cwd`. Absolute
    /// patterns are about the whole path, others about what lies below the working directory. `*` alone means every path.
    pub(super) fn covers(&self, path: &str, cwd: Option<&PathBuf>) -> bool {
        let whole = whole(path, cwd);
        if self.text.starts_with('/') || (!self.is_local && matches!(self.text.as_str(), "*" | "**")) {
            return self.paths.is_match(&whole);
        }
        let below = cwd.and_then(|cwd| whole.strip_prefix(cwd).ok()).or_else(|| relative(path));
        below.is_some_and(|below| self.paths.is_match(below))
    }

    /// Where the place is that the pattern names, by its text and where links lead now.
    pub(super) fn aliases(&self, roots: &[PathBuf]) -> Vec<Alias> {
        let written = PathBuf::from(&self.literal);
        let tops = if written.is_absolute() { &[PathBuf::from("/")] } else { roots };
        let places = tops.iter().filter(|_| !self.literal.is_empty()).flat_map(|root| {
            let place = paths::clean(&root.join(&written));
            [paths::canonical(&place), place]
        });
        let mut aliases: Vec<_> = places.map(|place| Alias { place, written: written.clone() }).collect();
        aliases.dedup_by(|a, b| a.place == b.place);
        aliases
    }

    /// The wider reading, for rules that forbid or ask. Whether a path, absolute or relative to the first root, is meant:
    /// as a whole, by what lies below one of the roots, or by another name of the place.
    pub(super) fn concerns(&self, path: &str, roots: &[PathBuf], aliases: &[Alias]) -> bool {
        let whole = whole(path, roots.first());
        let below = roots.iter().filter_map(|root| whole.strip_prefix(root).ok());
        let mut renamed = aliases.iter().filter_map(|alias| {
            let rest = whole.strip_prefix(&alias.place).ok()?;
            // To join nothing would put a slash behind the name.
            Some(if rest.as_os_str().is_empty() { alias.written.clone() } else { alias.written.join(rest) })
        });
        (!self.is_local && self.means(&whole))
            || below.chain(relative(path)).any(|below| self.means(below))
            || renamed.any(|path| self.means(&path))
    }

    fn means(&self, path: &Path) -> bool {
        self.paths.is_match(path) || self.folder.is_match(path)
    }
}

fn relative(path: &str) -> Option<&Path> {
    (!path.starts_with('/')).then_some(Path::new(path))
}

fn whole(path: &str, cwd: Option<&PathBuf>) -> PathBuf {
    match cwd {
        Some(cwd) if path == "." => cwd.clone(),
        Some(cwd) => cwd.join(path),
        None => PathBuf::from(path),
    }
}

fn globs(texts: &[&str]) -> Result<GlobSet, String> {
    let mut globs = GlobSetBuilder::new();
    for text in texts {
        let glob = GlobBuilder::new(text).literal_separator(true).build();
        globs.add(glob.map_err(|err| format!("is no valid glob: {}", err.kind()))?);
    }
    globs.build().map_err(|err| format!("is no valid glob: {}", err.kind()))
}

/// Whether `text` fits `pattern`, in which `*` stands for any text; a final ` *` also stands for nothing.
fn wildcard(pattern: &str, text: &str) -> bool {
    if pattern.strip_suffix(" *").is_some_and(|bare| bare == text) {
        return true;
    }
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else { return rest.is_empty() };
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_patterns_are_globs() {
        for (said, path, is_concern, is_covered) in [
            ("secrets/**", "secrets/a/b", true, true),
            // What allows writing below a folder does not allow a file of its name.
            ("secrets/**", "secrets", true, false),
            ("secrets", "secrets/a/b", true, true),
            ("secrets/", "secrets/a", true, true),
            (".env", "sub/.env", true, true),
            ("*.pem", "deep/down/key.pem", true, true),
            ("src/*", "src/a", true, true),
            ("src/**/*.rs", "src/a/b.rs", true, true),
            ("src/**", "source/a", false, false),
            ("./src/**", "src/a", true, true),
            ("./*", "a", true, true),
            (".", "a/b", true, true),
            ("./", "a/b", true, true),
            ("with space/**", "with space/a b", true, true),
        ] {
            let pattern = Pattern::new(said).unwrap();
            let got = (pattern.concerns(path, &[], &[]), pattern.covers(path, None));
            assert_eq!(got, (is_concern, is_covered), "{said} against {path}");
        }
    }

    #[test]
    fn command_patterns_know_only_the_star() {
        for (pattern, text, expected) in [
            ("cargo *", "cargo build --release", true),
            ("cargo *", "cargo", true),
            ("cargo *", "cargo-evil x", false),
            ("git log*", "git log --oneline", true),
            ("*", "anything", true),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "a1c2b", false),
            ("ls [ab]", "ls [ab]", true),
            ("ls [ab]", "ls a", false),
            ("echo", "echo x", false),
        ] {
            assert_eq!(wildcard(pattern, text), expected, "{pattern} against {text}");
        }
    }
}
