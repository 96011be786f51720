//! Whatever happens to the process, the next run goes on and nothing that was written is gone: a conversation is killed at
//! many instants, and at every system call where `strace` is there, and gone on with against a service that refuses
//! malformed histories. `make survive` does it a thousand times; here it is a sample.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::crab::{Crab, PATIENCE};
use crate::server::{Answer, Asked, Server, chunks, fails, says};

const OLD: &str = "one\n";
const NEW: &str = "two\n";

/// How much is tried: a sample, or what `CRAB_SURVIVE` says.
fn tries(sample: usize) -> usize {
    std::env::var("CRAB_SURVIVE").ok().and_then(|count| count.parse().ok()).unwrap_or(sample)
}

/// A conversation in a place of its own.
struct Story {
    crab: Crab,
    server: Server,
    /// What the service found wrong with a history.
    refusals: Arc<Mutex<Vec<String>>>,
}

impl Story {
    fn new() -> Self {
        let crab = Crab::new();
        let refusals = Arc::new(Mutex::new(vec![]));
        let log = refusals.clone();
        let server = Server::answering(move |asked| answer(asked, &log));
        let story = Self { crab, server, refusals };
        story.begin_anew();
        story
    }

    fn begin_anew(&self) {
        // What is not there need not go.
        let _ = std::fs::remove_dir_all(self.crab.home());
        let _ = std::fs::remove_dir_all(self.crab.dir());
        self.crab.put("a.txt", OLD);
        // strace looks for a path when it begins.
        std::fs::write(self.file(), "").unwrap();
    }

    fn file(&self) -> PathBuf {
        self.crab.dir().join("session.jsonl")
    }

