//! Programs that run another one, and where among their arguments its command stands.

use super::join;

/// A program that runs the command behind its own options.
struct Wrapper {
    name: &'static str,
    /// Its short options that have a value.
    values: &'static str,
    /// The one of them whose value is a command line.
    line: char,
    /// How many other words stand before the command.
    positionals: usize,
}

const fn wrapper(name: &'static str, values: &'static str, positionals: usize) -> Wrapper {
    Wrapper { name, values, line: '\0', positionals }
}

const WRAPPERS: &[Wrapper] = &[
    Wrapper { line: 'S', ..wrapper("env", "uCSa", 0) },
    wrapper("sudo", "ugpChrtTUDR", 0),
    wrapper("doas", "uCa", 0),
    wrapper("pkexec", "", 0),
    Wrapper { line: 'c', ..wrapper("su", "cgGsTw", usize::MAX) },
    Wrapper { line: 'c', ..wrapper("runuser", "cugGsTw", usize::MAX) },
    Wrapper { line: 'c', ..wrapper("script", "cIOBTmoE", 1) },
    Wrapper { line: 'c', ..wrapper("flock", "cwE", 1) },
    wrapper("nohup", "", 0),
    wrapper("command", "", 0),
    wrapper("builtin", "", 0),
    wrapper("exec", "a", 0),
    wrapper("time", "fo", 0),
    wrapper("timeout", "ks", 1),
    wrapper("nice", "n", 0),
    wrapper("ionice", "cnpPu", 0),
    wrapper("chrt", "TPD", 1),
    wrapper("taskset", "", 1),
    wrapper("prlimit", "po", 0),
    wrapper("numactl", "CNmip", 0),
    wrapper("setsid", "", 0),
    wrapper("setpriv", "", 0),
    wrapper("unshare", "RwSGl", 0),
    wrapper("nsenter", "tSGW", 0),
    wrapper("chroot", "", 1),
    wrapper("fakeroot", "lsib", 0),
    wrapper("firejail", "", 0),
    wrapper("systemd-run", "HMpuE", 0),
    wrapper("stdbuf", "ioe", 0),
    wrapper("unbuffer", "", 0),
    wrapper("xvfb-run", "efnpsw", 0),
    wrapper("valgrind", "", 0),
    wrapper("strace", "oepsuaEIObPSX", 0),
    wrapper("ltrace", "oepsual", 0),
    wrapper("xargs", "nIPLdEsa", 0),
    wrapper("watch", "n", 0),
    wrapper("parallel", "jIaNLnPSdCE", 0),
    wrapper("busybox", "", 0),
    wrapper("caffeinate", "tw", 0),
];

/// Long options of these programs that surely have no value. Any other one may have it in the next word.
const FLAGS: &[&str] = &[
    "all",
    "all-tasks",
    "append",
    "askpass",
    "background",
    "batch",
    "beep",
    "chgexit",
    "clear-groups",
    "close",
    "collect",
    "color",
    "cpu-list",
    "ctty",
    "debug",
    "dry-run",
    "errexit",
    "exclusive",
    "exec",
    "exit",
    "fifo",
    "flush",
    "foreground",
    "fork",
    "idle",
    "ignore",
    "ignore-environment",
    "init-groups",
    "interactive",
    "ipc",
    "keep-caps",
    "keep-groups",
    "keep-order",
    "login",
    "map-auto",
    "map-current-user",
    "map-root-user",
    "mount",
    "mount-proc",
    "net",
    "no-ask-password",
    "no-block",
    "no-fork",
    "no-new-privs",
    "no-run-if-empty",
    "no-title",
    "no-update",
    "nonblock",
    "non-interactive",
    "null",
    "open-tty",
    "other",
    "pid",
    "pipe",
    "portability",
    "preserve-env",
    "preserve-status",
    "pty",
    "quiet",
    "remain-after-exit",
    "reset-env",
    "reset-timestamp",
    "return",
    "rr",
    "same-dir",
    "scope",
    "set-home",
    "shared",
    "shell",
    "skip-chdir",
    "stdin",
    "uts",
    "verbose",
    "wait",
];

