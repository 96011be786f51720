//! Tests of the session file.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::message::{Assistant, Block, Part, Stop, ToolResult};

struct Place {
    temp: TempDir,
    home: Home,
    cwd: PathBuf,
}

impl Place {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let cwd = temp.path().join("work");
        std::fs::create_dir(&cwd).unwrap();
        Self { home: Home::at(temp.path().join("home")), cwd, temp }
    }

    fn create(&self) -> Session {
        Session::create(&self.home, &self.cwd, Arc::default())
    }

    fn open(&self, file: &Path) -> Session {
        Session::open(file, &self.cwd, Arc::default()).unwrap()
    }

    /// A file with these prompts in it.
    fn file(&self, prompts: &[&str]) -> PathBuf {
        let mut session = self.create();
        for prompt in prompts {
            session.append(user(prompt)).unwrap();
        }
        session.file().unwrap().to_path_buf()
    }
}

fn user(text: &str) -> Body {
    Body::User { content: vec![Part::text(text)] }
}

fn prompts(session: &Session) -> Vec<String> {
    let text = |entry: &Arc<Entry>| match &entry.body {
        Body::User { content } => Some(crate::message::text_of(content)),
        _ => None,
    };
    session.path().iter().filter_map(text).collect()
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn add(file: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).open(file).unwrap().write_all(bytes).unwrap();
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn a_session_without_an_entry_leaves_nothing_behind() {
    let place = Place::new();
    let session = place.create();
    assert!(session.file().unwrap().to_string_lossy().ends_with(&format!("_{}.jsonl", session.id())));
    assert!(!place.home.dir().exists());
    assert!(!session.is_resumable());
}

#[test]
fn the_file_has_the_form_of_the_contract() {
    let place = Place::new();
    let mut session = place.create();
    session.append(user("a\nb\rc\u{2028}d\u{85}e\u{2029}")).unwrap();
    session
        .append(Body::Assistant(Assistant {
            content: vec![Block::text("yes")],
            provider: "p".into(),
            model: "m".into(),
            stop: Stop::End,
            ..Assistant::default()
        }))
        .unwrap();
    session
        .append(Body::ToolResult(ToolResult {
            tool_call_id: "c".into(),
            name: "bash".into(),
            is_error: false,
            content: vec![Part::text("out")],
            ms: 3,
        }))
        .unwrap();
    session
        .append(Body::Permission {
            tool_call_id: "c".into(),
            name: "bash".into(),
            decision: crate::protocol::Decision::AllowSession,
            by: crate::protocol::By::Yolo,
        })
        .unwrap();
    session.append(Body::Model { provider: "p".into(), model: "m".into() }).unwrap();
    session.append(Body::Title { text: "t".into() }).unwrap();
    session.append(Body::note("n")).unwrap();
    let file = session.file().unwrap().to_path_buf();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains(['\u{85}', '\u{2028}', '\u{2029}', '\r']));
    let lines = lines(&file);
    assert_eq!(lines[0]["type"], "session");
    assert_eq!((&lines[0]["version"], &lines[0]["id"]), (&json!(1), &json!(session.id())));
    assert_eq!(lines[0]["cwd"], json!(paths::canonical(&place.cwd).to_str().unwrap()));
    let kinds: Vec<&str> = lines.iter().skip(1).map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["user", "assistant", "tool_result", "permission", "model", "title", "note"]);
    assert_eq!(lines[1]["parent_id"], Value::Null);
    for pair in lines[1..].windows(2) {
        assert_eq!(pair[1]["parent_id"], pair[0]["id"]);
    }
    assert_eq!(lines[3]["tool_call_id"], "c");
    assert_eq!(lines[4]["decision"], "allow_session");
    let path = session.path();
    drop(session);
    let mut again = place.open(&file);
    assert_eq!(again.path(), path);
    assert_eq!(again.take_warnings(), [""; 0]);
}

#[test]
fn everything_in_the_home_is_private() {
    let place = Place::new();
    let file = place.file(&["x"]);
    assert_eq!(mode(&file), 0o600);
    for dir in file.ancestors().skip(1).take(3) {
        assert_eq!(mode(dir), 0o700, "{dir:?}");
    }
}

