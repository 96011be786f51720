//! Print mode: streams, exit codes, sessions, permissions, machine-readable output.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::crab::{Crab, runs, until};

#[test]
fn the_loop_runs_by_hand_through_the_mock() {
    let crab = Crab::new();
    crab.put("a.md", "x");
    let ran = crab.mock(&["-p", "call glob {\"pattern\":\"*.md\"}"]).ok();
    assert_eq!(ran.out, "glob: a.md\n");
    let ran = crab.mock(&["-p", "hello", "there"]).ok();
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("hello there\n", ""));
}

#[test]
fn stdout_is_what_the_model_said_and_nothing_else() {
    let crab = Crab::new();
    crab.put("a.txt", "content");
    crab.script(&[
        r#"{"text":"Reading it.","tool_calls":[{"name":"read","arguments":{"path":"a.txt"}}]}"#,
        r#"{"error":{"status":429,"message":"slow down","retry_after_ms":1}}"#,
        r#"{"text":"Done \u001b[31m."}"#,
    ]);
    let ran = crab.mock(&["-p", "go"]).ok();
    assert_eq!(ran.out, "Reading it.\nDone ^[[31m.\n");
    assert!(ran.err.contains("slow down") && ran.err.contains("read a.txt"), "{}", ran.err);
    let ran = crab.mock(&["-q", "-p", "go"]).ok();
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("Done ^[[31m.\n", ""));
}

#[test]
fn each_kind_of_failure_has_its_exit_code_and_one_line() {
    let crab = Crab::new();
    crab.mock(&["-p", ""]).fails(2, "no prompt");
    crab.mock(&["--nonsense", "-p", "x"]).fails(2, "--nonsense");
    crab.run(&["--provider", "nonsense", "-p", "x"]).fails(2, "nonsense");
    crab.run(&["-m", "openai/x", "-p", "x"]).fails(5, "OPENAI_API_KEY");
    crab.run(&["-p", "x"]).fails(5, "no key was found");
    crab.mock(&["-r", "zzz", "-p", "x"]).fails(2, "zzz");
    crab.mock(&["-c", "-p", "x"]).fails(1, "nothing to continue");
    crab.mock(&["--tools", "read,nonsense", "-p", "x"]).fails(2, "nonsense");
    crab.mock(&["--allow", "bash(", "-p", "x"]).fails(2, "bash(");
    crab.mock(&["-C", "/nonsense", "-p", "x"]).fails(2, "/nonsense");
    crab.mock(&["--config", "max_turns=many", "-p", "x"]).fails(2, "max_turns");
    crab.put(".crab/config.toml", "model = 3\n");
    crab.mock(&["-p", "x"]).fails(2, "line 1");
}

