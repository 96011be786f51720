//! What a command line says before a shell runs it: its simple commands, and whether more than they tell can happen.
//! Pure, and on the safe side: what is not understood for certain is opaque.

/// A command line, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// The words of each simple command, quotes taken off.
    pub(crate) commands: Vec<Vec<String>>,
    /// Something can happen that the words do not tell: substitutions, redirections, assignments, compound commands.
    pub(crate) is_opaque: bool,
    /// One simple command without any shell operator or expansion.
    pub(crate) is_plain: bool,
    /// Scripts within substitutions.
    inner: Vec<String>,
}

/// First words that begin compound commands or change what the words after them mean.
const KEYWORDS: &[&str] = &[
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "select",
    "function", "{", "}", "[[", "!", "time", "coproc", "eval", "source", ".", "trap", "alias", "exec", "set",
    "shopt", "enable",
];
/// Programs that run the command in their arguments.
const WRAPPERS: &[&str] = &[
    "sudo", "doas", "env", "nohup", "nice", "ionice", "time", "timeout", "xargs", "command", "builtin",
    "exec", "eval", "setsid", "stdbuf", "unbuffer", "watch", "chroot", "parallel", "busybox", "then", "do",
    "else", "!", "{",
];
/// Programs that run a script given in an argument.
const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "su", "eval", "ssh", "trap"];

/// Takes a command line apart.
pub(crate) fn parse(command: &str) -> Line {
    let mut lexer =
        Lexer { rest: command, line: Line { is_plain: true, ..Line::default() }, ..Lexer::default() };
    lexer.run();
    let mut line = lexer.line;
    let first = |words: &Vec<String>| words.first().cloned().unwrap_or_default();
    line.is_opaque |= line.commands.iter().any(|words| KEYWORDS.contains(&first(words).as_str()));
    line.is_plain &= !line.is_opaque && line.commands.len() == 1;
    line
}

/// The commands that this line runs within others: behind `sudo` or `env`, in `sh -c '…'`, in substitutions.
pub(crate) fn hidden(line: &Line) -> Vec<String> {
    let mut found = vec![];
    dig(line, 0, &mut found);
    found
}

fn dig(line: &Line, depth: usize, found: &mut Vec<String>) {
    // Deeper nesting than this is nothing that a rule could be meant for.
    if depth > 4 {
        return;
    }
    for script in &line.inner {
        let inner = parse(script);
        found.extend(inner.commands.iter().map(|words| words.join(" ")));
        dig(&inner, depth + 1, found);
    }
    for words in &line.commands {
        let Some(program) = words.first().map(|word| base(word)) else { continue };
        if program != words[0] {
            found.push([&[program.to_owned()], &words[1..]].concat().join(" "));
        }
        if WRAPPERS.contains(&program) || words[0].contains('=') {
            // Which argument is the command depends on the wrapper's options: each of them may be.
            found.extend((1..words.len()).map(|at| words[at..].join(" ")));
        }
        if SHELLS.contains(&program) {
            for script in words.iter().skip(1).filter(|word| word.contains(' ')) {
                let inner = parse(script);
                found.extend(inner.commands.iter().map(|words| words.join(" ")));
                dig(&inner, depth + 1, found);
            }
        }
    }
}

/// The program without its folder.
fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

#[derive(Default)]
struct Lexer<'a> {
    rest: &'a str,
    line: Line,
    words: Vec<String>,
    /// The word so far; `None` between words.
    word: Option<String>,
}