#[test]
fn a_torn_last_line_is_reported_once_and_no_byte_is_removed() {
    for tail in ["", "\n", "\n\n\n"] {
        let place = Place::new();
        let file = place.file(&["one", "two"]);
        let mut bytes = std::fs::read(&file).unwrap();
        bytes.truncate(bytes.len() - 20);
        bytes.extend_from_slice(tail.as_bytes());
        std::fs::write(&file, &bytes).unwrap();

        let mut session = place.open(&file);
        let warnings = session.take_warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("line 3"), "{warnings:?}");
        session.append(user("three")).unwrap();
        drop(session);

        let mut session = place.open(&file);
        assert_eq!(session.take_warnings(), [""; 0]);
        assert_eq!(prompts(&session), ["one", "three"]);
        let now = std::fs::read(&file).unwrap();
        assert!(now.starts_with(&bytes));
        let broken = now
            .split(|b| *b == b'\n')
            .filter(|l| !l.is_empty() && serde_json::from_slice::<Value>(l).is_err());
        assert_eq!(broken.count(), 1);
    }
}

#[test]
fn any_cut_of_a_file_can_be_resumed() {
    let place = Place::new();
    let file = place.file(&["eins", "zwei äöü"]);
    let bytes = std::fs::read(&file).unwrap();
    let header = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    for cut in header..bytes.len() {
        std::fs::write(&file, &bytes[..cut]).unwrap();
        let mut session = place.open(&file);
        session.append(user("drei")).unwrap();
        drop(session);
        let mut session = place.open(&file);
        assert_eq!(prompts(&session).last().unwrap(), "drei");
        assert_eq!(session.take_warnings(), [""; 0], "cut at {cut}");
        assert!(std::fs::read(&file).unwrap().starts_with(&bytes[..cut]));
    }
}

#[test]
fn damage_in_the_middle_is_reported_and_what_follows_is_kept() {
    let place = Place::new();
    let file = place.file(&["one", "two", "three"]);
    let text = std::fs::read_to_string(&file).unwrap();
    let all: Vec<&str> = text.lines().collect();
    let nul = "\0".repeat(300);
    let damaged =
        format!("{}\n{}\n{nul}\n\n{nul}{}\n{{\"type\":\"us\n[1]\n{}\n", all[0], all[1], all[2], all[3]);
    std::fs::write(&file, damaged).unwrap();
    let mut session = place.open(&file);
    assert_eq!(prompts(&session), ["one", "two", "three"]);
    let warnings = session.take_warnings();
    for line in ["line 3 ", "line 6 ", "line 7 "] {
        assert!(warnings.iter().any(|warning| warning.contains(line)), "{warnings:?}");
    }
    assert_eq!(warnings.len(), 3);
}

#[test]
fn an_entry_whose_parent_was_lost_follows_the_line_before_it() {
    let place = Place::new();
    let file = place.file(&["one", "two", "three"]);
    let text = std::fs::read_to_string(&file).unwrap();
    let all: Vec<&str> = text.lines().collect();
    std::fs::write(&file, format!("{}\n{}\n{}\n{}\n", all[0], all[1], "\0\0", all[3])).unwrap();
    let mut session = place.open(&file);
    assert_eq!(prompts(&session), ["one", "three"]);
    assert_eq!(session.take_warnings().len(), 2);
}

#[test]
fn unknown_entries_are_skipped_with_one_note_and_stay() {
    let place = Place::new();
    let file = place.file(&["one"]);
    add(&file, b"{\"type\":\"hologram\",\"id\":\"x\",\"parent_id\":null}\n{\"type\":\"hologram\",\"id\":\"y\",\"parent_id\":\"x\"}\n");
    let before = std::fs::read(&file).unwrap();
    let mut session = place.open(&file);
    let warnings = session.take_warnings();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("`hologram`"), "{warnings:?}");
    session.append(user("two")).unwrap();
    assert_eq!(prompts(&session), ["one", "two"]);
    assert!(std::fs::read(&file).unwrap().starts_with(&before));
    drop(session);
    // One that a known entry follows is passed through.
    add(&file, b"{\"type\":\"user\",\"id\":\"z\",\"parent_id\":\"y\",\"time\":\"\",\"content\":[{\"type\":\"text\",\"text\":\"three\"}]}\n");
    assert_eq!(prompts(&place.open(&file)), ["one", "three"]);
}

