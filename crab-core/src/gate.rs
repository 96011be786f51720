//! What decides whether a call may run: rules, grants and questions. A seatbelt, not a security boundary: it stops
//! accidents of a model that means well, and nothing that is out to get around it.

mod pattern;

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::protocol::{Answer, By, Decision};
use crate::tools::{Access, Kind};
use pattern::Pattern;

/// Proof that the gate let a call pass. Only the gate can make one, so no path runs a tool past it.
#[derive(Debug)]
pub struct Permit(());

#[cfg(test)]
impl Permit {
    /// A permit for a tool's own unit tests.
    pub(crate) fn for_tests() -> Self {
        Self(())
    }
}

/// A permission rule: `tool` or `tool(pattern)`; the tool may be `*`.
///
/// For tools that work on paths the pattern is a glob: `*` stays within a folder, `**` crosses them, a pattern without a
/// slash matches at any depth, and a folder stands for all below it. A pattern that begins with `/` or `~/` is about
/// absolute paths; any other one about paths relative to the working directory. Where it forbids or asks it is about a
/// folder itself as well, about paths relative to the project's root, about whole paths (`**/.ssh/**` is any such folder;
/// `./**` is not) and about the place that its name leads to through links.
/// For everything else `*` alone is special and matches any text; `cargo *` matches a bare `cargo` too.
#[derive(Clone, Debug)]
pub struct Rule {
    said: String,
    tool: String,
    pattern: Option<Pattern>,
}

impl Rule {
    /// Parses `tool` or `tool(pattern)`.
    pub fn parse(said: &str) -> Result<Self, String> {
        let hint = "write it as `tool` or `tool(pattern)`, such as `bash(cargo *)` or `edit(src/**)`";
        let bad = |why: &str| format!("the permission rule `{said}` {why}; {hint}");
        let rule = said.trim();
        let (tool, pattern) = match rule.split_once('(') {
            None => (rule, None),
            Some((tool, rest)) => {
                let pattern = rest.strip_suffix(')').ok_or_else(|| bad("does not end in `)`"))?;
                (tool, Some(pattern.trim()))
            }
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '*');
        if tool.is_empty() || !tool.chars().all(is_name) {
            return Err(bad("does not begin with a tool's name"));
        }
        if pattern == Some("") {
            return Err(bad("has an empty pattern"));
        }
        let pattern = pattern.map(|text| Pattern::new(text).map_err(|why| bad(&why))).transpose()?;
        Ok(Self { said: rule.to_owned(), tool: tool.to_owned(), pattern })
    }

    /// The tool that the rule names; `*` is any.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    fn names(&self, tool: &str) -> bool {
        self.tool == "*" || self.tool == tool
    }

    /// Whether the rule covers the whole call.
    fn covers(&self, tool: &str, access: &Access, roots: &[PathBuf]) -> bool {
        let Some(pattern) = &self.pattern else { return self.names(tool) };
        let matches = |subject: &String| match access.kind {
            Kind::Read | Kind::Write => pattern.covers(subject, roots.first()),
            _ => pattern.fits(subject),
        };
        self.names(tool)
            && !access.opaque
            && !access.subjects.is_empty()
            && access.subjects.iter().all(matches)
    }

    /// Whether the rule concerns any part of the call.
    fn touches(&self, tool: &str, access: &Access, roots: &[PathBuf]) -> bool {
        let Some(pattern) = self.pattern.as_ref().filter(|_| self.names(tool)) else {
            return self.names(tool);
        };
        let mut subjects = access.subjects.iter().chain(&access.reads);
        if !matches!(access.kind, Kind::Read | Kind::Write) {
            return subjects.any(|subject| pattern.fits(subject));
        }
        let aliases = pattern.aliases(roots);
        subjects.any(|subject| pattern.concerns(subject, roots, &aliases))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said)
    }
}

/// Whether an absolute path is kept from searches.
pub type Hidden = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// What the gate says of a call.
#[derive(Debug)]
pub enum Verdict {
    /// It may run.
    Allow(Permit, By),
    /// It may not; the text is for the model.
    Deny(String),
    /// The user decides; the text says why it is asked.
    Ask(String),
}