impl Lexer<'_> {
    fn run(&mut self) {
        while let Some(c) = self.next() {
            match c {
                ' ' | '\t' => self.end_word(),
                '\n' | ';' | '|' => self.end_command(),
                '&' if self.rest.starts_with('>') => self.line.is_plain = false,
                '&' => self.end_command(),
                '\'' => self.single(),
                '"' => self.double(),
                '\\' => self.escape(),
                '>' | '<' => self.redirect(c),
                '#' if self.word.is_none() => self.comment(),
                _ => self.other(c),
            }
        }
        let is_plain = self.line.is_plain;
        self.end_command();
        // The end of the text is no operator.
        self.line.is_plain = is_plain;
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take());
    }

    fn end_command(&mut self) {
        self.end_word();
        self.line.is_plain = false;
        if !self.words.is_empty() {
            self.line.commands.push(std::mem::take(&mut self.words));
        }
    }

    fn opaque(&mut self) {
        self.line.is_opaque = true;
        self.line.is_plain = false;
    }

    fn other(&mut self, c: char) {
        let is_first_word = self.words.is_empty();
        match c {
            '$' | '`' => self.substitution(c),
            '(' | ')' | '{' | '}' => self.opaque(),
            '*' | '?' | '[' | '~' | '!' | '#' => {
                self.line.is_plain = false;
                self.line.is_opaque |= is_first_word;
            }
            '=' if is_first_word => self.opaque(),
            // What looks like a blank and is none, or is not seen at all, hides what a person would read.
            c if c.is_control() || (c.is_whitespace() && !c.is_ascii()) => self.opaque(),
            _ => {}
        }
        self.push(c);
    }

    fn single(&mut self) {
        self.word.get_or_insert_default();
        loop {
            match self.next() {
                Some('\'') => return,
                Some(c) => self.push(c),
                None => return self.opaque(),
            }
        }
    }

    fn double(&mut self) {
        self.word.get_or_insert_default();
        loop {
            match self.next() {
                Some('"') => return,
                Some(c @ ('$' | '`')) => {
                    self.substitution(c);
                    self.push(c);
                }
                Some('\\') => self.escape(),
                Some(c) => self.push(c),
                None => return self.opaque(),
            }
        }
    }

    fn escape(&mut self) {
        self.line.is_plain = false;
        match self.next() {
            Some('\n') => {}
            Some(c) => self.push(c),
            None => self.opaque(),
        }
    }

    fn comment(&mut self) {
        self.line.is_plain = false;
        self.rest = self.rest.find('\n').map_or("", |at| &self.rest[at..]);
    }

    /// Notes the script within `$(…)` or backticks. Its words stay part of the outer word.
    fn substitution(&mut self, c: char) {
        self.opaque();
        let body = match c {
            '`' => self.rest.split('`').next(),
            _ => self.rest.strip_prefix('(').map(closed),
        };
        self.line.inner.extend(body.map(str::to_owned));
    }

    /// A redirection is opaque, since it can write any file, unless it only joins streams or discards them.
    fn redirect(&mut self, c: char) {
        self.line.is_plain = false;
        if self.word.as_ref().is_some_and(|word| word.chars().all(|c| c.is_ascii_digit())) {
            self.word = None;
        }
        self.end_word();
        if let Some(script) = self.rest.strip_prefix('(') {
            self.line.inner.push(closed(script).to_owned());
            return self.opaque();
        }
        if c == '<' {
            return self.opaque();
        }
        let rest = self.rest.strip_prefix('>').unwrap_or(self.rest);
        let target = rest.trim_start_matches([' ', '\t']);
        let end = target.find([' ', '\t', '\n', ';', '|', '&', ')']).filter(|end| *end > 0);
        let joins = rest
            .strip_prefix('&')
            .map(|fd| fd.len() - fd.trim_start_matches(|c: char| c.is_ascii_digit()).len());
        match joins {
            Some(digits) if digits > 0 => self.rest = &rest[1 + digits..],
            _ if &target[..end.unwrap_or(target.len())] == "/dev/null" => {
                self.rest = &target["/dev/null".len()..]
            }
            _ => self.opaque(),
        }
    }
}

/// The text before the parenthesis that closes the one in front of it.
fn closed(text: &str) -> &str {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
    }
    text
}