#[test]
fn a_known_entry_of_a_new_shape_is_skipped_but_not_its_children() {
    let place = Place::new();
    let file = place.file(&["one"]);
    let parent = lines(&file)[1]["id"].clone();
    add(
        &file,
        format!("{}\n", json!({"type":"user","id":"n","parent_id":parent,"content":[{"type":"smell"}]}))
            .as_bytes(),
    );
    add(&file, format!("{}\n", json!({"type":"title","id":"o","parent_id":"n","text":"t"})).as_bytes());
    let mut session = place.open(&file);
    assert_eq!(prompts(&session), ["one"]);
    let warnings = session.take_warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("line 3"), "{warnings:?}");
}

#[test]
fn a_branch_is_the_path_of_the_newest_leaf() {
    let place = Place::new();
    let file = place.file(&["one", "two", "three"]);
    let first = lines(&file)[1]["id"].clone();
    add(&file, format!("{}\n", json!({"type":"user","id":"b","parent_id":first,"time":"","content":[{"type":"text","text":"other"}]})).as_bytes());
    let mut session = place.open(&file);
    assert_eq!(prompts(&session), ["one", "other"]);
    assert_eq!(session.take_warnings(), [""; 0]);
    drop(session);
    add(
        &file,
        format!("{}\n", json!({"type":"user","id":"c","parent_id":null,"time":"","content":[]})).as_bytes(),
    );
    assert_eq!(prompts(&place.open(&file)), [""]);
}

