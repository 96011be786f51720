//! What a bash command line would run, as far as its text tells: pure, for the gate's rules.

mod lex;
mod wrappers;

use std::collections::HashSet;

use crate::programs;
use lex::{Line, Simple, is_assignment};

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

/// How deep command lines within command lines are read.
const DEPTH: usize = 7;
/// How many programs may run one another in one simple command.
const CHAIN: usize = 20;
/// The bytes that may be looked at, beside so many times the bytes of the command line, and at most: what is put together
/// to cost more is not read to its end, and is opaque. The system takes no command line of more than 128 KiB anyway.
const EFFORT: usize = 256 << 10;
const EFFORT_PER_BYTE: usize = 16;
const MAX_EFFORT: usize = 4 << 20;

/// Reads a command line.
pub(crate) fn read(command: &str) -> Reading {
    let effort = (EFFORT + EFFORT_PER_BYTE * command.len()).min(MAX_EFFORT);
    let mut reader = Reader { reading: Reading::default(), effort, unwrapped: HashSet::new() };
    reader.line(command, DEPTH);
    let mut reading = reader.reading;
    if reading.subjects.is_empty() {
        reading.subjects = std::mem::take(&mut reading.reads);
    }
    let mut seen = HashSet::new();
    reading.subjects.retain(|subject| seen.insert(subject.clone()));
    reading.reads.retain(|read| seen.insert(read.clone()));
    if reading.subjects.is_empty() {
        reading.subjects.push(command.trim().to_owned());
        reading.opaque = true;
    }
    reading
}

/// Reads command lines, with an end to its efforts.
struct Reader {
    reading: Reading,
    /// Bytes that may still be looked at.
    effort: usize,
    /// The commands of one simple command that were looked into.
    unwrapped: HashSet<String>,
}

/// What a simple command's programs share.
struct Around {
    /// What a here-string gives to read.
    input: Option<String>,
    /// Command lines that were found.
    nested: Vec<String>,
}

impl Reader {
    /// Takes from what may be done; false and opaque when nothing is left.
    fn spend(&mut self, bytes: usize) -> bool {
        // Each step has a price of its own, also when there is little text.
        let left = self.effort.checked_sub(bytes + 64);
        self.reading.opaque |= left.is_none();
        self.effort = left.unwrap_or_default();
        left.is_some()
    }

    fn line(&mut self, command: &str, depth: usize) {
        if depth == 0 || !self.spend(command.len()) {
            self.reading.opaque = true;
            return;
        }
        let mut line = Line::lex(command);
        self.reading.opaque |= line.opaque || line.is_broken;
        if depth == DEPTH {
            self.reading.plain = line.plain();
        }
        for simple in std::mem::take(&mut line.commands) {
            line.nested.extend(self.simple(simple));
        }
        for nested in &line.nested {
            self.line(nested, depth - 1);
        }
        // The text of a here-document can end a quote or begin one: each line is also read by itself.
        if (line.has_document || line.is_broken) && command.contains('\n') {
            command.lines().for_each(|line| self.line(line, depth - 1));
        }
    }

    /// Reads a simple command and gives the command lines within it.
    fn simple(&mut self, simple: Simple) -> Vec<String> {
        let mut around = Around { input: simple.input, nested: Vec::new() };
        let reading = &mut self.reading;
        let written = join(simple.words.iter().map(|word| &word.written));
        if !simple.redirections.is_empty() {
            let whole = format!("{written} {}", simple.redirections.join(" "));
            reading.subjects.push(whole.trim().to_owned());
        }
        let Some(first) = simple.words.first() else { return around.nested };
        reading.opaque |= first.expands;
        let brace = first.written.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        if let Some(words) = brace.filter(|words| words.contains(',')) {
            around.nested.push(words.replace(',', " "));
        }
        let expands = simple.words.iter().any(|word| word.expands);
        let texts: Vec<String> = simple.words.into_iter().map(|word| word.text).collect();
        if simple.redirections.is_empty() && !expands && is_harmless(&texts) {
            reading.reads.extend([written, join(&texts)]);
            return around.nested;
        }
        reading.subjects.push(written);
        self.unwrapped.clear();
        self.unwrap(&texts, &mut around, CHAIN);
        around.nested
    }