/// Whether this is a call of a program that is known to change nothing, with options that are known to change nothing.
pub(crate) fn is_read_only(line: &Line) -> bool {
    let [words] = line.commands.as_slice() else { return false };
    let Some((program, arguments)) = words.split_first() else { return false };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let has_none = |bad: &[&str]| !arguments.iter().any(|word| bad.iter().any(|bad| begins(word, bad)));
    line.is_plain
        && match program.as_str() {
            "ls" | "cat" | "head" | "tail" | "wc" | "pwd" | "stat" | "du" | "df" | "which" | "uname"
            | "whoami" | "id" | "basename" | "dirname" | "realpath" | "readlink" | "cmp" | "true"
            | "false" | "nproc" | "cut" | "nl" | "echo" | "printf" | "md5sum" | "sha1sum" | "sha256sum"
            | "column" | "strings" | "arch" | "seq" => has_none(&["--files0-from"]),
            "file" => has_none(&["-C", "--compile"]),
            "grep" | "egrep" | "fgrep" => true,
            "diff" => has_none(&["--to-file", "--output"]),
            "date" => arguments
                .iter()
                .all(|word| word.starts_with('+') || matches!(*word, "-u" | "--utc" | "-I" | "-R")),
            "rg" => has_none(&["--pre", "--hostname-bin", "-z", "--search-zip"]),
            "tree" => has_none(&["-o", "-R", "--output"]),
            "sort" => {
                has_none(&[
                    "-o",
                    "--output",
                    "--compress-program",
                    "-T",
                    "--temporary-directory",
                    "--files0-from",
                ]) && !bundled(&arguments, 'o')
            }
            "uniq" => arguments.iter().filter(|word| !word.starts_with('-')).count() <= 1,
            "find" => arguments.iter().all(|word| !FIND_ACTS.iter().any(|act| word.starts_with(act))),
            "git" => is_read_only_git(&arguments),
            "cargo" | "rustc" | "node" | "python3" | "python" | "go" | "npm" | "make" | "gcc" => {
                matches!(arguments.as_slice(), ["--version"] | ["-V"])
                    || (program == "go" && arguments == ["version"])
            }
            _ => false,
        }
}

const FIND_ACTS: &[&str] = &["-exec", "-ok", "-delete", "-fprint", "-fls", "-files0-from"];

/// Whether a word is this option: long ones also by an abbreviation or with a value behind `=`.
fn begins(word: &str, option: &str) -> bool {
    if word.starts_with("--") && option.starts_with("--") {
        let name = word.split('=').next().unwrap_or(word);
        return name.len() > 2 && (option.starts_with(name) || name == option);
    }
    !option.starts_with("--") && !word.starts_with("--") && word.starts_with(option)
}

/// Whether a bundle of short options, such as `-uo`, holds this one.
fn bundled(arguments: &[&str], option: char) -> bool {
    arguments.iter().any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains(option))
}

/// Of git only subcommands and options that run nothing, write nothing and take no configuration from the line.
fn is_read_only_git(arguments: &[&str]) -> bool {
    let arguments = arguments.strip_prefix(&["--no-pager"]).unwrap_or(arguments);
    let Some((subcommand, rest)) = arguments.split_first() else { return false };
    let bad =
        ["--output", "--ext-diff", "--textconv", "--open-files-in-pager", "-O", "--exec", "--upload-pack"];
    if rest.iter().any(|word| bad.iter().any(|bad| begins(word, bad))) {
        return false;
    }
    let only = |known: &[&str]| rest.iter().all(|word| known.contains(word));
    match *subcommand {
        "status" | "log" | "diff" | "show" | "blame" | "rev-parse" | "ls-files" | "ls-tree" | "describe"
        | "shortlog" | "rev-list" | "merge-base" | "cat-file" | "name-rev" => true,
        "branch" => only(&["-a", "-r", "-v", "-vv", "--list", "--all", "--remotes", "--show-current"]),
        "remote" => only(&["-v", "--verbose"]),
        "tag" => only(&["-l", "--list"]),
        "stash" => rest.first() == Some(&"list"),
        _ => false,
    }
}

