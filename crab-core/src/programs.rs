//! Programs by what they can do: those that only read, and those too strong to be allowed by their name.

use std::path::Path;

/// Whether this call changes nothing and runs nothing else. In doubt it does not: then a person is asked.
///
/// Git's own configuration can name programs (`diff.external`, `textconv`), which a call's text does not show; that it
/// comes from the user or from a change that was asked for is the limit of this seatbelt.
pub(crate) fn only_reads(words: &[String]) -> bool {
    let Some((program, arguments)) = words.split_first() else { return false };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let arguments = arguments.as_slice();
    match program.as_str() {
        "ls" | "cat" | "head" | "tail" | "wc" | "pwd" | "echo" | "stat" | "du" | "df" | "which"
        | "whoami" | "id" | "groups" | "grep" | "egrep" | "fgrep" | "cmp" | "basename" | "dirname"
        | "realpath" | "readlink" | "true" | "false" | "type" | "nl" | "cut" | "tac" | "rev" | "md5sum"
        | "sha1sum" | "sha256sum" | "cksum" | "seq" => true,
        "diff" => !any_short(arguments, "l") && !any_long(arguments, &["--paginate"]),
        "uname" | "nproc" => arguments.iter().all(|argument| argument.starts_with('-')),
        "file" => arguments.iter().all(|argument| {
            !argument.starts_with('-')
                || ["-b", "-i", "-L", "-h", "--mime", "--mime-type", "--brief"].contains(argument)
        }),
        "date" => arguments.iter().all(|argument| {
            ["-u", "--utc", "-R"].contains(argument)
                || argument.starts_with(['+'])
                || argument.starts_with("-I")
        }),
        "rg" => {
            !any_short(arguments, "z") && !any_long(arguments, &["--pre", "--hostname-bin", "--search-zip"])
        }
        "find" => !arguments.iter().any(|argument| {
            ["-exec", "-ok", "-delete", "-fprint", "-fls"].iter().any(|action| argument.starts_with(action))
        }),
        "sort" => {
            !any_short(arguments, "oT")
                && !any_long(arguments, &["--output", "--compress-program", "--temporary-directory"])
        }
        "uniq" => {
            arguments.iter().filter(|argument| !argument.starts_with('-') || **argument == "-").count() <= 1
                && !arguments.contains(&"--")
        }
        "tree" => !any_short(arguments, "oR") && !any_long(arguments, &["--output"]),
        "git" => git_only_reads(arguments),
        _ => false,
    }
}

/// Whether a format has `%G…`, also with one of the marks that may stand between.
fn asks_for_signature(argument: &str) -> bool {
    argument.split('%').skip(1).any(|rest| rest.trim_start_matches(['+', '-', ' ']).starts_with('G'))
}

fn git_only_reads(arguments: &[&str]) -> bool {
    let arguments = arguments.strip_prefix(&["--no-pager"]).unwrap_or(arguments);
    let Some((command, arguments)) = arguments.split_first() else { return false };
    let all_in = |known: &[&str]| arguments.iter().all(|argument| known.contains(argument));
    match *command {
        "status" | "log" | "diff" | "show" | "blame" | "rev-parse" | "ls-files" | "describe" => {
            let runs = [
                "--output",
                "--ext-diff",
                "--textconv",
                "--show-signature",
                "--exec-path",
                "--open-files-in-pager",
            ];
            // A format can ask for a signature's check, which runs another program.
            !any_long(arguments, &runs)
                && !arguments
                    .iter()
                    .any(|argument| asks_for_signature(argument) || argument.starts_with("-O"))
        }
        "branch" => all_in(&[
            "-a",
            "-r",
            "-v",
            "-vv",
            "-av",
            "-avv",
            "-rv",
            "--all",
            "--remotes",
            "--verbose",
            "--list",
            "--show-current",
            "--no-color",
        ]),
        "remote" => all_in(&["-v", "--verbose"]),
        "tag" => match arguments {
            [] => true,
            ["-l" | "--list", patterns @ ..] => patterns.iter().all(|pattern| !pattern.starts_with('-')),
            _ => false,
        },
        "stash" => arguments == ["list"],
        "--version" | "version" => arguments.is_empty(),
        _ => false,
    }
}

