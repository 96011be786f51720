//! What a bash command line would run, as far as its text tells: pure, for the gate's rules.

mod lex;

use crate::programs::{self, SHELLS, WRAPPERS};
use lex::{Line, Simple, Word, is_assignment};

/// What is known of a command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Each simple command, in every spelling that a rule may name: as it is written, without quotes, without what
    /// stands before the program that really runs (`env`, `sudo`, `X=1`), and what substitutions run. Never empty.
    pub subjects: Vec<String>,
    /// The same of simple commands that only read or only change the folder, and more that a command may come down to:
    /// nobody needs to allow these.
    pub reads: Vec<String>,
    /// The subjects do not tell everything.
    pub opaque: bool,
    /// The words, when the line is one call of one program and has no shell operator at all.
    pub plain: Option<Vec<String>>,
}

/// Words of the shell's grammar that stand before a command.
const KEYWORDS: [&str; 13] =
    ["if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "coproc", "fi", "done"];
/// More words that run the command behind them, in ways of their own.
const STARTERS: [&str; 10] = [
    "flock", "setpriv", "unshare", "nsenter", "pkexec", "runuser", "firejail", "function", "coproc", "script",
];
/// How deep command lines within command lines are read.
const DEPTH: usize = 6;

/// Reads a command line.
pub(crate) fn read(command: &str) -> Reading {
    let mut reading = Reading::default();
    collect(command, DEPTH, &mut reading);
    if reading.subjects.is_empty() {
        reading.subjects = std::mem::take(&mut reading.reads);
    }
    let mut seen = std::collections::HashSet::new();
    reading.subjects.retain(|subject| seen.insert(subject.clone()));
    reading.reads.retain(|read| seen.insert(read.clone()));
    if reading.subjects.is_empty() {
        reading.subjects.push(command.trim().to_owned());
        reading.opaque = true;
    }
    reading
}

fn collect(command: &str, depth: usize, reading: &mut Reading) {
    let mut line = Line::lex(command);
    reading.opaque |= line.opaque || line.is_broken;
    if depth == DEPTH {
        reading.plain = line.plain();
    }
    for simple in std::mem::take(&mut line.commands) {
        simple.collect(reading, &mut line.nested);
    }
    if depth == 0 {
        reading.opaque = true;
        return;
    }
    for nested in &line.nested {
        collect(nested, depth - 1, reading);
    }
    // The text of a here-document can end a quote or begin one: each line is also read by itself.
    if (line.has_document || line.is_broken) && command.contains('\n') {
        command.lines().for_each(|line| collect(line, 0, reading));
    }
}

impl Simple {
    fn collect(self, reading: &mut Reading, nested: &mut Vec<String>) {
        let written = join(self.words.iter().map(|word| word.written.as_str()));
        if !self.redirections.is_empty() {
            reading.subjects.push(format!("{written} {}", self.redirections.join(" ")).trim().to_owned());
        }
        if self.words.is_empty() {
            return;
        }
        reading.opaque |= self.words[0].expands;
        let expands = self.words.iter().any(|word| word.expands);
        if self.redirections.is_empty() && !expands && is_harmless(&self.words) {
            reading.reads.push(written);
            reading.reads.push(join(self.words.iter().map(|word| word.text.as_str())));
            return;
        }
        reading.subjects.push(written);
        let brace = self.words[0].written.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        if let Some(words) = brace.filter(|words| words.contains(',')) {
            nested.push(words.replace(',', " "));
        }
        // What a shell is given to read is a script as well.
        if SHELLS.contains(&self.words[0].text.rsplit('/').next().unwrap_or_default()) {
            let given = self.redirections.iter().filter_map(|redirection| redirection.split_once("<<<"));
            nested.extend(given.map(|(_, text)| text.trim().to_owned()));
        }
        let texts: Vec<String> = self.words.into_iter().map(|word| word.text).collect();
        unwrap(&texts, reading, nested);
    }
}

/// Whether a command changes nothing but the folder that those behind it run in.
fn is_harmless(words: &[Word]) -> bool {
    let texts: Vec<String> = words.iter().map(|word| word.text.clone()).collect();
    texts[0] == "cd" || programs::only_reads(&texts)
}

/// Adds the command, and what it runs in turn.
fn unwrap(mut words: &[String], reading: &mut Reading, nested: &mut Vec<String>) {
    while let Some(first) = words.first() {
        reading.subjects.push(join(words.iter().map(String::as_str)));
        let program = programs::bare_name(first);
        if let Some(program) = program {
            let rest = words[1..].iter().map(String::as_str);
            reading.subjects.push(join(std::iter::once(program).chain(rest)));
        }
        if program.is_none() && first.contains('/') {
            let rest = words[1..].iter().map(String::as_str);
            reading.reads.push(join(first.rsplit('/').take(1).chain(rest)));
        }
        let program = program.unwrap_or(first);
        if STARTERS.contains(&program) || WRAPPERS.iter().any(|wrapper| wrapper.0 == program) {
            // Which word begins the command depends on options that only the program knows: each of them may.
            let ends = (1..words.len()).map(|at| join(words[at..].iter().map(String::as_str)));
            reading.reads.extend(ends);
        }
        if is_assignment(first) {
            reading.opaque = true;
            words = &words[1..];
        } else if KEYWORDS.contains(&program) {
            words = &words[1..];
        } else if let Some((_, values, positionals)) = WRAPPERS.iter().find(|wrapper| wrapper.0 == program) {
            reading.opaque |= matches!(program, "xargs" | "parallel" | "watch");
            words = inner(&words[1..], values, *positionals, reading, nested);
        } else {
            run_by(program, &words[1..], reading, nested);
            return;
        }
    }
}

/// The words of the command that a wrapper runs.
fn inner<'a>(
    mut words: &'a [String],
    values: &str,
    mut positionals: usize,
    reading: &mut Reading,
    nested: &mut Vec<String>,
) -> &'a [String] {
    while let [word, rest @ ..] = words {
        if let Some(long) = word.strip_prefix("--") {
            nested.extend(long.strip_prefix("split-string=").map(str::to_owned));
            // It may have its value in the next word.
            if !long.is_empty() && !long.contains('=') && rest.len() > 1 {
                reading.subjects.push(join(rest[1..].iter().map(String::as_str)));
            }
            words = rest;
        } else if word.len() > 1 && word.starts_with('-') {
            let has_value = word.len() == 2 && word.ends_with(|last| values.contains(last));
            if let Some(line) = rest.first().filter(|_| word.ends_with('S')) {
                nested.push(line.clone());
            }
            nested.extend(
                word.split_once('S').map(|(_, line)| line.to_owned()).filter(|line| !line.is_empty()),
            );
            words = if has_value { rest.get(1..).unwrap_or_default() } else { rest };
        } else if positionals > 0 && !is_assignment(word) {
            positionals -= 1;
            words = rest;
        } else {
            break;
        }
    }
    words
}