/// What the answer "a" grants for a line: all commands that begin alike when that can be said in a few words and is
/// harmless enough, else this very text.
pub(crate) fn class(command: &str, line: &Line) -> String {
    if line.is_plain
        && let [words] = line.commands.as_slice()
    {
        let is_name =
            |word: &&String| word.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        let names: Vec<&str> = words
            .iter()
            .take_while(|word| !word.starts_with('-'))
            .take(2)
            .filter(is_name)
            .map(String::as_str)
            .collect();
        if let [program, subcommand] = names.as_slice()
            && GROUPED.contains(program)
            && !PUBLISHING.contains(subcommand)
        {
            return format!(
                "bash commands that begin with `{program} {subcommand}` and hold no shell operator"
            );
        }
    }
    format!("exactly this bash command: {}", visible(command))
}

/// Programs whose subcommand tells what a call is about.
const GROUPED: &[&str] = &[
    "cargo", "git", "npm", "pnpm", "yarn", "go", "make", "just", "pip", "uv", "poetry", "mvn", "gradle",
    "dotnet", "bundle", "mix", "stack", "cabal", "zig", "swift", "rustup", "deno", "bun", "cmake", "ninja",
    "meson", "bazel",
];
/// Subcommands that reach other people, lose work or run anything: each call of these is its own class.
const PUBLISHING: &[&str] = &[
    "push",
    "publish",
    "reset",
    "clean",
    "rm",
    "exec",
    "x",
    "dlx",
    "config",
    "rebase",
    "checkout",
    "restore",
    "stash",
    "branch",
    "tag",
    "remote",
    "filter-branch",
    "worktree",
    "submodule",
    "bisect",
    "unpublish",
    "login",
    "owner",
    "yank",
    "install",
];

