//! The README and the command line say the same.

use std::collections::BTreeSet;
use std::path::Path;

use crate::crab::Crab;

fn readme() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md")).unwrap()
}

fn flags(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    words.filter(|word| word.starts_with("--") && word.len() > 3).map(str::to_owned).collect()
}

#[test]
fn the_readme_lists_exactly_the_flags_of_the_program() {
    let help = Crab::new().run(&["--help"]).ok().out;
    let section = readme().split("## Options").nth(1).unwrap().split("\n## ").next().unwrap().to_owned();
    let rows: String = section.lines().filter(|line| line.starts_with("| `")).collect::<Vec<_>>().join("\n");
    let told: BTreeSet<String> = flags(&rows).into_iter().filter(|flag| flag != "--effort").collect();
    let real: BTreeSet<String> = help
        .lines()
        .filter(|line| line.trim_start().starts_with('-'))
        .flat_map(|line| flags(line.split("  ").find(|part| part.contains("--")).unwrap_or_default()))
        .collect();
    assert_eq!(told, real);
}

/// In a file, so that a change of what people see first is seen in review.
#[test]
fn the_help_is_what_it_was() {
    insta::assert_snapshot!("help", Crab::new().run(&["--help"]).ok().out);
}

#[test]
fn the_readme_names_every_configuration_key() {
    let readme = readme();
    for key in crab_core::config::KEYS {
        let name = key.pattern.rsplit('.').find(|part| *part != "*").unwrap();
        assert!(readme.contains(name), "README.md does not name the key {}", key.pattern);
    }
}