    /// Adds the command, and what it runs in turn.
    fn unwrap(&mut self, words: &[String], around: &mut Around, chain: usize) {
        let Some((first, arguments)) = words.split_first() else { return };
        if chain == 0 || !self.spend(words.iter().map(|word| word.len() + 1).sum()) {
            self.reading.opaque = true;
            return;
        }
        let command = join(words);
        if !self.unwrapped.insert(command.clone()) {
            return;
        }
        self.reading.subjects.push(command);
        if let Some(name) = programs::bare_name(first) {
            let bare = std::iter::once(name).chain(arguments.iter().map(String::as_str));
            self.reading.subjects.push(join(bare));
        }
        if is_assignment(first) {
            self.reading.opaque = true;
            return self.unwrap(arguments, around, chain - 1);
        }
        let given = wrappers::given(first, arguments);
        self.reading.opaque |= given.opaque;
        around.nested.extend(given.lines);
        if given.runs_input {
            around.nested.extend(around.input.clone());
        }
        for command in given.commands {
            self.unwrap(command, around, chain - 1);
        }
    }
}

/// Whether a command changes nothing but the folder that those behind it run in.
fn is_harmless(words: &[String]) -> bool {
    words[0] == "cd" || programs::only_reads(words)
}

fn join(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let mut line = String::new();
    for (at, word) in words.into_iter().enumerate() {
        if at > 0 {
            line.push(' ');
        }
        line.push_str(word.as_ref());
    }
    line
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

    /// Whether a rule about a program would see this command line.
    fn names(command: &str, program: &str) -> bool {
        let reading = read(command);
        let mut all = reading.subjects.iter().chain(&reading.reads);
        all.any(|one| one.split(' ').next() == Some(program))
    }

    #[test]
    fn a_rule_sees_a_command_however_it_is_started() {
        for command in [
            "timeout --kill-after 5 60 rm -f x",
            "timeout --kill-after 5 60 /bin/rm -f x",
            "timeout --kill-after 5 60 sh -c 'true; rm -f x'",
            "timeout --signal KILL 5 rm -f x",
            "timeout -k5 60 rm -f x",
            "flock LOCK rm -f x",
            "flock -w 5 LOCK -c 'true; rm -f x'",
            "env -S'rm -f x'",
            "env -S 'bash -c' rm",
            "env -iu X rm -f x",
            "function f { rm -f x; }",
            "function f { /bin/rm -f x; }; f",
            "f() { /bin/rm -f x; }; f",
            "coproc X { rm -f x; }",
            "coproc X { /bin/rm -f x; }",
            "coproc /bin/rm -f x",
            "bash -c -- 'rm -f x'",
            "bash -c -e 'rm -f x'",
            "bash -euo pipefail -c 'true; rm -f x'",
            "bash --rcfile f -c 'rm -f x'",
            "setpriv --reuid 1 rm -f x",
            "setpriv --reuid 1 bash -c 'true; rm -f x'",
            "unshare -r rm -f x",
            "unshare -r /bin/rm -f x",
            "pkexec /bin/rm -f x",
            "nice --adjustment 5 /bin/rm -f x",
            "stdbuf --output L /bin/rm -f x",
            "xargs --max-args 1 /bin/rm -f x",
            "sudo --user root bash -c 'cd a; rm -f x'",
            "runuser -c 'cd a; rm -f x' bob",
            "runuser -u bob -- rm -f x",
            "su -c'rm -f x'",
            "su - bob -c 'true; rm -f x'",
            "su --command='rm -f x'",
            "su --command 'rm -f x'",
            "script -qc'rm -f x' /dev/null",
            "script --command='rm -f x' /dev/null",
            "script /dev/null -c 'rm -f x'",
            "watch -n1 'cd a; rm -f x'",
            "parallel 'cd a; rm -f {}' ::: x",
            "parallel ::: 'rm -f x'",
            "systemd-run --user --unit x rm -f x",
            "fd -x rm",
            "fd . --exec-batch sh -c 'true; rm -f x'",
            "/usr/bin//env rm -f x",
            "/usr/bin/../bin/env rm -f x",
            "/usr/bin/./bash -c 'rm -f x'",
            "/usr/bin/../bin/rm -f x",
            "//bin/rm -f x",
            "$\"rm\" -f x",
            "cat <<E | bash\nbash -c 'true; rm -f x'\nE",
        ] {
            assert!(names(command, "rm"), "{command}: {:?}", read(command));
        }
    }

    #[test]
    fn a_here_string_for_a_shell_is_a_command_line() {
        for shell in
            ["bash", "X=1 bash", "sudo bash -s a", "if bash", "timeout 5 /bin/sh -", "su bob", ". /dev/stdin"]
        {
            for text in ["'true; rm -f x'", "\"true; rm -f x\"", "$'true\\nrm -f x'", "rm"] {
                let command = format!("{shell} <<< {text}");
                assert!(names(&command, "rm"), "{command}: {:?}", read(&command));
            }
        }
        for command in ["cat <<< 'rm x'", "bash run.sh <<< 'rm x'", "bash -c cat <<< 'rm x'"] {
            assert!(!names(command, "rm"), "{command}: {:?}", read(command));
        }
    }

    #[test]
    fn a_rule_does_not_see_a_program_that_is_only_a_word_of_another() {
        for command in [
            "timeout 10 grep -rn rm .",
            "timeout --foreground 10 docker rm x",
            "time grep rm f",
            "find . -name x | xargs grep -l rm",
            "find . -exec grep rm {} \\; -name rm",
            "timeout 60 git rm --cached f",
            "timeout 5 docker rm x",
            "timeout 5 echo rm me",
            "nohup ./serve rm",
            "flock LOCK git commit -c rm",
            "bash run.sh rm",
            "bash -x run.sh rm",
            "sh install.sh 'rm it'",
            "bash -c ls rm",
            "./rm x",
            "tools/rm x",
            "/work/tools/rm x",
            "command -v rm",
            "sudo -u root apt-get install -y rm",
            "sudo apt-get install -y rm",
            "time which rm",
            "timeout 5 man rm",
            "timeout 600 cargo rm",
        ] {
            assert!(!names(command, "rm"), "{command}: {:?}", read(command));
        }
    }

    #[test]
    fn a_command_line_that_would_take_too_long_is_opaque() {
        let many = |count: usize, piece: &str| piece.repeat(count);
        for command in [
            format!("{}ls", many(1_500, "env ")),
            format!("{}x", many(28, "find . -exec ")),
            format!("{}x", many(3_000, "find . -exec env ")),
            format!("sudo {}ls", many(5_000, "--a b ")),
            format!("timeout {}ls", many(5_000, "--a b ")),
            format!("su {}ls", many(5_000, "--a b ")),
            format!("{}ls", many(5_000, "setpriv --a b ")),
            format!("{}ls", many(5_000, "bash -c ")),
            format!("{}x", many(5_000, "watch ")),
            format!("{}x", many(2_000, "parallel watch --a ")),
            format!("{}ls", many(20_000, "$(")),
            format!("bash <<E\n{}E", many(5_000, "watch watch watch x\n")),
        ] {
            assert!(read(&command).opaque, "{}", &command[..40]);
        }
        let names: String = (0..20_000).map(|n| format!(" file{n}.txt")).collect();
        let reading = read(&format!("sudo chmod 644{names}"));
        assert_eq!(reading.subjects.len(), 2);
        assert!(!reading.opaque && reading.subjects[1].starts_with("chmod 644 file0.txt"));
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
