//! Rules that a compiler does not hold: what files look like, and that the documents tell the truth.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crab_core::{prompt, tools};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
    found
}

fn all_sources() -> Vec<(PathBuf, String)> {
    let crates = ["crab-core/src", "crab-core/tests", "crab-cli/src", "crab-cli/tests"];
    let dirs = crates.iter().map(|dir| root().join(dir)).filter(|dir| dir.exists());
    dirs.flat_map(|dir| sources(&dir)).map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn every_file_says_what_it_owns_and_keeps_short() {
    for (path, text) in all_sources() {
        let shown = path.strip_prefix(root()).unwrap().display();
        assert!(text.starts_with("//! "), "{shown} does not open with a sentence that says what it owns");
        let is_test = path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
        let own = text.split("#[cfg(test)]\nmod tests").next().unwrap().lines().count();
        assert!(is_test || own <= 500, "{shown} has {own} lines of its own; split it by what it owns");
    }
}

#[test]
fn the_core_knows_no_terminal() {
    let manifest = fs::read_to_string(root().join("crab-core/Cargo.toml")).unwrap();
    for name in ["crossterm", "reedline", "clap", "unicode-width", "anyhow"] {
        assert!(!manifest.contains(&format!("\n{name} ")), "crab-core depends on {name}");
    }
    let lib = fs::read_to_string(root().join("crab-core/src/lib.rs")).unwrap();
    assert!(lib.contains("#![deny(clippy::print_stdout, clippy::print_stderr)]"));
}

#[test]
fn the_tools_are_the_files() {
    let files = fs::read_dir(root().join("crab-core/src/tools")).unwrap();
    let stems = files.map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned());
    let files: BTreeSet<String> = stems.filter(|stem| stem != "mod").collect();
    let listed: BTreeSet<String> = tools::all().iter().map(|tool| tool.name().to_owned()).collect();
    assert_eq!(listed, files);
}

#[test]
fn prompt_and_tools_stay_within_their_budget() {
    let specs = tools::all().into_iter().map(|tool| {
        serde_json::json!({"type": "function", "function": {
            "name": tool.name(), "description": tool.description(), "parameters": tool.schema()
        }})
    });
    let tools = serde_json::Value::from_iter(specs).to_string().len();
    assert!(prompt::BASE.len() <= 2_000, "the prompt has {} bytes", prompt::BASE.len());
    assert!(prompt::BASE.len() + tools <= 7_000, "prompt {} and tools {tools} bytes", prompt::BASE.len());
}

#[test]
fn the_loop_and_the_front_end_know_no_tool() {
    let names: Vec<String> = tools::all().iter().map(|tool| format!("\"{}\"", tool.name())).collect();
    for (path, text) in all_sources() {
        let shown = path.strip_prefix(root()).unwrap().display().to_string();
        let own = text.split("#[cfg(test)]").next().unwrap();
        let is_bound = [
            "crab-core/src/turn",
            "crab-core/src/agent",
            "crab-core/src/gate",
            "crab-core/src/provider",
            "crab-cli/src",
        ];
        if !is_bound.iter().any(|prefix| shown.starts_with(prefix)) || shown.ends_with("tests.rs") {
            continue;
        }
        for name in &names {
            assert!(!own.contains(name.as_str()), "{shown} knows the tool {name}");
        }
    }
}

#[test]
fn the_paths_and_tests_that_the_design_names_exist() {
    let design = fs::read_to_string(root().join("DESIGN.md")).unwrap();
    let code: String = all_sources().into_iter().map(|(_, text)| text).collect();
    let named = |label: &str| -> Vec<String> {
        let lines = design.lines().filter_map(|line| line.strip_prefix(label));
        lines.flat_map(|line| line.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
    };
    let (paths, tests) = (named("**Lives in**"), named("**Held by**"));
    assert!(paths.len() > 20 && tests.len() > 15);
    for path in paths {
        assert!(root().join(&path).exists(), "DESIGN.md names {path}, which is not there");
    }
    for test in tests {
        assert!(code.contains(&format!("fn {test}(")), "DESIGN.md names the test {test}, which is not there");
    }
}

#[test]
fn every_decision_has_all_its_parts() {
    let design = fs::read_to_string(root().join("DESIGN.md")).unwrap();
    let decisions: Vec<&str> = design.split("\n### ").skip(1).collect();
    assert!(decisions.len() >= 14);
    for decision in decisions {
        for part in ["Decided", "Because", "Lost", "Costs", "Reopen when", "Lives in", "Held by"] {
            assert!(
                decision.contains(&format!("**{part}** ")),
                "no {part} in: {}",
                decision.lines().next().unwrap()
            );
        }
    }
}

#[test]
fn ci_runs_what_the_readme_says() {
    let ci = fs::read_to_string(root().join(".ci/run")).unwrap();
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(ci.contains("cargo test --workspace") && readme.contains("cargo test --workspace"));
    for lint in ["cargo fmt --all --check", "-D warnings", "cargo doc", "scripts/size"] {
        assert!(ci.contains(lint), "{lint}");
    }
}