/// The answer to a question, carried out.
#[derive(Debug)]
pub struct Ruling {
    /// What was decided.
    pub decision: Decision,
    /// Who decided.
    pub by: By,
    /// The permit, or the text for the model.
    pub outcome: Result<Permit, String>,
}

/// Rules in force and what the user granted in this session.
#[derive(Debug, Default)]
pub struct Gate {
    /// What never runs, not even with `yolo`.
    pub deny: Vec<Rule>,
    /// What is asked even where an allow rule or the default lets it pass.
    pub ask: Vec<Rule>,
    /// What runs without a question.
    pub allow: Vec<Rule>,
    /// Everything that no deny rule forbids runs.
    pub yolo: bool,
    /// The working directory, then others that relative patterns of deny and ask rules are about as well, such as the
    /// project's root. Absolute.
    pub roots: Vec<PathBuf>,
    grants: HashSet<String>,
}

impl Gate {
    /// Decides by deny rules, yolo, ask rules, allow rules, grants and the class default, in this order.
    pub fn decide(&self, tool: &str, access: &Access) -> Verdict {
        if let Some(rule) = self.deny.iter().find(|rule| rule.touches(tool, access, &self.roots)) {
            return Verdict::Deny(format!(
                "not run: the rule `deny {rule}` forbids this call. Do not try to get around it; \
                 go on without it, or tell the user what you need and why."
            ));
        }
        if self.yolo {
            return Verdict::Allow(Permit(()), By::Yolo);
        }
        let asked = self.ask.iter().find(|rule| rule.touches(tool, access, &self.roots));
        if asked.is_none() && self.allow.iter().any(|rule| rule.covers(tool, access, &self.roots)) {
            return Verdict::Allow(Permit(()), By::Rule);
        }
        if self.grants.contains(&access.class) {
            return Verdict::Allow(Permit(()), By::User);
        }
        match (asked, access.kind) {
            (Some(rule), _) => Verdict::Ask(format!("the rule `ask {rule}`")),
            (None, Kind::Read) => Verdict::Allow(Permit(()), By::Rule),
            (None, Kind::Write) => Verdict::Ask("it changes files".into()),
            (None, Kind::Execute) => Verdict::Ask("it runs a command that may change things".into()),
            (None, Kind::Network) => Verdict::Ask("it reaches the network".into()),
        }
    }

    /// What a search must leave out: paths that a deny rule keeps from any of these tools, everything when it denies one
    /// of the `readers` outright. `None`: nothing.
    pub fn hidden(&self, tools: &[&str], readers: &[&str]) -> Option<Hidden> {
        let names = |rule: &Rule, tools: &[&str]| tools.iter().any(|tool| rule.names(tool));
        if self.deny.iter().any(|rule| rule.pattern.is_none() && names(rule, readers)) {
            return Some(Arc::new(|_| true));
        }
        let rules = self.deny.iter().filter(|rule| names(rule, tools));
        let patterns = rules.filter_map(|rule| rule.pattern.clone());
        let patterns: Vec<_> = patterns.map(|pattern| (pattern.aliases(&self.roots), pattern)).collect();
        let (roots, some) = (self.roots.clone(), !patterns.is_empty());
        let is_hidden = move |path: &Path| {
            let path = path.to_string_lossy();
            patterns.iter().any(|(aliases, pattern)| pattern.concerns(&path, &roots, aliases))
        };
        some.then(|| Arc::new(is_hidden) as Hidden)
    }