/// Programs that take a command line behind `-c`, else run a file of them.
const SHELLS: &[&str] = &["bash", "sh", "dash", "ash", "zsh", "ksh", "mksh", "fish"];
/// Words of the shell's grammar that stand before a command.
const KEYWORDS: &[&str] =
    &["if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "fi", "done"];
/// Words that may follow the name of a `coproc`.
const COMPOUNDS: &[&str] = &["{", "if", "while", "until", "for", "case", "select", "[["];
/// So many places where a command may begin are looked at, and so many ways to get there.
const MAX_STARTS: usize = 8;
const MAX_WAYS: usize = 32;

/// What a command gives to run.
#[derive(Default)]
pub(super) struct Given<'a> {
    /// Commands as words: more than one where it cannot be told where the command begins.
    pub(super) commands: Vec<&'a [String]>,
    /// Command lines for a shell.
    pub(super) lines: Vec<String>,
    /// It runs what it reads.
    pub(super) runs_input: bool,
    /// This does not tell everything.
    pub(super) opaque: bool,
}

/// What the command of these words gives to run. A program is known by its base name, wherever it lies.
pub(super) fn given<'a>(first: &str, arguments: &'a [String]) -> Given<'a> {
    let program = first.rsplit('/').next().unwrap_or(first);
    if let Some(given) = by_grammar(first, arguments) {
        return given;
    }
    if SHELLS.contains(&program) {
        return shell(arguments);
    }
    if matches!(program, "find" | "fd" | "fdfind") {
        return finder(arguments);
    }
    match WRAPPERS.iter().find(|wrapper| wrapper.name == program) {
        Some(wrapper) => wrapped(wrapper, arguments),
        None => Given::default(),
    }
}

/// Keywords and builtins: no file stands behind them.
fn by_grammar<'a>(word: &str, arguments: &'a [String]) -> Option<Given<'a>> {
    let command = |words: &'a [String]| Given { commands: vec![words], ..Given::default() };
    let opaque = Given { opaque: true, ..Given::default() };
    Some(match word {
        "function" => Given { opaque: true, ..command(arguments.get(1..).unwrap_or_default()) },
        "coproc" if arguments.get(1).is_some_and(|word| COMPOUNDS.contains(&word.as_str())) => {
            command(&arguments[1..])
        }
        "coproc" => command(arguments),
        "eval" | "trap" => {
            let first = arguments.first().cloned();
            Given { lines: std::iter::once(join(arguments)).chain(first).collect(), ..opaque }
        }
        "." | "source" => {
            Given { runs_input: arguments.first().is_some_and(|file| is_input(file)), ..opaque }
        }
        "alias" => opaque,
        // It only says where the program lies.
        "command"
            if arguments
                .first()
                .is_some_and(|first| first.starts_with('-') && first.contains(['v', 'V'])) =>
        {
            Given::default()
        }
        word if KEYWORDS.contains(&word) => command(arguments),
        _ => return None,
    })
}

fn is_input(file: &str) -> bool {
    matches!(file, "-" | "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0")
}

/// A command line behind the options when one of them is `-c`, else a file, else what is read.
fn shell(arguments: &[String]) -> Given<'_> {
    let mut given = Given { opaque: true, ..Given::default() };
    let (mut has_line, mut rest) = (false, arguments);
    while let [option, behind @ ..] = rest {
        if !option.starts_with(['-', '+']) {
            break;
        }
        rest = behind;
        let mut values = 0;
        match option.strip_prefix("--") {
            Some("") => break,
            Some("command") => has_line = true,
            Some("rcfile" | "init-file") => values = 1,
            Some(long) => given.lines.extend(long.strip_prefix("command=").map(str::to_owned)),
            None if option == "-" => break,
            None => {
                has_line |= option.starts_with('-') && option.contains('c');
                given.runs_input |= option.starts_with('-') && option.contains('s');
                values = option.matches(['o', 'O']).count();
            }
        }
        rest = rest.get(values..).unwrap_or_default();
    }
    match rest {
        [line, ..] if has_line => given.lines.push(line.clone()),
        [file, ..] if is_input(file) => given.runs_input = true,
        [_, ..] if !given.runs_input => given.commands.push(rest),
        _ => given.runs_input |= given.lines.is_empty(),
    }
    given
}

/// The commands that `find` and `fd` run for what they find.
fn finder(arguments: &[String]) -> Given<'_> {
    let runs = ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"];
    let options = arguments.iter().enumerate().filter(|(_, word)| runs.contains(&word.as_str()));
    let behind = options.filter_map(|(at, _)| arguments[at + 1..].split(|word| word == ";").next());
    let commands: Vec<_> = behind.collect();
    Given { opaque: !commands.is_empty(), commands, ..Given::default() }
}