#[test]
fn each_failure_of_a_service_has_its_exit_code() {
    let crab = Crab::new();
    let fault =
        |status: u16| format!(r#"{{"error":{{"status":{status},"message":"no 7741","retry_after_ms":1}}}}"#);
    for (status, code) in [(401, 5), (403, 5), (404, 4), (400, 4), (500, 4), (529, 4), (402, 4)] {
        let line = fault(status);
        crab.script(&[line.as_str(); 9]);
        crab.mock(&["-p", "x"]).fails(code, "no 7741");
    }
    crab.script(&["{}", "{}"]);
    crab.mock(&["-p", "x"]).fails(1, "nothing");
    crab.script(&[r#"{"text":"half ","disconnect":true}"#; 3]);
    let ran = crab.mock(&["-p", "x"]).fails(4, "crab: ");
    assert_eq!(ran.out, "half half half \n");
    crab.script(&[r#"{"text":"half an ans","disconnect":true}"#, r#"{"text":"wer."}"#]);
    let ran = crab.mock(&["-p", "x"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "half an answer.\n"));
    assert!(ran.err.contains("go on from there"));
    crab.script(&[r#"{"text":"half an ans","disconnect":true}"#, r#"{"text":"wer."}"#]);
    assert_eq!(crab.mock(&["-q", "-p", "x"]).out, "half an answer.\n");
}

#[test]
fn limits_stop_a_run_with_3() {
    let crab = Crab::new();
    let call = r#"{"tool_calls":[{"name":"glob","arguments":{"pattern":"*"}}]}"#;
    crab.script(&[call; 20]);
    crab.mock(&["--max-turns", "2", "-p", "x"]).fails(3, "--max-turns");
    crab.mock(&["-p", "x"]).fails(3, "same calls");
    crab.script(&[r#"{"text":"a very slow answer","chunk":1,"delay_ms":60000}"#]);
    crab.mock(&["--timeout", "0.2", "-p", "x"]).fails(3, "time limit");
}

#[test]
fn the_json_formats_tell_the_whole_run() {
    let crab = Crab::new();
    crab.script(&[
        r#"{"thinking":"hm","text":"Writing.","tool_calls":[{"id":"x1","name":"write","arguments":{"path":"f","content":"1"}}],"usage":{"input":12,"output":5}}"#,
        r#"{"text":"Done."}"#,
    ]);
    let ran = crab.mock(&["-o", "stream-json", "-p", "go"]).ok();
    let lines = ran.json();
    let types: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!((types[0], types[types.len() - 1]), ("session", "done"));
    let find = |kind: &str| lines.iter().find(|line| line["type"] == kind).unwrap_or(&Value::Null);
    assert_eq!(find("tool_call")["arguments"], json!({"path": "f", "content": "1"}));
    assert_eq!(find("tool_result")["is_error"], true);
    assert_eq!(find("permission")["by"], "unattended");
    assert_eq!(find("usage")["input"], 12);
    assert_eq!(find("usage")["cost_usd"], Value::Null);
    let done = find("done");
    assert_eq!((&done["exit"], &done["stop"], &done["result"]), (&json!(0), &json!("end"), &json!("Done.")));
    assert_eq!(done["denied"].as_array().unwrap().len(), 1);
    assert!(find("session")["file"].as_str().unwrap().ends_with(".jsonl"));
    let ran = crab.mock(&["-o", "json", "-p", "go"]).ok();
    assert_eq!(ran.json()[0]["type"], "done");
    assert_eq!(ran.json().len(), 1);
    crab.script(&[r#"{"error":{"status":401,"message":"bad key"}}"#]);
    let done = crab.mock(&["-o", "json", "-p", "go"]).fails(5, "bad key").json().remove(0);
    assert_eq!((&done["exit"], &done["error"]["kind"]), (&json!(5), &json!("auth")));
}

#[test]
fn failures_before_the_run_keep_the_json_formats() {
    let crab = Crab::new();
    let lines = crab.mock(&["-o", "stream-json", "--nope"]).fails(2, "--nope").json();
    assert_eq!((&lines[0]["type"], &lines[1]["type"], lines.len()), (&json!("session"), &json!("done"), 2));
    let lines = crab.run(&["-o", "json", "-m", "openai/x", "-p", "x"]).fails(5, "OPENAI_API_KEY").json();
    assert_eq!(
        (&lines[0]["type"], &lines[0]["error"]["kind"], lines.len()),
        (&json!("done"), &json!("auth"), 1)
    );
}

#[test]
fn a_prompt_goes_to_no_other_provider_than_the_one_that_was_meant() {
    let crab = Crab::new();
    let run = |args: &[&str], variables: &[(&str, &str)]| -> crate::crab::Ran {
        let mut command = crab.command(args);
        command.env("ANTHROPIC_API_KEY", "sk-ant-123456").env("ANTHROPIC_BASE_URL", "http://127.0.0.1:1");
        command.envs(variables.iter().copied()).output().unwrap().into()
    };
    run(&["-m", "opnai/gpt-5", "-p", "x"], &[]).fails(2, "opnai");
    std::fs::create_dir(crab.home()).unwrap();
    std::fs::write(crab.home().join("config.toml"), "model = \"anthropic/x\"\n").unwrap();
    assert_eq!(run(&["-p", "hi"], &[("CRAB_PROVIDER", "mock")]).ok().out, "hi\n");
    assert_eq!(run(&["--config", "provider=mock", "-p", "hi"], &[]).ok().out, "hi\n");
    assert_eq!(run(&["--provider", "mock", "-p", "hi"], &[]).ok().out, "hi\n");
    crab.run(&["trust", "/no/such/folder"]).fails(2, "/no/such/folder");
}

#[test]
fn a_session_goes_on_and_can_be_forked() {
    let crab = Crab::new();
    crab.mock(&["-p", "first"]).ok();
    crab.mock(&["-c", "-p", "second"]).ok();
    assert_eq!(crab.sessions().len(), 1);
    let file = crab.sessions().remove(0);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("first") && text.contains("second"));
    crab.mock(&["-c", "--fork", "-p", "third"]).ok();
    assert_eq!(crab.sessions().len(), 2);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    crab.mock(&["--no-session", "-p", "fourth"]).ok();
    assert_eq!(crab.sessions().len(), 2);
    crab.mock(&["--session", "own.jsonl", "-p", "fifth"]).ok();
    assert!(crab.get("own.jsonl").contains("fifth"));
    let listed = crab.run(&["sessions"]).ok().out;
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let id = listed.split_whitespace().next().unwrap().to_owned();
    crab.mock(&["-r", &id[..8], "-p", "sixth"]).ok();
}

#[test]
fn a_pipe_or_a_strange_id_in_the_place_of_a_session_is_refused_at_once() {
    let crab = Crab::new();
    let made = std::process::Command::new("mkfifo").arg(crab.dir().join("pipe")).status().unwrap();
    assert!(made.success());
    crab.mock(&["--session", "pipe", "-p", "x"]).fails(1, "regular file");
    crab.put("s.jsonl", "{\"type\":\"session\",\"version\":1,\"id\":\"../../x\",\"cwd\":\"/\",\"created\":\"2026-01-01T00:00:00.000Z\"}\n");
    crab.mock(&["--session", "s.jsonl", "-p", "x"]).fails(1, "its id");
}

#[test]
fn a_key_that_became_known_later_is_not_sent_nor_copied() {
    let crab = Crab::new();
    crab.mock(&["-p", "it is sk-ant-CANARY777"]).ok();
    let mut command = crab.command(&["--provider", "mock", "-c", "--fork", "-p", "again"]);
    assert!(command.env("ANTHROPIC_API_KEY", "sk-ant-CANARY777").output().unwrap().status.success());
    let sessions = crab.sessions();
    let texts: Vec<String> = sessions.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    assert_eq!(texts.iter().filter(|text| text.contains("CANARY777")).count(), 1);
    assert!(texts.iter().any(|text| text.contains("[redacted ANTHROPIC_API_KEY]")));
}

#[test]
fn what_crab_makes_is_private() {
    let crab = Crab::new();
    crab.mock(&["-p", "x"]).ok();
    let file = crab.sessions().remove(0);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(file.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(std::fs::metadata(crab.home()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn permissions_decide_what_runs() {
    let crab = Crab::new();
    let touch = r#"{"tool_calls":[{"name":"bash","arguments":{"command":"touch made"}}]}"#;
    let done = r#"{"text":"done"}"#;
    crab.script(&[touch, done]);
    let ran = crab.mock(&["-p", "go"]).ok();
    assert!(ran.err.contains("--yolo") && !crab.dir().join("made").exists(), "{}", ran.err);
    crab.mock(&["--yolo", "--deny", "bash(touch *)", "-p", "go"]).ok();
    crab.mock(&["--allow", "bash(touch other)", "-p", "go"]).ok();
    crab.mock(&["--yolo", "--read-only", "-p", "go"]).ok();
    crab.mock(&["--yolo", "--tools", "read", "-p", "go"]).ok();
    assert!(!crab.dir().join("made").exists());
    crab.mock(&["--allow", "bash(touch *)", "-p", "go"]).ok();
    assert!(crab.dir().join("made").exists());
}

#[test]
fn a_deny_rule_keeps_a_folder_from_every_reader() {
    let crab = Crab::new();
    crab.put("secrets/a", "needle HIDDEN-1\n");
    crab.put("sub/b", "needle\n");
    crab.put(".crab/config.toml", "[permissions]\ndeny = [\"read(secrets/**)\"]\n");
    std::fs::create_dir(crab.dir().join(".git")).unwrap();
    let calls = [
        r#"{"name":"read","arguments":{"path":"../secrets/a"}}"#,
        r#"{"name":"grep","arguments":{"pattern":"needle","path":".."}}"#,
        r#"{"name":"grep","arguments":{"pattern":"needle","path":"../secrets/a"}}"#,
        r#"{"name":"glob","arguments":{"pattern":"../secrets/*"}}"#,
    ];
    crab.script(&[&format!("{{\"tool_calls\":[{}]}}", calls.join(",")), r#"{"text":"done"}"#]);
    let ran = crab.mock(&["-C", "sub", "-o", "stream-json", "-p", "go"]).ok();
    let outputs: Vec<String> = ran
        .json()
        .iter()
        .filter(|line| line["type"] == "tool_result")
        .map(|line| line["output"].to_string())
        .collect();
    assert_eq!(outputs.len(), 4);
    assert!(outputs.iter().all(|output| !output.contains("HIDDEN-1")), "{outputs:?}");
    assert!(outputs[1].contains("b:1:needle"), "{outputs:?}");
    assert!(!outputs[3].contains("secrets/a"), "{outputs:?}");
}

#[test]
fn piped_text_is_a_block_of_its_own() {
    let crab = Crab::new();
    let ran =
        crab.command(&["--provider", "mock", "-p", "sum up"]).write_stdin("DATA-1 @x\n").output().unwrap();
    assert_eq!(
        String::from_utf8(ran.stdout).unwrap(),
        "sum up\n\n<stdin bytes=\"10\">\nDATA-1 @x\n</stdin>\n"
    );
    let ran = crab.command(&["--provider", "mock"]).write_stdin("just this").output().unwrap();
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), "just this\n");
    let ran =
        crab.command(&["--provider", "mock", "-p", "x"]).write_stdin(b"a\0b".to_vec()).output().unwrap();
    assert_eq!(ran.status.code(), Some(2));
}

#[test]
fn a_file_named_in_the_prompt_is_attached() {
    let crab = Crab::new();
    crab.put("notes.txt", "NOTES-1");
    let ran = crab.mock(&["-p", "explain @notes.txt and mail a@b.c"]).ok();
    assert!(ran.out.contains("NOTES-1") && ran.out.contains("a@b.c"), "{}", ran.out);
}

#[test]
fn a_reader_that_leaves_ends_the_run_quietly() {
    let crab = Crab::new();
    let long: String = (0..20_000).map(|n| format!("line {n}\\n")).collect();
    crab.script(&[&format!("{{\"text\":\"{long}\"}}")]);
    let mut child = crab.spawn(&["--provider", "mock", "-p", "go"]);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "line 0\n");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()), (Some(0), ""));
    assert!(std::fs::read_to_string(crab.sessions().remove(0)).unwrap().contains("\"user\""));
}

#[test]
fn a_slow_reader_gets_every_byte() {
    let crab = Crab::new();
    let long: String = (0..200_000).map(|n| format!("{n} ")).collect();
    crab.script(&[&format!("{{\"text\":\"{long}\",\"chunk\":7}}")]);
    let mut child = crab.spawn(&["--provider", "mock", "-p", "go"]);
    // The pipe is full long before anybody reads: the session is saved first.
    until("the session's answer", || {
        crab.sessions()
            .first()
            .is_some_and(|file| std::fs::read_to_string(file).unwrap_or_default().contains("199999"))
    });
    let mut all = String::new();
    child.stdout.take().unwrap().read_to_string(&mut all).unwrap();
    assert_eq!(all.trim_end(), long.trim_end());
    assert!(child.wait().unwrap().success());
}

/// Starts a run whose command waits for ever, and gives the pid of the command's child.
fn hanging(crab: &Crab) -> (std::process::Child, String) {
    crab.script(&[
        r#"{"tool_calls":[{"name":"bash","arguments":{"command":"sleep 1000 & echo $! > pid.tmp; mv pid.tmp pid; wait"}}]}"#,
        r#"{"text":"resumed"}"#,
    ]);
    let child = crab.spawn(&["--provider", "mock", "--yolo", "-p", "go"]);
    until("the command's start", || crab.dir().join("pid").exists());
    (child, crab.get("pid"))
}

fn signal(child: &std::process::Child, name: &str) {
    let done =
        std::process::Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap();
    assert!(done.success());
}

#[cfg(target_os = "linux")]
#[test]
fn a_killed_crab_leaves_no_command() {
    let crab = Crab::new();
    let (mut child, pid) = hanging(&crab);
    assert!(runs(&pid));
    child.kill().unwrap();
    child.wait().unwrap();
    until("the end of the command", || !runs(&pid));
    crab.script(&[r#"{"text":"resumed"}"#]);
    assert_eq!(crab.mock(&["-c", "-p", "again"]).ok().out, "resumed\n");
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_ends_the_run_with_its_code_and_the_session_goes_on() {
    for (name, code) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let crab = Crab::new();
        let (mut child, pid) = hanging(&crab);
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(code), "{name}");
        assert!(!runs(&pid), "{name}");
        crab.script(&[r#"{"text":"resumed"}"#]);
        assert_eq!(crab.mock(&["-c", "-p", "again"]).ok().out, "resumed\n");
        let text = std::fs::read_to_string(crab.sessions().remove(0)).unwrap();
        assert!(text.contains("interrupted"), "{text}");
    }
}

#[test]
fn keys_reach_neither_commands_nor_files_nor_output() {
    let crab = Crab::new();
    crab.put("notes.txt", "the key is sk-CANARY12345\n");
    crab.script(&[
        r#"{"tool_calls":[{"name":"bash","arguments":{"command":"env; cat notes.txt; seq 9999"}},{"name":"read","arguments":{"path":"notes.txt"}}]}"#,
        r#"{"text":"done"}"#,
    ]);
    let mut command = crab.command(&["--provider", "mock", "--yolo", "-v", "-p", "my sk-CANARY12345"]);
    let output = command.env("OPENAI_API_KEY", "sk-CANARY12345").output().unwrap();
    assert!(output.status.success());
    let mut seen =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    seen.push_str(&std::fs::read_to_string(crab.sessions().remove(0)).unwrap());
    for folder in std::fs::read_dir(crab.home().join("outputs")).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            seen.push_str(&std::fs::read_to_string(file.unwrap().path()).unwrap());
        }
    }
    assert!(seen.contains("[redacted OPENAI_API_KEY]") && !seen.contains("CANARY"), "{seen}");
}

#[test]
fn a_home_that_cannot_be_used_costs_a_warning_and_no_answer() {
    let crab = Crab::new();
    let output =
        crab.command(&["--provider", "mock", "-p", "hi"]).env("CRAB_HOME", "/dev/null/x").output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"hi\n"[..]), "{err}");
    assert!(err.contains("not being saved"), "{err}");
}

#[test]
fn a_limit_of_file_sizes_costs_the_session_and_no_answer() {
    let crab = Crab::new();
    let line = format!("ulimit -f 0; exec {} --provider mock -p hi", env!("CARGO_BIN_EXE_crab"));
    let mut command = assert_cmd::Command::new("bash");
    command.env_clear().envs(crab.environment()).current_dir(crab.dir()).args(["-c", &line]);
    let output = command.timeout(crate::crab::PATIENCE).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"hi\n"[..]), "{err}");
    assert!(err.contains("not being saved"), "{err}");
}

#[test]
fn the_configuration_says_where_each_value_comes_from() {
    let crab = Crab::new();
    std::fs::create_dir(crab.home()).unwrap();
    std::fs::write(
        crab.home().join("config.toml"),
        "model = \"mock/a\"\n[providers.mine]\nbase_url = \"http://127.0.0.1:1\"\n",
    )
    .unwrap();
    crab.put(
        ".crab/config.toml",
        "[providers.mine]\nbase_url = \"http://127.0.0.1:2\"\n[permissions]\ndeny = [\"bash\"]\n",
    );
    let ran = crab.run(&["config", "--config", "max_turns=7"]).ok();
    assert!(ran.out.contains("providers.mine.base_url = \"http://127.0.0.1:1\""), "{}", ran.out);
    assert!(ran.out.contains("max_turns = 7  # --config") && ran.out.contains("[\"bash\"]"), "{}", ran.out);
    assert!(ran.err.contains("crab trust"), "{}", ran.err);
    crab.run(&["trust"]).ok();
    assert!(crab.run(&["config"]).ok().out.contains("http://127.0.0.1:2"));
}

#[test]
fn a_project_that_is_not_trusted_can_neither_stop_nor_widen_a_run() {
    let crab = Crab::new();
    for text in [
        "providers = 3\n",
        "provider = 3\n",
        "tools = [\"web_fetch\", \"read\"]\n",
        "[permissions]\nallow = 3\n",
    ] {
        crab.put(".crab/config.toml", text);
        let ran = crab.mock(&["-p", "hi"]).ok();
        assert!(ran.err.contains("ignored"), "{text}: {}", ran.err);
    }
    // A file in place of the home: nothing is trusted, and the answer comes.
    crab.put("file", "");
    crab.put(".crab/config.toml", "model = \"mock/x\"\n");
    let output = crab
        .command(&["--provider", "mock", "-p", "hi"])
        .env("CRAB_HOME", crab.dir().join("file"))
        .output()
        .unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"hi\n"[..]));
}

#[test]
fn a_huge_prompt_is_sent_whole() {
    let crab = Crab::new();
    let prompt = "wörd ".repeat(60_000);
    let output = crab.command(&["--provider", "mock"]).write_stdin(prompt.clone()).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim_end(), prompt.trim_end());
}

#[test]
fn the_first_minute_without_a_key_takes_four_lines() {
    let crab = Crab::new();
    let ran = crab.run(&["-p", "hello"]).fails(5, "crab: no model is chosen and no key was found");
    assert_eq!(ran.err.lines().count(), 4, "{}", ran.err);
    for word in ["ANTHROPIC_API_KEY", "a model of your own", "--provider mock", "crab doctor"] {
        assert!(ran.err.contains(word), "{word}: {}", ran.err);
    }
}

#[test]
fn the_doctor_says_what_is_wrong_and_exits_so() {
    let crab = Crab::new();
    let ran = crab.run(&["doctor"]);
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("BAD   model"), "{}", ran.out);
    let well: crate::crab::Ran =
        crab.command(&["doctor"]).env("OPENAI_API_KEY", "sk-doctor").output().unwrap().into();
    assert!(
        well.code == 0 && well.out.contains("openai/") && !well.out.contains("sk-doctor"),
        "{}",
        well.out
    );
    std::fs::create_dir_all(crab.home()).unwrap();
    std::fs::set_permissions(crab.home(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let open = crab.mock(&["doctor", "-o", "json"]);
    let checks: Value = serde_json::from_str(&open.out).unwrap();
    let files = checks.as_array().unwrap().iter().find(|check| check["check"] == "files").unwrap();
    assert_eq!((open.code, &files["state"]), (1, &json!("bad")));
}
