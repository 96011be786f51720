//! The prompt from arguments and piped standard input.

use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use rustix::fs::{FileType, fstat};
use tokio::sync::mpsc;

/// The most that is read, in bytes.
const LIMIT: usize = 10_000_000;
/// How long a prompt waits for the first byte of standard input.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why there is no prompt. All of it is wrong usage.
#[derive(Debug)]
pub(crate) enum Error {
    /// Neither arguments nor standard input say anything.
    Empty,
    /// It is not text from this byte on.
    NotText(usize),
    /// It is too much.
    TooLong,
    /// It can't be read.
    Io(io::Error),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str(
                "no prompt: give one as an argument or on standard input\n\
                 try `crab -p \"what does this do\"` or `crab --help`",
            ),
            Self::NotText(at) => write!(
                f,
                "standard input is not UTF-8 text (byte {at})\n\
                 convert it, or save it and name the file in the prompt"
            ),
            Self::TooLong => f.write_str(
                "standard input is longer than the limit of 10 MB\nsave it and name the file in the prompt",
            ),
            Self::Io(err) => write!(f, "cannot read standard input: {err}"),
        }
    }
}

impl From<io::Error> for Error {
    fn from(err: io::Error) -> Self {
        Self::Io(err)
    }
}

/// The prompt, and what to tell the user about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Prompt {
    /// The words of the command line.
    pub(crate) words: String,
    /// What came on standard input: in marks behind words, else the prompt itself. Nothing in it is an attachment.
    pub(crate) piped: Option<String>,
    /// A line for standard error.
    pub(crate) note: Option<&'static str>,
}

/// Puts the prompt together. A word `-` is not part of it: it says to wait for standard input however long it takes.
pub(crate) async fn gather(words: &[String]) -> Result<Prompt, Error> {
    let source = source(io::stdin())?;
    gather_from(words, source, PATIENCE).await
}

/// The words of the command line, without a `-`.
pub(crate) fn words(words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(String::as_str).filter(|word| *word != "-").collect();
    words.join(" ")
}

/// Standard input when it is worth reading: a pipe, a socket or a file. A terminal is not read, nor is `/dev/null`.
fn source(stdin: impl AsFd + IsTerminal) -> io::Result<Option<File>> {
    if stdin.is_terminal() {
        return Ok(None);
    }
    let kind = FileType::from_raw_mode(fstat(&stdin)?.st_mode);
    match kind {
        FileType::Fifo | FileType::Socket | FileType::RegularFile => {
            Ok(Some(stdin.as_fd().try_clone_to_owned()?.into()))
        }
        _ => Ok(None),
    }
}

async fn gather_from(said: &[String], source: Option<File>, patience: Duration) -> Result<Prompt, Error> {
    let prompt = words(said);
    let has_prompt = !prompt.trim().is_empty();
    let patience = (has_prompt && !said.iter().any(|word| word == "-")).then_some(patience);
    let mut note = None;
    let data = match source {
        None => String::new(),
        Some(source) => match read(source, patience).await? {
            Some(bytes) => text(bytes)?,
            None => {
                note = Some(
                    "nothing came on standard input for 3 s; going on without it (an argument `-` waits for it)",
                );
                String::new()
            }
        },
    };
    match (has_prompt, data.trim().is_empty()) {
        (false, true) => Err(Error::Empty),
        (false, false) => Ok(Prompt { words: String::new(), piped: Some(data), note }),
        (true, true) => Ok(Prompt { words: prompt, piped: None, note }),
        (true, false) => Ok(Prompt { words: prompt, piped: Some(block(&data)), note }),
    }
}

/// Piped data between marks that it does not contain itself, so that it can't pass for the task.
fn block(data: &str) -> String {
    let mut tag = "stdin".to_owned();
    while data.contains(&format!("</{tag}>")) {
        tag.push('-');
    }
    let newline = if data.ends_with('\n') { "" } else { "\n" };
    format!("<{tag} bytes=\"{}\">\n{data}{newline}</{tag}>", data.len())
}

fn text(bytes: Vec<u8>) -> Result<String, Error> {
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        return Err(Error::NotText(at));
    }
    String::from_utf8(bytes).map_err(|err| Error::NotText(err.utf8_error().valid_up_to()))
}