fn wrapped<'a>(wrapper: &Wrapper, arguments: &'a [String]) -> Given<'a> {
    let mut given = starts(wrapper, arguments);
    match wrapper.name {
        "xargs" => given.opaque = true,
        // They hand the words to a shell.
        "watch" | "parallel" => {
            given.opaque = true;
            let inputs = given.commands.iter().filter(|words| words[0].starts_with(":::"));
            given.lines = inputs.flat_map(|words| words[1..].to_vec()).collect();
            given.lines.extend(given.commands.iter().map(|words| join(*words)));
        }
        "su" | "runuser" | "script" | "flock" => {
            given.opaque = true;
            given.runs_input = given.lines.is_empty() && wrapper.positionals == usize::MAX;
        }
        _ => {}
    }
    given
}

/// The places where the command may begin: an option that may have a value parts the way in two.
fn starts<'a>(wrapper: &Wrapper, arguments: &'a [String]) -> Given<'a> {
    let mut given = Given::default();
    let names_user = arguments.iter().any(|word| word.starts_with("-u") || word.starts_with("--user"));
    let positionals = if wrapper.name == "runuser" && names_user { 0 } else { wrapper.positionals };
    let mut ways = vec![(arguments, positionals)];
    for tried in 0.. {
        let Some((mut words, mut positionals)) = ways.pop() else { break };
        if given.commands.len() == MAX_STARTS || tried == MAX_WAYS {
            given.opaque = true;
            break;
        }
        let mut is_option = true;
        while let [word, rest @ ..] = words {
            words = rest;
            if is_option && word == "--" {
                is_option = positionals == usize::MAX;
            } else if is_option && let Some(long) = word.strip_prefix("--") {
                let value = wrapper.long(long, rest, &mut given.lines);
                let value = value.filter(|_| positionals != usize::MAX);
                ways.extend(value.map(|behind| (behind, positionals)));
            } else if is_option && word.starts_with('-') {
                words = wrapper.short(&word[1..], rest, &mut given.lines);
            } else if positionals > 0 && !super::lex::is_assignment(word) {
                positionals -= usize::from(positionals != usize::MAX);
            } else {
                given.commands.push(&arguments[arguments.len() - rest.len() - 1..]);
                break;
            }
        }
    }
    given
}

impl Wrapper {
    /// Reads a cluster of short options and gives the words behind it and its value.
    fn short<'a>(&self, cluster: &str, rest: &'a [String], lines: &mut Vec<String>) -> &'a [String] {
        let Some(at) = cluster.find(|letter| self.values.contains(letter)) else { return rest };
        let is_line = cluster[at..].starts_with(self.line);
        let attached = &cluster[at + 1..];
        if attached.is_empty() {
            let (value, behind) = rest.split_at(rest.len().min(1));
            // `env` puts the words behind its line at the line's end.
            lines.extend(value.iter().filter(|_| is_line).map(|line| self.with_rest(line, behind)));
            return behind;
        }
        lines.extend(is_line.then(|| self.with_rest(attached, rest)));
        rest
    }

    /// Reads a long option. Gives the words behind its value when the next word may be that.
    fn long<'a>(&self, option: &str, rest: &'a [String], lines: &mut Vec<String>) -> Option<&'a [String]> {
        let (name, attached) =
            option.split_once('=').map_or((option, None), |(name, text)| (name, Some(text)));
        let lined = match self.line {
            'S' => ["split-string", "split-string"],
            'c' => ["command", "session-command"],
            _ => ["", ""],
        };
        let is_line = !name.is_empty() && lined.iter().any(|long| long.starts_with(name));
        let (next, behind) = rest.split_first().map_or((None, rest), |(next, behind)| (Some(next), behind));
        if let Some(line) = attached.filter(|_| is_line) {
            lines.push(self.with_rest(line, rest));
        } else if let Some(line) = next.filter(|_| is_line && attached.is_none()) {
            lines.push(self.with_rest(line, behind));
        }
        let next = next.filter(|next| !next.starts_with('-'));
        (attached.is_none() && next.is_some() && !FLAGS.contains(&name)).then_some(behind)
    }

    fn with_rest(&self, line: &str, rest: &[String]) -> String {
        if self.line == 'S' {
            format!("{line} {}", join(rest)).trim_end().to_owned()
        } else {
            line.to_owned()
        }
    }
}