/// Whether a cluster of short options may hold one of `letters`.
fn any_short(arguments: &[&str], letters: &str) -> bool {
    let clusters =
        arguments.iter().filter(|argument| argument.starts_with('-') && !argument.starts_with("--"));
    clusters.flat_map(|cluster| cluster.chars()).any(|letter| letters.contains(letter))
}

/// Whether one of the long `options` is named, in full, shortened, or as the start of a longer name.
fn any_long(arguments: &[&str], options: &[&str]) -> bool {
    let names = arguments.iter().map(|argument| argument.split('=').next().unwrap_or(argument));
    let mut names = names.filter(|name| name.len() > 2 && name.starts_with("--") && *name != "--text");
    names.any(|name| options.iter().any(|option| option.starts_with(name) || name.starts_with(option)))
}

/// Folders that every search path has: a program there is the one that its bare name means.
const BIN: [&str; 6] = ["/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/opt/homebrew/bin"];
/// Programs whose name says too little about what a call does: interpreters, wrappers, what destroys or reaches out.
const STRONG: &[&str] = &[
    "rm",
    "rmdir",
    "mv",
    "cp",
    "dd",
    "ln",
    "install",
    "truncate",
    "shred",
    "tee",
    "chmod",
    "chown",
    "chgrp",
    "kill",
    "pkill",
    "killall",
    "sudo",
    "doas",
    "su",
    "curl",
    "wget",
    "ssh",
    "scp",
    "sftp",
    "rsync",
    "nc",
    "ncat",
    "socat",
    "telnet",
    "python",
    "python3",
    "python2",
    "node",
    "deno",
    "bun",
    "ruby",
    "perl",
    "php",
    "lua",
    "awk",
    "gawk",
    "mawk",
    "sed",
    "osascript",
    "sh",
    "bash",
    "zsh",
    "dash",
    "ksh",
    "fish",
    "env",
    "xargs",
    "find",
    "fd",
    "nohup",
    "timeout",
    "nice",
    "ionice",
    "time",
    "watch",
    "parallel",
    "command",
    "builtin",
    "exec",
    "eval",
    "source",
    ".",
    "trap",
    "alias",
    "setsid",
    "stdbuf",
    "strace",
    "chroot",
    "docker",
    "podman",
    "kubectl",
    "helm",
    "terraform",
    "aws",
    "gcloud",
    "az",
    "gh",
    "npx",
    "bunx",
    "uvx",
    "pipx",
    "systemctl",
    "service",
    "crontab",
    "at",
    "busybox",
    "flock",
    "script",
    "vim",
    "vi",
    "ed",
    "ex",
    "emacs",
    "tar",
    "unzip",
    "zip",
    "mkfs",
    "mount",
    "umount",
    "reboot",
    "shutdown",
    "halt",
    "poweroff",
    "export",
    "declare",
    "set",
    "unset",
    "enable",
    "hash",
    "cd",
];
/// Git's commands that throw nothing away and reach nobody.
const MILD_GIT: [&str; 8] = ["add", "commit", "log", "diff", "show", "blame", "status", "fetch"];
/// Second words that hand over to another program.
const HANDS_OVER: [&str; 7] = ["exec", "run", "x", "dlx", "eval", "start", "shell"];

/// The first words that name the kind of this call, when they say enough: `cargo test`.
pub(crate) fn kind_of(words: &[String]) -> Option<String> {
    let [program, second, ..] = words else { return None };
    let name = program.rsplit('/').next().unwrap_or(program);
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic())
            && word.chars().all(|c| c.is_ascii_alphabetic() || c == '-')
    };
    let is_strong = STRONG.contains(&name)
        || ["python", "mkfs", "perl", "ruby", "node"].iter().any(|strong| name.starts_with(strong))
        || (name == "git" && !MILD_GIT.contains(&second.as_str()))
        || HANDS_OVER.contains(&second.as_str());
    let is_named = program.chars().all(|c| c.is_ascii_alphanumeric() || "-_./+".contains(c));
    (!is_strong && is_named && is_word(second)).then(|| format!("{program} {second}"))
}