    /// What is run to tell the story, behind a wrapper such as strace.
    fn command(&self, wrapper: &[&str], prompt: &str) -> Command {
        let crab = env!("CARGO_BIN_EXE_crab");
        let words: Vec<&str> = wrapper.iter().copied().chain([crab]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command.args([
            "-p",
            prompt,
            "-m",
            "openai/x",
            "--base-url",
            &self.server.base(),
            "--session",
            "session.jsonl",
        ]);
        command.args([
            "--allow",
            "edit",
            "--allow",
            "write",
            "--allow",
            "bash",
            "--config",
            "permissions.deny=[\"write(secret)\"]",
        ]);
        command.env_clear().envs(self.crab.environment()).env("OPENAI_API_KEY", "sk-0123456789");
        command
            .current_dir(self.crab.dir())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    fn start(&self, wrapper: &[&str]) -> Child {
        self.command(wrapper, "tell the story").spawn().unwrap()
    }

    /// Goes on with what is left, and holds it against what was there.
    #[track_caller]
    fn check(&self, when: &str) {
        let a = self.crab.get("a.txt");
        assert!(a == OLD || a == NEW, "{when}: a.txt is neither old nor new: {a:?}");
        let b = self.crab.dir().join("b.txt").exists().then(|| self.crab.get("b.txt"));
        assert!(b.is_none() || b == Some(bee()), "{when}: b.txt is in between");
        let before = std::fs::read(self.file()).unwrap_or_default();
        let asked = self.server.asked().len();
        let output = self.command(&[], "go on").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{when}: {said}");
        let after = std::fs::read(self.file()).unwrap();
        assert!(after.starts_with(&before), "{when}: bytes of the session are gone");
        assert_eq!(*self.refusals.lock().unwrap(), [""; 0], "{when}");
        let request =
            self.server.asked()[asked..].first().map(|asked| asked.body.clone()).unwrap_or_default();
        for text in texts(&before) {
            let shown = json!(text).to_string();
            assert!(request.contains(shown.trim_matches('"')), "{when}: {text:?} is lost in\n{request}");
        }
    }
}

fn bee() -> String {
    "bee\n".repeat(500)
}

/// What is said in the whole lines of a session.
fn texts(session: &[u8]) -> Vec<String> {
    let whole = session.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let entries = whole.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let mut texts = vec![];
    for entry in
        entries.filter(|entry| ["user", "assistant", "tool_result"].iter().any(|kind| entry["type"] == *kind))
    {
        let blocks = entry["content"].as_array().cloned().unwrap_or_default();
        // Reasoning goes back in a field of its own, and not to everyone.
        texts.extend(
            blocks
                .iter()
                .filter(|block| block["type"] == "text")
                .map(|block| block["text"].as_str().unwrap().to_owned()),
        );
    }
    texts
}

/// The story, by how much of it was told already.
fn answer(asked: &Asked, refusals: &Mutex<Vec<String>>) -> Answer {
    let body: Value = serde_json::from_str(&asked.body).unwrap();
    let messages = body["messages"].as_array().unwrap();
    if let Some(why) = malformed(messages) {
        refusals.lock().unwrap().push(why.clone());
        return fails(400, &why);
    }
    let last = messages.iter().rev().find(|message| message["role"] == "user").unwrap();
    if last["content"].to_string().contains("go on") {
        return says(&["gone on"]);
    }
    match messages.iter().filter(|message| message["role"] == "tool").count() {
        0 => calls(
            "I look around.\n",
            &[
                ("read", json!({"path": "a.txt"})),
                ("glob", json!({"pattern": "*"})),
                ("bash", json!({"command": "echo out; echo made > made"})),
            ],
        ),
        3 => calls(
            "Now I edit.\n",
            &[("edit", json!({"path": "a.txt", "edits": [{"old": "one", "new": "two"}]}))],
        ),
        4 => calls(
            "",
            &[
                ("write", json!({"path": "b.txt", "content": bee()})),
                ("write", json!({"path": "secret", "content": "no"})),
            ],
        ),
        _ => says(&["All of it ", "is told.\n"]),
    }
}

fn calls(text: &str, calls: &[(&str, Value)]) -> Answer {
    let mut deltas = vec![json!({"reasoning_content": "hm"}), json!({"content": text})];
    for (index, (name, arguments)) in calls.iter().enumerate() {
        let function = json!({"name": name, "arguments": arguments.to_string()});
        deltas.push(json!({"tool_calls": [{"index": index, "id": format!("call_{name}_{index}"), "type": "function", "function": function}]}));
    }
    chunks(deltas, "tool_calls")
}

/// What a strict service would refuse.
fn malformed(messages: &[Value]) -> Option<String> {
    let mut open: Vec<String> = vec![];
    let mut before = "";
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        match role {
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                let Some(place) = open.iter().position(|own| own == id) else {
                    return Some(format!("{at}: a result without its call"));
                };
                open.remove(place);
            }
            _ if !open.is_empty() => return Some(format!("{at}: calls without results: {open:?}")),
            "assistant" => {
                let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
                open = calls.iter().map(|call| call["id"].as_str().unwrap_or_default().to_owned()).collect();
                let has_text = message["content"].as_str().is_some_and(|text| !text.trim().is_empty());
                if !has_text && open.is_empty() || before == "assistant" {
                    return Some(format!("{at}: an empty message, or one behind another"));
                }
            }
            "user" if before == "user" => return Some(format!("{at}: two of the user")),
            _ => {}
        }
        before = role;
    }
    (!open.is_empty()).then(|| format!("calls without results at the end: {open:?}"))
}

fn kill(child: &mut Child) {
    // It may have come to its end already.
    let _ = child.kill();
    child.wait().unwrap();
}

#[test]
fn a_run_that_is_killed_at_any_instant_goes_on() {
    let story = Story::new();
    let begun = Instant::now();
    assert!(story.start(&[]).wait().unwrap().success());
    let whole = begun.elapsed();
    story.check("untouched");
    let tries = tries(40);
    for n in 0..tries {
        story.begin_anew();
        let mut child = story.start(&[]);
        std::thread::sleep(whole.mul_f64(n as f64 / tries as f64));
        kill(&mut child);
        story.check(&format!("killed at {n} of {tries}"));
    }
    println!("killed at {tries} instants of {whole:?}");
}

#[test]
fn a_run_that_is_killed_whenever_its_session_has_grown_goes_on() {
    let story = Story::new();
    let size = |file: &Path| std::fs::metadata(file).map_or(0, |meta| meta.len());
    for growths in 1.. {
        story.begin_anew();
        let mut child = story.start(&[]);
        let (mut seen, mut last) = (0, 0);
        let end = Instant::now() + PATIENCE;
        let ended = loop {
            let now = size(&story.file());
            seen += usize::from(now != std::mem::replace(&mut last, now));
            if seen >= growths {
                break false;
            }
            if child.try_wait().unwrap().is_some() {
                break true;
            }
            assert!(Instant::now() < end, "crab did not come to its end");
            std::thread::yield_now();
        };
        kill(&mut child);
        story.check(&format!("killed at growth {growths}"));
        if ended {
            break;
        }
    }
}

