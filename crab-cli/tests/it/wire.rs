//! What goes over the wire: recordings, and that nothing goes anywhere else.

use serde_json::Value;

use crate::crab::{Crab, Ran};
use crate::server::{Answer, Server, calls, fails, says};

const KEY: &str = "sk-recorded-0123456789abcdef";

/// Crab with a key, against this service.
fn ask(crab: &Crab, server: &Server, args: &[&str]) -> Ran {
    let base = server.base();
    let common = ["--provider", "openai", "--base-url", &base, "-m", "fake", "--yolo", "-q"];
    crab.command(&[&common[..], args].concat()).env("OPENAI_API_KEY", KEY).output().unwrap().into()
}

fn lines(recording: &str) -> Vec<Value> {
    recording.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A run with everything that can go wrong on the way: a busy service, a broken connection, a call, half an answer.
fn eventful() -> Vec<Answer> {
    let broken = Answer { breaks: true, ..says(&[]) };
    let half = b"data: {\"choices\":[{\"delta\":{\"content\":\"Half \"}}]}\n\n".to_vec();
    vec![
        fails(529, "busy"),
        Answer { body: b"data: {}\n\n".to_vec(), ..broken.clone() },
        calls("read", r#"{"path":"a.txt"}"#),
        Answer { body: half, ..broken },
        says(&["an answer", " – 世界"]),
    ]
}

#[test]
fn a_recorded_run_runs_again_without_network_and_key() {
    let crab = Crab::new();
    crab.put("a.txt", "content");
    let server = Server::start(eventful());
    let first = ask(&crab, &server, &["-p", "go", "--record", "run.jsonl"]).ok();
    assert_eq!(first.out, "Half an answer – 世界\n");
    assert_eq!(server.asked().len(), 5);
    drop(server);
    let again = crab.run(&["--replay", "run.jsonl", "--yolo"]).ok();
    assert_eq!(again.out, first.out);
    assert!(again.err.contains("busy") && again.err.contains("read a.txt"), "{}", again.err);
    assert!(!again.err.contains("differs"), "{}", again.err);
    // Other files give other results, which the recording cannot know.
    crab.put("a.txt", "changed");
    let other = crab.run(&["--replay", "run.jsonl", "--yolo"]).ok();
    assert_eq!(other.out, first.out);
    assert!(other.err.contains("request 4 differs from the recorded one at `messages[2]`"), "{}", other.err);
}

#[test]
fn a_failed_run_fails_again_in_the_same_words() {
    let crab = Crab::new();
    let server = Server::start(vec![fails(401, "Incorrect API key provided")]);
    let first = ask(&crab, &server, &["-p", "go", "--record", "run.jsonl"]).fails(5, "Incorrect API key");
    assert!(!crab.get("run.jsonl").contains("sk-recorded"));
    let again = crab.run(&["-q", "--replay", "run.jsonl"]).fails(5, "Incorrect API key");
    let words = |ran: &Ran| ran.err.split("): ").nth(1).map(str::to_owned);
    assert_eq!(
        words(&first).map(|w| w.split(';').next().unwrap().to_owned()),
        words(&again).map(|w| w.split(';').next().unwrap().to_owned())
    );
    assert!(again.err.contains("OPENAI_API_KEY"), "where the key came from is told: {}", again.err);
    let nobody = crab.run(&["--replay", "run.jsonl", "-p", "a"]);
    assert_eq!(nobody.code, 5);
}

#[test]
fn no_secret_is_in_a_recording() {
    let crab = Crab::new();
    let echo = format!("your key is {KEY}");
    let org = r#"Limit for organization org-AbCdEfGh12345678 reached"#;
    let server = Server::start(vec![fails(429, org), says(&["so ", &echo])]);
    crab.put("key.txt", KEY);
    ask(&crab, &server, &["-p", &format!("my key is {KEY} @key.txt"), "--record", "run.jsonl"]).ok();
    let recording = crab.get("run.jsonl");
    for secret in ["sk-recorded", "0123456789abcdef", "c00kie", "acme-inc", "AbCdEfGh12345678"] {
        assert!(!recording.contains(secret), "{secret} is in {recording}");
    }
    let lines = lines(&recording);
    let request = lines.iter().find(|line| line["type"] == "request").unwrap();
    assert_eq!(request["headers"]["authorization"], "[redacted]");
    assert!(request["body"]["messages"].to_string().contains("[redacted OPENAI_API_KEY]"));
    let response = lines.iter().find(|line| line["type"] == "response").unwrap();
    assert_eq!(response["headers"]["x-request-id"], "req_1");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(crab.dir().join("run.jsonl").metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_is_no_recording_is_left_alone_and_refused() {
    let crab = Crab::new();
    crab.put("notes.txt", "mine\n");
    let server = Server::start(vec![says(&["a"]), says(&["b"])]);
    ask(&crab, &server, &["-p", "go", "--record", "notes.txt"]).fails(2, "name another file");
    assert_eq!(crab.get("notes.txt"), "mine\n");
    crab.run(&["--replay", "notes.txt"]).fails(2, "line 1");
    crab.run(&["--replay", "missing.jsonl"]).fails(2, "missing.jsonl");
    crab.run(&["--replay", "notes.txt", "-m", "x"]).fails(2, "--model");
    crab.mock(&["--record", "run.jsonl", "-p", "x"]).fails(2, "mock");
    ask(&crab, &server, &["-p", "go", "--record", "run.jsonl"]).ok();
    ask(&crab, &server, &["-p", "go", "--record", "run.jsonl"]).ok();
    assert_eq!(crab.run(&["-q", "--replay", "run.jsonl"]).out, "b\n");
    // A run that was killed leaves half a line, and half a recording.
    let whole = crab.get("run.jsonl");
    for cut in (0..whole.len()).step_by(97).filter(|at| whole.is_char_boundary(*at)) {
        crab.put("half.jsonl", &whole[..cut]);
        let ran = crab.run(&["-q", "--replay", "half.jsonl"]);
        assert!(
            !ran.err.contains("panicked") && [0, 1, 2, 4].contains(&ran.code),
            "{cut}: {} {}",
            ran.code,
            ran.err
        );
    }
}

#[test]
fn a_replay_keeps_to_the_limits_of_its_run() {
    let crab = Crab::new();
    let server = Server::start(vec![calls("read", r#"{"path":"a"}"#), says(&["the end"])]);
    ask(&crab, &server, &["-p", "go", "--max-turns", "2", "--tools", "read", "--record", "run.jsonl"]).ok();
    let again = crab.run(&["--replay", "run.jsonl"]).ok();
    assert_eq!(again.out, "the end\n");
    let stopped = Server::start(vec![calls("read", r#"{"path":"a"}"#)]);
    ask(&crab, &stopped, &["-p", "go", "--max-turns", "1", "--record", "run.jsonl"]).fails(3, "--max-turns");
    crab.run(&["--replay", "run.jsonl"]).fails(3, "--max-turns");
}

#[test]
fn a_fallback_that_cannot_be_used_is_left_out() {
    let crab = Crab::new();
    let server = Server::start(vec![fails(529, "busy"), says(&["spare"])]);
    let config = format!(
        "fallback = [\"broken/x\", \"spare/y\"]\n[providers.broken]\nbase_url = \"nonsense\"\n[providers.spare]\nbase_url = \"{}\"\n\
         [providers.openai]\nmax_retries = 0\n",
        server.base()
    );
    std::fs::create_dir_all(crab.home()).unwrap();
    std::fs::write(crab.home().join("config.toml"), config).unwrap();
    let base = server.base();
    let mut command = crab.command(&["--provider", "openai", "--base-url", &base, "-m", "fake", "-p", "go"]);
    let ran: Ran = command.env("OPENAI_API_KEY", KEY).output().unwrap().into();
    assert_eq!((ran.code, ran.out.as_str()), (0, "spare\n"), "{}", ran.err);
    assert!(ran.err.contains("`broken/x` of `fallback` is left out"), "{}", ran.err);
    assert!(ran.err.contains("the rest of this turn goes to `spare/y`"), "{}", ran.err);
}

#[test]
fn a_list_of_models_may_hold_anything() {
    let crab = Crab::new();
    let answer = |body: &str| Answer { status: 200, body: body.as_bytes().to_vec(), breaks: false };
    let long = format!(
        r#"{{"data":[{{"id":"{}"}},{{"id":"b\u001b[2J","context_length":500}}]}}"#,
        "a".repeat(70_000)
    );
    let refusal = r#"{"error":{"message":"you have no right"}}"#;
    let server = Server::start(vec![answer(&long), answer(refusal), fails(401, "no"), answer("{}")]);
    let base = server.base();
    let ask = || crab.run(&["models", "vllm", "--base-url", &base]);
    let listed = ask().ok();
    assert!(
        listed.out.len() < 1_000 && listed.out.contains("b^[[2J") && listed.out.contains("500"),
        "{}",
        listed.out
    );
    ask().fails(4, "you have no right");
    ask().fails(5, "no");
    ask().fails(4, "crab: ");
    // Where crab knows models by itself they are shown, and the failure is one all the same.
    let known = crab.run(&["models", "deepseek"]).fails(5, "DEEPSEEK_API_KEY");
    assert!(known.out.contains("deepseek-"), "{}", known.out);
}

#[test]
fn models_are_listed_by_the_service_that_is_asked() {
    let crab = Crab::new();
    let body =
        br#"{"data":[{"id":"zeta","context_length":32000},{"id":"alpha","max_model_len":8192}]}"#.to_vec();
    let server = Server::start(vec![Answer { status: 200, body, breaks: false }, fails(500, "down")]);
    let base = server.base();
    let list = crab.run(&["models", "vllm", "--base-url", &base]).ok();
    let names: Vec<&str> = list.out.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(names, ["MODEL", "alpha", "zeta"]);
    assert!(server.asked()[0].line.starts_with("GET /v1/models "), "{:?}", server.asked());
    crab.run(&["models", "vllm", "--base-url", &base]).fails(4, "down");
    crab.run(&["models", "nonsense"]).fails(2, "nonsense");
    let services = crab.run(&["models"]).ok();
    assert!(
        services.out.contains("deepseek") && services.out.contains("set DEEPSEEK_API_KEY"),
        "{}",
        services.out
    );
}

#[test]
fn a_server_on_this_machine_is_asked_for_its_model_when_none_is_named() {
    let crab = Crab::new();
    let list = Answer { status: 200, body: br#"{"data":[{"id":"local-7b"}]}"#.to_vec(), breaks: false };
    let server = Server::start(vec![list, says(&["hi"])]);
    let base = server.base();
    let ran = crab.run(&["--provider", "llamacpp", "--base-url", &base, "-p", "go"]).ok();
    assert_eq!(ran.out, "hi\n");
    assert!(server.asked()[1].body.contains("\"model\":\"local-7b\""), "{:?}", server.asked());
    let none = Server::start(vec![Answer { status: 200, body: b"{\"data\":[]}".to_vec(), breaks: false }]);
    crab.run(&["--provider", "llamacpp", "--base-url", &none.base(), "-p", "go"])
        .fails(2, "no model is chosen");
}

#[test]
fn a_whole_session_speaks_to_its_provider_and_to_nobody_else() {
    let crab = Crab::new();
    crab.put("a.txt", "content");
    let proxy = Server::start(vec![
        calls("read", r#"{"path":"a.txt"}"#),
        calls("bash", r#"{"command":"true"}"#),
        says(&["done"]),
        says(&["more"]),
    ]);
    let address = format!("http://127.0.0.1:{}", proxy.port);
    let ask = |args: &[&str]| -> Ran {
        let common =
            ["--provider", "openai", "--base-url", "http://provider.invalid/v1", "-m", "fake", "--yolo"];
        let mut command = crab.command(&[&common[..], args].concat());
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
            command.env(name, &address);
        }
        command.env("OPENAI_API_KEY", KEY).output().unwrap().into()
    };
    ask(&["-p", "go"]).ok();
    ask(&["-c", "-p", "on"]).ok();
    let lines: Vec<String> = proxy.asked().into_iter().map(|asked| asked.line).collect();
    assert_eq!(lines, ["POST http://provider.invalid/v1/chat/completions HTTP/1.1"; 4]);
    // What was sent once is the beginning of what is sent next, byte for byte: caches live on that.
    let bodies: Vec<String> = proxy.asked().into_iter().map(|asked| asked.body).collect();
    let said =
        |body: &str| body[body.find("\"messages\":").unwrap()..body.find("],\"model\"").unwrap()].to_owned();
    for pair in bodies.windows(2) {
        assert!(said(&pair[1]).starts_with(&said(&pair[0])), "{}\n{}", pair[0], pair[1]);
    }
    for quiet in [&["sessions"][..], &["config"], &["doctor"], &["--version"], &["--help"]] {
        ask(quiet);
    }
    assert_eq!(proxy.asked().len(), 4);
}

/// Datagrams sent, packets that had no way to go, and connections begun in this network.
#[cfg(target_os = "linux")]
fn counters() -> (u64, u64, u64) {
    let text = std::fs::read_to_string("/proc/net/snmp").unwrap();
    let value = |protocol: &str, name: &str| {
        let mut lines = text.lines().filter(|line| line.starts_with(protocol)).map(str::split_whitespace);
        let at = lines.next().unwrap().position(|column| column == name).unwrap();
        lines.next().unwrap().nth(at).unwrap().parse().unwrap()
    };
    (value("Udp:", "OutDatagrams"), value("Ip:", "OutNoRoutes"), value("Tcp:", "ActiveOpens"))
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "runs in a network of its own, made by the test below"]
fn inside_a_network_of_its_own() {
    let crab = Crab::new();
    crab.put("a.txt", "content");
    let server = Server::start(vec![
        calls("read", r#"{"path":"a.txt"}"#),
        calls("bash", r#"{"command":"true"}"#),
        says(&["done"]),
    ]);
    let before = counters();
    let ran = ask(&crab, &server, &["-p", "go"]).ok();
    assert_eq!(ran.out, "done\n");
    let after = counters();
    assert_eq!((after.0, after.1), (before.0, before.1), "something was sent elsewhere");
    assert!(after.2 - before.2 <= 3, "{} connections for 3 requests", after.2 - before.2);
    // A look-up of a name must show in these figures, or they prove nothing.
    let looked_up = std::net::ToSocketAddrs::to_socket_addrs("crab.invalid:80");
    let control = counters();
    assert!(
        looked_up.is_err() && (control.0, control.1) != (after.0, after.1),
        "look-ups cannot be seen here"
    );
}

#[cfg(target_os = "linux")]
#[test]
#[expect(clippy::print_stderr, reason = "a test that did not run must say so")]
fn in_a_network_without_ways_out_nothing_looks_for_one() {
    let alone = |what: &str| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--map-root-user", "--net", "sh", "-c"]).arg(format!("ip link set lo up && {what}"));
        command.output()
    };
    if !alone("true").is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no network namespace can be made here");
        return;
    }
    let own = std::env::current_exe().unwrap();
    let inner = "--exact wire::inside_a_network_of_its_own --ignored --nocapture";
    let output = alone(&format!("exec '{}' {inner}", own.display())).unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if text.contains("look-ups cannot be seen here") {
        eprintln!("skipped: look-ups cannot be seen here");
        return;
    }
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