/// The name of a program that is written with its usual folder, by whatever way: `/usr/bin/../bin/rm`. A program that
/// lies elsewhere is another one, even when it has the same name.
pub(crate) fn bare_name(program: &str) -> Option<&str> {
    let name = program.strip_prefix('/')?.rsplit('/').next()?;
    let path = crate::paths::clean(Path::new(program));
    BIN.iter().any(|folder| path == Path::new(folder).join(name)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &str, expected: bool) {
        let words = crate::shell::read(command).plain;
        assert_eq!(words.is_some_and(|words| only_reads(&words)), expected, "{command}");
    }

    #[test]
    fn real_reads_are_known() {
        for command in [
            "ls -la",
            "git status --short",
            "git log -3",
            "cat f",
            "git --no-pager diff --stat HEAD~1",
            "git branch -a",
            "git remote -v",
            "git tag",
            "git tag -l 'v*'",
            "git log --oneline --text",
            "rg -n foo src",
            "find . -name '*.rs'",
            "sort -u f",
            "uniq -c f",
            "date -u +%F",
            "file -b x",
            "head -n 5 f",
            "grep -rn --include=x foo .",
            "tree -L 2",
            "git show HEAD --stat",
            "git stash list",
            "echo 'a; b'",
            "diff -u a b",
            "pwd",
        ] {
            check(command, true);
        }
    }

    #[test]
    fn whatever_can_write_or_run_is_not_a_read() {
        for command in [
            "git branch -D main",
            "git branch new",
            "git tag -d v1",
            "git tag v2",
            "git tag -l -d v1",
            "git remote set-url origin x",
            "git -c core.pager=x log",
            "git -C x status",
            "git log --output=f",
            "git diff --outp f",
            "git diff --ext-diff",
            "git show --textc",
            "git log --show-signature",
            "git log --format=%G?",
            "git log --pretty=format:%+GS",
            "git log --format=%-GG",
            "git log '--format=% G?'",
            "git grep -Ox y",
            "git push",
            "git stash",
            "git --exec-path=x status",
            "find canary -delete",
            "find . -exec rm x",
            "find . -fprintf f x",
            "find . -okdir x",
            "find . -'delete'",
            "sort -o f f",
            "sort -uof f",
            "sort --outp=f f",
            "sort --compress-program=x f",
            "uniq a b",
            "uniq -- -a -b",
            "rg --pre x y",
            "rg --pre=x y",
            "rg --hostname-bin=x y",
            "rg -nz y",
            "date -s x",
            "date 01010101",
            "date --set=x",
            "env ls",
            "printenv",
            "xargs ls",
            "tree -o f",
            "file -C -m x",
            "uname x",
            "sed -n 1p f",
            "awk 1 f",
            "/bin/ls",
            "./ls",
            "ls; ls",
            "cat f > g",
            "sudo ls",
            "time ls",
            "command ls",
            "diff -l a b",
        ] {
            check(command, false);
        }
    }

    #[track_caller]
    fn kind(command: &str, expected: Option<&str>) {
        let words = crate::shell::read(command).plain.unwrap();
        assert_eq!(kind_of(&words).as_deref(), expected, "{command}");
    }

    #[test]
    fn a_kind_is_named_by_two_words_that_say_enough() {
        kind("cargo test --lib", Some("cargo test"));
        kind("npm install", Some("npm install"));
        kind("git commit -m x", Some("git commit"));
        kind("./build.sh all", Some("./build.sh all"));
        for command in [
            "cargo",
            "make -j4",
            "rm x",
            "/bin/rm x",
            "git push origin",
            "git -C x add",
            "git reset x",
            "python3.12 x",
            "npm run x",
            "sh x",
            "cargo -q test",
            "touch a.txt",
            "cargo run",
            "uv run x",
            "sudo ls",
        ] {
            kind(command, None);
        }
    }
}