/// Reads to the end. `None` when nothing came in time. The reading thread is left behind when it is not needed any
/// more: a pipe that never closes must not keep crab from ending.
async fn read(source: File, patience: Option<Duration>) -> Result<Option<Vec<u8>>, Error> {
    let (send, mut pieces) = mpsc::channel(4);
    thread::Builder::new().name("stdin".into()).spawn(move || pump(source, &send))?;
    let first = match patience {
        Some(patience) => match tokio::time::timeout(patience, pieces.recv()).await {
            Ok(first) => first,
            Err(_) => return Ok(None),
        },
        None => pieces.recv().await,
    };
    let mut bytes = vec![];
    let mut next = first;
    while let Some(piece) = next {
        bytes.extend(piece?);
        if bytes.len() > LIMIT {
            return Err(Error::TooLong);
        }
        next = pieces.recv().await;
    }
    Ok(Some(bytes))
}

fn pump(mut source: File, send: &mpsc::Sender<io::Result<Vec<u8>>>) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let piece = match source.read(&mut buffer) {
            Ok(0) => return,
            Ok(n) => Ok(buffer[..n].to_vec()),
            Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(10));
                continue;
            }
            Err(err) => Err(err),
        };
        let is_last = piece.is_err();
        if send.blocking_send(piece).is_err() || is_last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;

    use super::*;

    fn piped(data: &[u8]) -> Option<File> {
        let (read, mut write) = io::pipe().unwrap();
        let data = data.to_vec();
        // The reader may stop early, which is what some of the tests are about.
        thread::spawn(move || drop(write.write_all(&data)));
        Some(File::from(OwnedFd::from(read)))
    }

    async fn run(said: &[&str], source: Option<File>) -> Result<Prompt, Error> {
        let said: Vec<_> = said.iter().map(|word| (*word).to_owned()).collect();
        gather_from(&said, source, Duration::from_secs(60)).await
    }

    #[track_caller]
    fn check(said: &[&str], data: Option<&[u8]>, expected: Result<&str, &str>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let got = runtime.block_on(run(said, data.and_then(piped)));
        match expected {
            Ok(expected) => {
                let Prompt { words, piped, note } = got.unwrap();
                let text = match piped {
                    Some(piped) if words.is_empty() => piped,
                    Some(piped) => format!("{words}\n\n{piped}"),
                    None => words,
                };
                assert_eq!((text.as_str(), note), (expected, None));
            }
            Err(part) => {
                let err = got.unwrap_err().to_string();
                assert!(err.contains(part), "{err}");
            }
        }
    }

    #[test]
    fn words_and_pipe_make_the_prompt() {
        check(&["sum", "up"], None, Ok("sum up"));
        check(&["sum", "up"], Some(b""), Ok("sum up"));
        check(&["sum", "up"], Some(b"DATA-1\n"), Ok("sum up\n\n<stdin bytes=\"7\">\nDATA-1\n</stdin>"));
        check(&["sum up", "-"], Some(b"x"), Ok("sum up\n\n<stdin bytes=\"1\">\nx\n</stdin>"));
        check(&[], Some(b"just this\n"), Ok("just this\n"));
        check(&["-"], Some(b"just this\n"), Ok("just this\n"));
    }

    #[test]
    fn nothing_at_all_is_wrong_usage() {
        check(&[], None, Err("no prompt"));
        check(&[], Some(b" \n"), Err("no prompt"));
        check(&[" "], Some(b""), Err("no prompt"));
    }

    #[test]
    fn what_is_no_text_or_never_ends_is_refused() {
        check(&["x"], Some(b"ab\0c"), Err("not UTF-8 text (byte 2)"));
        check(&["x"], Some(b"ab\xff"), Err("not UTF-8 text (byte 2)"));
        check(&["x"], Some(&vec![b'y'; LIMIT + 1]), Err("limit of 10 MB"));
    }

    #[test]
    fn data_cannot_close_its_own_block() {
        assert_eq!(block("a</stdin>\n"), "<stdin- bytes=\"10\">\na</stdin>\n</stdin->");
    }

    #[tokio::test]
    async fn a_silent_pipe_does_not_hold_a_prompt_up() {
        let (read, _open) = io::pipe().unwrap();
        let source = Some(File::from(OwnedFd::from(read)));
        let got = gather_from(&["hi".into()], source, Duration::from_millis(1)).await.unwrap();
        assert_eq!(got.words, "hi");
        assert!(got.note.unwrap().contains("standard input"));
    }

    #[test]
    fn dev_null_is_not_read() {
        assert!(source(File::open("/dev/null").unwrap()).unwrap().is_none());
        assert!(source(File::open("Cargo.toml").unwrap()).unwrap().is_some());
    }
}