    /// Carries out the user's answer to a question about a call of this access.
    pub fn rule(&mut self, access: &Access, answer: Answer) -> Ruling {
        let allowed = |decision| Ruling { decision, by: By::User, outcome: Ok(Permit(())) };
        let denied = |by, text| Ruling { decision: Decision::Deny, by, outcome: Err(text) };
        match answer {
            Answer::Allow => allowed(Decision::Allow),
            Answer::AllowSession => {
                self.grants.insert(access.class.clone());
                allowed(Decision::AllowSession)
            }
            // Nobody runs what was not asked about: whoever edits is asked anew.
            Answer::Deny(None) | Answer::Edit(_) => denied(
                By::User,
                "not run: the user said no. Do not try the same by other means; ask what they want instead."
                    .into(),
            ),
            Answer::Deny(Some(reason)) => {
                denied(By::User, format!("not run: the user said no, with this reason: {reason}"))
            }
            Answer::Unattended => denied(
                By::Unattended,
                "not run: this call needs the user's permission, and nobody can be asked in this run. \
                 Go on with what needs no permission, and say at the end what was left undone. \
                 (The user can allow it with --allow or --yolo.)"
                    .into(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(kind: Kind, subjects: &[&str]) -> Access {
        let subjects = subjects.iter().map(|s| (*s).to_owned()).collect();
        Access { kind, subjects, reads: vec![], opaque: false, class: "a class".into() }
    }

    fn gate(deny: &[&str], ask: &[&str], allow: &[&str]) -> Gate {
        let rules = |said: &[&str]| said.iter().map(|said| Rule::parse(said).unwrap()).collect();
        Gate {
            deny: rules(deny),
            ask: rules(ask),
            allow: rules(allow),
            roots: vec!["/w/sub".into(), "/w".into()],
            ..Gate::default()
        }
    }

    #[track_caller]
    fn check(gate: &Gate, tool: &str, access: &Access, expected: &str) {
        let got = match gate.decide(tool, access) {
            Verdict::Allow(_, by) => format!("{by:?}"),
            Verdict::Deny(_) => "deny".into(),
            Verdict::Ask(_) => "ask".into(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn defaults_follow_the_kind() {
        let gate = Gate::default();
        check(&gate, "read", &access(Kind::Read, &["a"]), "Rule");
        check(&gate, "edit", &access(Kind::Write, &["a"]), "ask");
        check(&gate, "bash", &access(Kind::Execute, &["make"]), "ask");
        check(&gate, "web_fetch", &access(Kind::Network, &["http://a"]), "ask");
    }

    #[test]
    fn deny_beats_yolo_and_needs_only_one_part_of_a_call() {
        let mut gate = gate(&["bash(rm *)"], &[], &["bash"]);
        gate.yolo = true;
        check(&gate, "bash", &access(Kind::Execute, &["make", "rm -rf x"]), "deny");
        check(&gate, "bash", &access(Kind::Execute, &["rm"]), "deny");
        check(&gate, "bash", &access(Kind::Execute, &["rmdir x"]), "Yolo");
    }

    #[test]
    fn an_allow_rule_must_cover_every_part() {
        let gate = gate(&[], &[], &["bash(cargo *)", "edit(src/**)"]);
        check(&gate, "bash", &access(Kind::Execute, &["cargo test"]), "Rule");
        check(&gate, "bash", &access(Kind::Execute, &["cargo test", "rm x"]), "ask");
        check(&gate, "bash", &Access { opaque: true, ..access(Kind::Execute, &["cargo test"]) }, "ask");
        check(&gate, "edit", &access(Kind::Write, &["src/a/b.rs"]), "Rule");
        check(&gate, "edit", &access(Kind::Write, &["src/link", "/etc/passwd"]), "ask");
        check(&gate, "write", &access(Kind::Write, &["src/a.rs"]), "ask");
        check(&gate, "edit", &access(Kind::Write, &[]), "ask");
    }

    #[test]
    fn parts_that_only_read_need_no_allow_rule_but_a_deny_rule_sees_them() {
        let piped = Access { reads: vec!["tail -5".into()], ..access(Kind::Execute, &["cargo test"]) };
        check(&gate(&[], &[], &["bash(cargo *)"]), "bash", &piped, "Rule");
        check(&gate(&["bash(tail *)"], &[], &["bash(cargo *)"]), "bash", &piped, "deny");
    }

    #[test]
    fn a_relative_pattern_allows_nothing_outside_and_denies_everywhere() {
        let write = |rule: &str, path: &str, expected: &str| {
            check(&gate(&[], &[], &[rule]), "edit", &access(Kind::Write, &[path]), expected);
        };
        write("edit(*.md)", "/etc/x.md", "ask");
        write("edit(/tmp/**)", "/tmp/x.md", "Rule");
        write("edit(*)", "/etc/x.md", "Rule");
        for local in ["./**", "./*", ".", "./"] {
            write(&format!("edit({local})"), "a/x.md", "Rule");
            write(&format!("edit({local})"), "/w/sub/a/x.md", "Rule");
        }
        for local in ["./**", "./*", ".", "./", "../**", "**/*", "./../**", "*/**"] {
            write(&format!("edit({local})"), "/etc/x.md", "ask");
            write(&format!("edit({local})"), "/w/x.md", "ask");
        }
        check(&gate(&["edit(*.md)"], &[], &["edit"]), "edit", &access(Kind::Write, &["/etc/x.md"]), "deny");
    }

    #[test]
    fn a_deny_or_ask_rule_looks_at_the_whole_path_too() {
        for (pattern, path, bites) in [
            ("**/.ssh/**", "/elsewhere/.ssh/id", true),
            ("**/.ssh/**", "/elsewhere/.ssh", true),
            ("**/.ssh/**", ".ssh/id", true),
            ("**/*.pem", "/elsewhere/key.pem", true),
            ("**/*", "/elsewhere/a", true),
            ("{/tmp/out,/etc}/**", "/etc/a", true),
            ("{/tmp/out,/etc}/**", "/tmp/other", false),
            ("secrets/**", "/elsewhere/secrets/a", false),
            ("./**", "/elsewhere/a", false),
            ("./**", "/w/a", true),
            ("../out/**", "/w/out/a", true),
            ("../out/**", "/w/sub/out/a", false),
            ("a/../b/**", "b/x", true),
            ("/w/sub/../out/**", "/w/out/a", true),
        ] {
            let rule = &[&format!("read({pattern})")[..]];
            let read = access(Kind::Read, &[path]);
            check(&gate(rule, &[], &[]), "read", &read, if bites { "deny" } else { "Rule" });
            check(&gate(&[], rule, &[]), "read", &read, if bites { "ask" } else { "Rule" });
            let hidden = gate(rule, &[], &[]).hidden(&["read"], &[]).unwrap();
            assert_eq!(hidden(&Path::new("/w/sub").join(path)), bites, "{pattern} {path}");
        }
    }

    #[test]
    fn a_deny_rule_bites_behind_a_link_that_it_names() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let (real, link) = (top.join("real"), top.join("link"));
        std::fs::create_dir_all(real.join("secrets")).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let cwd = top.join("cwd");
        std::fs::create_dir(&cwd).unwrap();
        std::os::unix::fs::symlink(&real, cwd.join("out")).unwrap();
        let absolute = format!("read({}/secrets/**)", link.display());
        for (rule, root, path) in [
            (absolute.as_str(), &real, "secrets/a".to_owned()),
            (absolute.as_str(), &cwd, format!("{}/secrets/a", real.display())),
            ("read(out/**)", &cwd, format!("{}/a", real.display())),
            ("read(out)", &cwd, format!("{}/a", real.display())),
            ("read(./out/secrets)", &cwd, format!("{}/secrets/a", real.display())),
        ] {
            let mut gate = gate(&[rule], &[], &[]);
            gate.roots = vec![root.clone()];
            check(&gate, "read", &access(Kind::Read, &[&path]), "deny");
            assert!(gate.hidden(&["read"], &[]).unwrap()(&root.join(&path)), "{rule} {path}");
            check(&gate, "read", &access(Kind::Read, &["other/a"]), "Rule");
        }
    }

    #[test]
    fn to_forbid_reading_outright_hides_everything_from_searches() {
        let hidden = gate(&["read"], &[], &[]).hidden(&["read", "grep"], &["read"]).unwrap();
        assert!(hidden(Path::new("/anywhere")));
        assert!(gate(&["grep"], &[], &[]).hidden(&["read", "grep"], &["read"]).is_none());
    }

    #[test]
    fn a_deny_rule_bites_by_every_name_of_a_place() {
        for rule in ["edit(secrets/**)", "edit(/w/secrets/**)", "edit(/w/sub/secrets/**)", "edit(secrets)"] {
            let gate = gate(&[rule], &[], &["edit"]);
            let below = if rule.contains("/w/secrets") { "/w/secrets/a" } else { "secrets/a" };
            check(&gate, "edit", &access(Kind::Write, &[below]), "deny");
        }
        // A project's rule is about its root, wherever below it crab was started.
        check(
            &gate(&["edit(secrets/**)"], &[], &["edit"]),
            "edit",
            &access(Kind::Write, &["/w/secrets/a"]),
            "deny",
        );
        check(&gate(&[], &[], &["edit(secrets/**)"]), "edit", &access(Kind::Write, &["/w/secrets/a"]), "ask");
        check(&gate(&[], &[], &["edit(/w/sub/src/**)"]), "edit", &access(Kind::Write, &["src/a"]), "Rule");
        check(
            &gate(&["edit(secrets/**)"], &[], &["edit"]),
            "edit",
            &access(Kind::Write, &["public/a"]),
            "Rule",
        );
        check(&gate(&["grep(secrets/**)"], &[], &[]), "grep", &access(Kind::Read, &["secrets"]), "deny");
    }

    #[test]
    fn searches_leave_out_what_a_deny_rule_keeps_from_readers() {
        let gate = gate(&["read(secrets/**)", "bash(rm *)"], &[], &[]);
        let hidden = gate.hidden(&["read", "grep"], &["read"]).unwrap();
        assert!(hidden(Path::new("/w/sub/secrets/a")) && hidden(Path::new("/w/secrets")));
        assert!(!hidden(Path::new("/w/sub/a")) && !hidden(Path::new("/elsewhere/secrets/a")));
        assert!(gate.hidden(&["edit"], &[]).is_none());
    }

    #[test]
    fn an_ask_rule_beats_an_allow_rule_but_not_yolo() {
        let mut gate = gate(&[], &["bash(git push*)"], &["bash(git *)"]);
        check(&gate, "bash", &access(Kind::Execute, &["git push origin"]), "ask");
        check(&gate, "bash", &access(Kind::Execute, &["git add ."]), "Rule");
        gate.yolo = true;
        check(&gate, "bash", &access(Kind::Execute, &["git push origin"]), "Yolo");
    }

    #[test]
    fn a_grant_covers_its_class_alone() {
        let mut gate = Gate::default();
        let one = access(Kind::Execute, &["make"]);
        let ruling = gate.rule(&one, Answer::AllowSession);
        assert_eq!((ruling.decision, ruling.by), (Decision::AllowSession, By::User));
        check(&gate, "bash", &one, "User");
        check(&gate, "bash", &Access { class: "another".into(), ..one }, "ask");
    }

    #[test]
    fn a_denial_tells_the_model_why() {
        let mut gate = Gate::default();
        let one = access(Kind::Execute, &["make"]);
        let text = |gate: &mut Gate, answer| gate.rule(&one, answer).outcome.unwrap_err();
        assert!(text(&mut gate, Answer::Deny(Some("use ninja".into()))).contains("use ninja"));
        assert!(text(&mut gate, Answer::Deny(None)).contains("the user said no"));
        assert!(text(&mut gate, Answer::Unattended).contains("--yolo"));
        check(&gate, "bash", &one, "ask");
    }

    #[test]
    fn a_bad_rule_says_what_to_write() {
        for said in ["", "(x)", "bash(", "bash()", "bash(x", "ba sh(x)", "edit([)"] {
            let err = Rule::parse(said).unwrap_err();
            assert!(err.contains("`edit(src/**)`"), "{said}: {err}");
        }
    }
}