/// Command lines and commands among a program's arguments.
fn run_by(program: &str, arguments: &[String], reading: &mut Reading, nested: &mut Vec<String>) {
    if matches!(program, "eval" | "trap" | "." | "source" | "alias" | "function") || SHELLS.contains(&program)
    {
        reading.opaque = true;
    }
    if matches!(program, "eval" | "trap") {
        nested.push(join(arguments.iter().map(String::as_str)));
        nested.extend(arguments.first().cloned());
    }
    if SHELLS.contains(&program) {
        nested.extend(arguments.iter().filter(|argument| !argument.starts_with('-')).cloned());
    }
    if program == "find" {
        for (at, argument) in arguments.iter().enumerate() {
            if matches!(argument.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir") {
                reading.opaque = true;
                unwrap(&arguments[at + 1..], reading, nested);
            }
        }
    }
}

fn join<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(command: &str, expected: &[&str], opaque: bool) {
        let reading = read(command);
        assert_eq!(reading.subjects, expected, "{command}");
        assert_eq!(reading.opaque, opaque, "{command}");
    }

    #[test]
    fn each_simple_command_is_a_subject() {
        check("cargo test", &["cargo test"], false);
        check("  git  add .  && rm -rf x\n", &["git add .", "rm -rf x"], false);
        check("a|b||c;d&e\nf |& g", &["a", "b", "c", "d", "e", "f", "g"], false);
        check(
            "git commit -m 'a; b' --x=\"c d\"",
            &["git commit -m 'a; b' --x=\"c d\"", "git commit -m a; b --x=c d"],
            false,
        );
        check("echo hi # rm x; it's", &["echo hi"], false);
        check("cargo te\\\nst", &["cargo test"], false);
        check("", &[""], true);
        check("# only words", &["# only words"], true);
    }

    #[test]
    fn a_rule_sees_a_command_however_it_is_started() {
        for command in [
            "timeout --kill-after 5 60 rm -f x",
            "timeout --signal KILL 5 rm -f x",
            "flock LOCK rm -f x",
            "env -S'rm -f x'",
            "env -iu X rm -f x",
            "bash <<< 'rm -f x'",
            "function f { rm -f x; }; f",
            "coproc X { rm -f x; }",
            "bash -c -- 'rm -f x'",
            "bash -c -e 'rm -f x'",
            "setpriv --reuid 1 rm -f x",
            "unshare -r rm -f x",
            "/usr/bin/../bin/rm -f x",
            "$\"rm\" -f x",
        ] {
            let reading = read(command);
            let all = || reading.subjects.iter().chain(&reading.reads);
            assert!(all().any(|one| one.starts_with("rm -f x")), "{command}: {reading:?}");
        }
    }

    #[test]
    fn commands_that_only_read_stand_apart_unless_there_is_nothing_else() {
        let check = |command: &str, subjects: &[&str], reads: &[&str]| {
            let reading = read(command);
            assert_eq!(
                (reading.subjects.as_slice(), reading.reads.as_slice()),
                (
                    &subjects.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..],
                    &reads.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..]
                ),
                "{command}"
            );
        };
        check("cd sub && cargo test 2>&1 | tail -5", &["cargo test"], &["cd sub", "tail -5"]);
        check("ls | head", &["ls", "head"], &[]);
        check("cat x > f; make", &["cat x > f", "cat x", "make"], &[]);
        check("make; sort -o f g", &["make", "sort -o f g"], &[]);
        check("make; cat $(rm x)", &["make", "cat $(rm x)", "rm x"], &[]);
        check("make; cat *", &["make", "cat *"], &[]);
    }

    #[test]
    fn redirections_are_opaque_unless_they_change_nothing() {
        check("cargo test 2>&1 | tee", &["cargo test", "tee"], false);
        check("ls >/dev/null 2> /dev/null </dev/null", &["ls"], false);
        check("ls &>/dev/null", &["ls"], false);
        check("ls 2>&-", &["ls"], false);
        check("echo x > canary/f", &["echo x > canary/f", "echo x"], true);
        check("echo x >& f", &["echo x >& f", "echo x"], true);
        check("rm >log -rf x", &["rm -rf x > log", "rm -rf x"], true);
        check("> f", &["> f"], true);
        check("cat <<< x", &["cat <<< x", "cat"], true);
        check("echo 2 >&1", &["echo 2"], false);
    }

    #[track_caller]
    fn finds(command: &str, subject: &str) {
        let reading = read(command);
        assert!(reading.subjects.iter().any(|found| found.starts_with(subject)), "{command}: {reading:?}");
        assert_eq!(reading.plain.filter(|words| words[0] == "ls"), None, "{command}");
    }

    #[test]
    fn a_command_is_found_however_it_is_spelled() {
        for command in [
            "r''m -rf x",
            "\"rm\" -rf x",
            "\\rm -rf x",
            "$'\\x72\\155' -rf x",
            "'\"'; $'\\x72m' -rf x",
            "/bin/rm -rf x",
            "X=1 rm -rf x",
            "env rm -rf x",
            "env -i A=b /usr/bin/rm -rf x",
            "env -S 'rm -rf x'",
            "nohup rm -rf x",
            "sudo -u root -E rm -rf x",
            "sudo --user root rm -rf x",
            "nice -n 5 timeout -k 1 5s rm -rf x",
            "command rm -rf x",
            "ls | xargs -n 1 rm -rf x",
            "find . -name '*.o' -exec rm -rf x {} +",
            "echo \"$(rm -rf x)\"",
            "echo `rm -rf x`",
            "echo ${A:-$(rm -rf x)}",
            "ls <(rm -rf x)",
            "bash -c 'rm -rf x'",
            "bash -lc \"cd a && rm -rf x\"",
            "eval rm -rf x",
            "trap 'rm -rf x' EXIT",
            "(cd a; rm -rf x)",
            "{ rm -rf x; }",
            "{rm,-rf,x}",
            "! rm -rf x",
            "if true; then rm -rf x; fi",
            "for i in 1; do rm -rf x; done",
            "ls\nrm -rf x",
            "ls & rm -rf x",
            "cat <<E\nit's\nE\nrm -rf x",
            "bash <<E\nrm -rf x\nE",
            "ls # it's\nrm -rf x",
            "ls 2>&1 && rm -rf x",
        ] {
            finds(command, "rm -rf x");
        }
    }

    #[test]
    fn what_the_text_does_not_tell_is_opaque() {
        for command in [
            "$X -rf x",
            "ls $HOME",
            "ls \"$HOME\"",
            "X=1 make",
            "(ls)",
            "/bin/r?",
            "eval ls",
            "source f",
            "bash -c ls",
            "ls | xargs touch",
            "echo 'open",
            "cat <<E\nE",
            "ls >",
        ] {
            assert!(read(command).opaque, "{command}");
        }
        for command in ["ls *.rs", "ls {a,b}", "ls ~/x", "echo '$HOME `x`'", "echo \"a \\$ b\"", "ls | wc -l"]
        {
            assert!(!read(command).opaque, "{command}");
        }
    }

    #[test]
    fn only_one_call_without_any_operator_is_plain() {
        for command in [
            "ls;",
            "ls &",
            "ls|wc",
            "ls>f",
            "ls $X",
            "ls `x`",
            "ls \\a",
            "ls\nls",
            "{ ls",
            "ls *",
            "ls ?",
            "ls [a]",
            "ls ~",
            "! ls",
            "ls a=~",
            "ls #x",
            "X=1 ls",
            "ls 2>&1",
            "ls \"$X\"",
            "ls \"a\\\"b\"",
            "ls 'a",
            "ls\u{a0}x",
            "ls \u{2003}",
            "ls '\n'",
            "",
            "ls \u{200b}x",
            "ls $'a'",
            "ls (",
            "ls\r",
        ] {
            assert_eq!(read(command).plain, None, "{command:?}");
        }
        assert_eq!(
            read("git log -3 --format='%h; $x'").plain.unwrap(),
            ["git", "log", "-3", "--format=%h; $x"]
        );
        assert_eq!(read(" l\"s\" \"a b\" ü ").plain.unwrap(), ["ls", "a b", "ü"]);
        assert_eq!(read("grep -E 'a|b' f").plain.unwrap(), ["grep", "-E", "a|b", "f"]);
    }

    proptest! {
        #[test]
        fn any_text_is_read(command in "[ a$'\"`(){}<>&|;\\\\\n#=-]{0,40}|\\PC{0,40}") {
            prop_assert!(!read(&command).subjects.is_empty());
        }
    }
}