#[track_caller]
fn check_refused(content: &str, expected: &[&str]) {
    let place = Place::new();
    let file = place.temp.path().join("s.jsonl");
    std::fs::write(&file, content).unwrap();
    let Err(err) = Session::open(&file, &place.cwd, Arc::default()) else { panic!("{content:?} was opened") };
    for word in expected {
        assert!(err.to_string().contains(word), "{err}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), content);
}

#[test]
fn other_files_are_refused_and_left_alone() {
    check_refused(
        "{\"type\":\"session\",\"version\":97,\"id\":\"a\",\"cwd\":\"/\",\"created\":\"\"}\n",
        &["97", " 1", "s.jsonl"],
    );
    check_refused("# Notes\n", &["not a session of crab", "s.jsonl"]);
    check_refused("{\"type\":\"user\",\"id\":\"a\",\"parent_id\":null}\n", &["not a session of crab"]);
    check_refused("{\"type\":\"session\",\"version\":\"x\"}\n", &["not a session of crab"]);
    check_refused("\0\0\0\n", &["NUL"]);
    check_refused("null", &["not a session of crab"]);
}

#[test]
fn a_folder_or_a_device_is_no_session() {
    let place = Place::new();
    for path in [place.cwd.as_path(), Path::new("/dev/null")] {
        assert!(matches!(Session::open(path, &place.cwd, Arc::default()), Err(Error::NotASession { .. })));
    }
}

#[test]
fn a_named_file_is_made_and_an_empty_one_is_begun() {
    let place = Place::new();
    let (missing, empty) = (place.temp.path().join("new/s.jsonl"), place.temp.path().join("empty"));
    std::fs::write(&empty, "\n").unwrap();
    for file in [&missing, &empty] {
        let mut session = place.open(file);
        session.append(user("x")).unwrap();
        assert_eq!(session.take_warnings(), [""; 0]);
        let id = session.id().to_owned();
        drop(session);
        let session = place.open(file);
        assert_eq!((prompts(&session), session.id()), (vec!["x".to_owned()], id.as_str()));
    }
}

#[test]
fn a_second_writer_is_told_who_has_the_file_and_may_fork() {
    let place = Place::new();
    let mut first = place.create();
    first.append(user("one")).unwrap();
    let file = first.file().unwrap().to_path_buf();
    let Err(err) = Session::open(&file, &place.cwd, Arc::default()) else { panic!("opened twice") };
    assert!(err.to_string().contains("--fork"), "{err}");
    assert!(err.to_string().contains(&format!("process {}", std::process::id())), "{err}");

    let mut fork = place.create().fork_of(&file).unwrap();
    fork.append(user("two")).unwrap();
    first.append(user("three")).unwrap();
    assert_eq!(prompts(&fork), ["one", "two"]);
    let fork_file = fork.file().unwrap().to_path_buf();
    assert_ne!(fork_file, file);
    assert_eq!(lines(&fork_file)[0]["forked_from"], json!(first.id()));
    drop((first, fork));
    assert_eq!(prompts(&place.open(&file)), ["one", "three"]);
    assert_eq!(prompts(&place.open(&fork_file)), ["one", "two"]);
}

#[test]
fn a_fork_without_a_new_entry_leaves_no_file() {
    let place = Place::new();
    let file = place.file(&["one"]);
    let fork = place.create().fork_of(&file).unwrap();
    assert!(!fork.file().unwrap().exists());
    let nowhere = Session::ephemeral(&place.cwd, Arc::default()).fork_of(&file).unwrap();
    assert_eq!((prompts(&nowhere), nowhere.file()), (vec!["one".to_owned()], None));
}

#[test]
fn what_could_not_be_written_follows_when_writing_works_again() {
    let place = Place::new();
    // A file in the place of the home's folder: it works for root too, who may write anywhere.
    std::fs::write(place.home.dir(), "").unwrap();
    let mut session = place.create();
    let err = session.append(user("one")).unwrap_err();
    assert!(err.to_string().contains("not being saved"), "{err}");
    assert!(session.unsaved() && !session.is_resumable());
    assert_eq!(prompts(&session), ["one"]);
    std::fs::remove_file(place.home.dir()).unwrap();
    session.append(user("two")).unwrap();
    assert!(!session.unsaved() && session.is_resumable());
    let file = session.file().unwrap().to_path_buf();
    drop(session);
    assert_eq!(prompts(&place.open(&file)), ["one", "two"]);
}

#[test]
fn a_removed_file_is_noticed() {
    let place = Place::new();
    let mut session = place.create();
    session.append(user("one")).unwrap();
    std::fs::remove_file(session.file().unwrap()).unwrap();
    assert!(session.append(user("two")).unwrap_err().to_string().contains("removed"));
    assert!(session.unsaved());
}

#[test]
fn after_half_a_line_the_next_one_stands_alone() {
    let place = Place::new();
    let file = place.file(&["one"]);
    let mut session = place.open(&file);
    add(&file, b"{\"type\":\"user\",\"id\"");
    session.open_end = true;
    session.append(user("two")).unwrap();
    session.append(user("three")).unwrap();
    drop(session);
    let mut session = place.open(&file);
    assert_eq!(prompts(&session), ["one", "two", "three"]);
    assert_eq!(session.take_warnings().len(), 1);
}

#[test]
fn secrets_stay_out_of_the_file_and_of_the_conversation() {
    let place = Place::new();
    let key = "sk-CAN\"ARY/123";
    // The second one is a word of the file's own form.
    let pairs = vec![("KEY".to_owned(), key.to_owned()), ("WORD".to_owned(), "assistant".to_owned())];
    let mut session = Session::create(&place.home, &place.cwd, Arc::new(Secrets::new(pairs)));
    session.append(user(&format!("my key is {key}, assistant"))).unwrap();
    let arguments = json!({ "command": key });
    let call = crate::message::ToolCall { id: "c".into(), name: "bash".into(), arguments, extra: None };
    session
        .append(Body::Assistant(Assistant { content: vec![Block::ToolCall(call)], ..Assistant::default() }))
        .unwrap();
    let file = session.file().unwrap().to_path_buf();
    assert!(!std::fs::read_to_string(&file).unwrap().contains("ARY"));
    assert_eq!(prompts(&session), ["my key is [redacted KEY], [redacted WORD]"]);
    let path = session.path();
    drop(session);
    assert_eq!(place.open(&file).path(), path);
}

#[test]
fn the_newest_session_of_the_directory_is_found() {
    let place = Place::new();
    assert!(latest(&place.home, &place.cwd).unwrap().is_none());
    let (old, new) = (place.file(&["old"]), place.file(&["new"]));
    let at = |seconds| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    let touch = |file: &Path, seconds| {
        File::options().append(true).open(file).unwrap().set_modified(at(seconds)).unwrap()
    };
    touch(&old, 2_000);
    touch(&new, 1_000);
    assert_eq!(latest(&place.home, &place.cwd).unwrap(), Some(old.clone()));
    touch(&new, 3_000);
    assert_eq!(latest(&place.home, &place.cwd).unwrap(), Some(new.clone()));

    // What was begun and never used, or belongs to another directory, is no session to go on with.
    let dir = new.parent().unwrap();
    let header = std::fs::read_to_string(&new).unwrap().lines().next().unwrap().to_owned();
    std::fs::write(dir.join("z_empty.jsonl"), "").unwrap();
    std::fs::write(dir.join("z_torn.jsonl"), &header[..20]).unwrap();
    std::fs::write(dir.join("z_unused.jsonl"), format!("{header}\n")).unwrap();
    let foreign = std::fs::read_to_string(&new).unwrap().replace("/work\"", "/elsewhere\"");
    std::fs::write(dir.join("z_foreign.jsonl"), foreign).unwrap();
    std::fs::write(dir.join("readme.txt"), "").unwrap();
    assert_eq!(latest(&place.home, &place.cwd).unwrap(), Some(new.clone()));

    // One that this crab cannot read is not passed over in silence.
    let newer = dir.join("z_newer.jsonl");
    std::fs::write(&newer, std::fs::read_to_string(&new).unwrap().replace("\"version\":1", "\"version\":97"))
        .unwrap();
    assert_eq!(latest(&place.home, &place.cwd).unwrap(), Some(newer));
}

#[test]
fn ids_and_their_beginnings_find_a_session() {
    let place = Place::new();
    let (one, two) = (place.file(&["first\nline two"]), place.file(&["second"]));
    let rename = |file: &Path, id: &str| {
        let to = file.with_file_name(format!("20260101T000000Z_{id}.jsonl"));
        std::fs::rename(file, &to).unwrap();
        to
    };
    let (one, two) = (rename(&one, "abcd1"), rename(&two, "abcd12"));
    let find = |id: &str| find(&place.home, id);
    assert_eq!(find("abcd12").unwrap(), two);
    assert_eq!(find("ABCD1").unwrap(), one);
    let Err(Error::Ambiguous { candidates, .. }) = find("abc") else { panic!("not ambiguous") };
    assert_eq!(candidates.len(), 2);
    assert!(candidates.iter().any(|line| line.ends_with("first")), "{candidates:?}");
    for id in ["x", "", " "] {
        assert!(matches!(find(id), Err(Error::Unknown { .. })), "{id:?}");
    }
}

#[test]
fn a_list_has_the_first_prompts_and_names_what_is_no_session() {
    let place = Place::new();
    let file = place.file(&["hello", "more"]);
    std::fs::write(file.with_file_name("broken.jsonl"), "what\n").unwrap();
    for cwd in [None, Some(place.cwd.as_path())] {
        let (sessions, warnings) = list(&place.home, cwd).unwrap();
        assert_eq!(sessions.len(), 1);
        assert_eq!((sessions[0].prompt.as_str(), &sessions[0].file), ("hello", &file));
        assert!(warnings.len() == 1 && warnings[0].contains("broken.jsonl"), "{warnings:?}");
    }
    assert!(list(&place.home, Some(place.temp.path())).unwrap().0.is_empty());
}

#[test]
fn a_file_that_may_only_be_read_is_resumed_with_a_warning() {
    let place = Place::new();
    let file = place.file(&["one"]);
    std::fs::set_permissions(&file, Permissions::from_mode(0o400)).unwrap();
    let mut session = place.open(&file);
    assert_eq!(prompts(&session), ["one"]);
    if rustix::process::geteuid().is_root() {
        return; // Root may write all the same.
    }
    assert!(session.take_warnings()[0].contains("not being saved"));
    session.append(user("two")).unwrap();
    assert!(session.unsaved());
}