fn visible(command: &str) -> String {
    command
        .chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &str, commands: &[&str], is_opaque: bool, is_plain: bool) {
        let line = parse(command);
        let got: Vec<String> = line.commands.iter().map(|words| words.join(" ")).collect();
        assert_eq!(
            (got.as_slice(), line.is_opaque, line.is_plain),
            (&commands.iter().map(|c| (*c).to_owned()).collect::<Vec<_>>()[..], is_opaque, is_plain),
            "{command}"
        );
    }

    #[test]
    fn a_line_is_taken_apart_as_a_shell_would() {
        check("cargo test -q", &["cargo test -q"], false, true);
        check("  ls   'a b'  \"c\" ", &["ls a b c"], false, true);
        check("a && b || c; d | e & f\ng", &["a", "b", "c", "d", "e", "f", "g"], false, false);
        check("make 2>&1 | tail -5", &["make", "tail -5"], false, false);
        check("make >/dev/null 2>/dev/null", &["make"], false, false);
        check("make &>/dev/null", &["make"], false, false);
        check("echo 'a;b|c' \"d && e\"", &["echo a;b|c d && e"], false, true);
        check("r\\m -rf x", &["rm -rf x"], false, false);
        check("'rm' x", &["rm x"], false, true);
        check("ls *.rs", &["ls *.rs"], false, false);
        check("ls # rm x", &["ls"], false, false);
        check("", &[], false, false);
    }

    #[test]
    fn what_the_words_do_not_tell_is_opaque() {
        for command in [
            "echo $(rm x)",
            "echo `rm x`",
            "echo \"$(rm x)\"",
            "ls <(rm x)",
            "cat <<EOF\nx\nEOF",
            "echo x > f",
            "echo x >> f",
            "echo x >&f",
            "X=1 make",
            "(rm x)",
            "{ rm x; }",
            "{rm,-rf,x}",
            "/bin/r? x",
            "eval x",
            "if true; then rm x; fi",
            "! rm x",
            "echo 'unterminated",
            "echo \"unterminated",
            "echo \\",
            "ls\u{a0}x",
            "ls \u{1b}[K",
            "ls\rx",
            "echo $x",
            "~/x",
            "time rm x",
            "echo x >| f",
            "echo x > /dev/nullx",
            "cmd < file",
        ] {
            let line = parse(command);
            assert!(line.is_opaque && !line.is_plain, "{command}: {line:?}");
        }
    }

    #[test]
    fn commands_within_commands_are_found() {
        for (command, expected) in [
            ("sudo -n rm -rf x", "rm -rf x"),
            ("env A=1 rm x", "rm x"),
            ("find . | xargs rm", "rm"),
            ("sh -c 'cd /; rm x'", "rm x"),
            ("echo $(rm x)", "rm x"),
            ("echo \"`rm x`\"", "rm x"),
            ("ls <(rm x)", "rm x"),
            ("/bin/rm x", "rm x"),
            ("bash -c \"sh -c 'rm x'\"", "rm x"),
            ("A=1 rm x", "rm x"),
            ("if true; then rm x; fi", "rm x"),
        ] {
            let found = hidden(&parse(command));
            assert!(found.iter().any(|found| found == expected), "{command}: {found:?}");
        }
        assert!(hidden(&parse("grep rm file")).is_empty());
    }

    #[test]
    fn plain_calls_of_known_programs_only_read() {
        for command in [
            "ls -la",
            "git status --short",
            "git log -3",
            "cat f",
            "git --no-pager diff HEAD",
            "git branch -a",
            "git remote -v",
            "find . -name x",
            "rg needle src",
            "sort f",
            "grep -rn x .",
            "date +%F",
            "cargo --version",
            "head -n 5 'a b'",
        ] {
            assert!(is_read_only(&parse(command)), "{command}");
        }
    }

    #[test]
    fn everything_else_is_asked() {
        for command in [
            "rm x",
            "echo hi\nrm x",
            "echo x > f",
            "ls & rm x",
            "ls <(rm x)",
            "env rm x",
            "nohup rm x",
            "git branch -D main",
            "git branch x",
            "git tag v1",
            "git tag -d v1",
            "git remote set-url origin x",
            "git -c core.pager=x log",
            "git diff --output=f",
            "git diff --outp=f",
            "git diff --ext-diff",
            "git grep -Orm x",
            "git log --output f",
            "sort -o f g",
            "sort -uo f g",
            "sort --output=f g",
            "sort --outp=f",
            "find . -delete",
            "find . -exec rm {} +",
            "find . -fprintf f x",
            "find . -fls f",
            "rg --pre rm x",
            "tree -o f",
            "uniq a b",
            "date -s x",
            "date 01010101",
            "git stash",
            "git",
            "git push",
            "file -C -m x",
            "cargo build",
            "sed -n p f",
            "awk x",
            "xargs rm",
            "cat f; rm x",
            "ls ~",
            "ls *",
            "ls\nrm x",
            "git config x y",
            "python3 -c x",
            "ls $(rm x)",
            "ls \\\nrm",
            "./ls",
            "git fetch",
            "git log --textconv",
            "git -C x status",
        ] {
            assert!(!is_read_only(&parse(command)), "{command}");
        }
    }

    #[test]
    fn a_grant_is_narrow() {
        let class = |command: &str| class(command, &parse(command));
        assert_eq!(class("cargo test -q"), class("cargo test --all"));
        assert_ne!(class("cargo test"), class("cargo run"));
        assert_eq!(
            class("cargo test"),
            "bash commands that begin with `cargo test` and hold no shell operator"
        );
        for command in [
            "rm -rf x",
            "git push",
            "python3 -c x",
            "cargo test && rm x",
            "cargo test > f",
            "git status && rm -rf ./tmp1",
            "npm exec x",
        ] {
            assert!(class(command).starts_with("exactly this bash command: "), "{command}");
        }
        assert!(!class("rm \u{1b}[K x").contains('\u{1b}'));
    }
}