/// Whether `strace` can inject faults here.
fn has_strace() -> bool {
    let works = Command::new("strace")
        .args(["-qq", "-o", "/dev/null", "-e", "inject=getppid:error=EIO", "true"])
        .output();
    works.is_ok_and(|output| output.status.success())
}

/// Runs the story with a fault at the nth of some system calls of any thread, as strace counts them; false when none
/// makes so many.
fn faulty(story: &Story, fault: &str, calls: &str, path: Option<&str>) -> bool {
    story.begin_anew();
    let trace = format!("trace={calls}");
    let inject = format!("inject={calls}:{fault}");
    let mut wrapper = vec!["strace", "-f", "-qq", "-o", "trace.log", "-e", &trace, "-e", &inject];
    wrapper.extend(path.iter().flat_map(|path| ["-P", path]));
    let mut child = story.start(&wrapper);
    let end = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "{fault} at {calls}: crab did not come to its end");
        std::thread::sleep(Duration::from_millis(2));
    }
    let trace = std::fs::read_to_string(story.crab.dir().join("trace.log")).unwrap_or_default();
    std::fs::remove_file(story.crab.dir().join("trace.log")).unwrap();
    trace.contains("INJECTED") || trace.contains("SIGKILL")
}

/// Every `step`th place in turn, until the run outlives it.
fn sweep(fault: &dyn Fn(usize) -> String, calls: &str, path: Option<&str>, step: usize) -> usize {
    let story = Story::new();
    let mut places = 0;
    for n in (1..).step_by(step) {
        let fault = fault(n);
        if !faulty(&story, &fault, calls, path) {
            return places;
        }
        story.check(&format!("{fault} at {calls}"));
        places += 1;
    }
    places
}

#[test]
fn a_run_that_is_killed_at_a_system_call_goes_on() {
    if !has_strace() {
        return;
    }
    let is_whole = std::env::var_os("CRAB_SURVIVE").is_some();
    let kill = |n: usize| format!("signal=SIGKILL:when={n}");
    let session = sweep(&kill, "write,fdatasync,ftruncate", Some("session.jsonl"), 1);
    // Names of files that are written beside others are not known beforehand: all calls that change files count.
    let calls =
        "rename,renameat,renameat2,fsync,fdatasync,unlink,unlinkat,mkdir,fchmod,chmod,link,linkat,ftruncate";
    let files = sweep(&kill, calls, None, 1);
    let writes = sweep(&kill, "write", None, if is_whole { 1 } else { 7 });
    println!("killed at {session} calls on the session, {files} on files, {writes} writes");
    assert!(session > 10 && files > 0 && writes > 2, "{session} {files} {writes}");
}

#[test]
fn a_disk_that_fails_costs_no_whole_line_and_no_file() {
    if !has_strace() {
        return;
    }
    let is_whole = std::env::var_os("CRAB_SURVIVE").is_some();
    for error in ["ENOSPC", "EIO", "EACCES"] {
        for (calls, path) in [
            ("write", Some("session.jsonl")),
            ("fdatasync,fsync", None),
            ("rename,renameat,renameat2,openat", None),
        ] {
            let step = match (is_whole, path) {
                (true, _) => 1,
                (false, Some(_)) => 5,
                (false, None) => 40,
            };
            let places = sweep(&|n| format!("error={error}:when={n}"), calls, path, step);
            println!("{error} at {places} of {calls}");
            assert!(places > 0, "{error} {calls}");
        }
    }
}

#[test]
fn a_write_that_takes_a_part_only_costs_no_whole_line_and_no_file() {
    let story = Story::new();
    for blocks in 0..tries(12) {
        story.begin_anew();
        let limit = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
        // That the run fails is no surprise.
        let ended = story.start(&["sh", "-c", &limit, "sh"]).wait().unwrap();
        story.check(&format!("no file above {blocks} blocks, {ended}"));
    }
}
