//! The two output streams: blocking writes on threads of their own, in order, drained before crab ends.

use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::tty::Streams;

/// Standard output or standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// What the model said.
    Out,
    /// What crab did.
    Err,
}

/// A stream that can't be written to any more.
#[derive(Debug)]
pub(crate) struct Broken {
    /// Which one.
    pub(crate) stream: Stream,
    /// Why.
    pub(crate) error: io::Error,
}

enum Job {
    Write(Stream, Vec<u8>),
    Drain(oneshot::Sender<()>),
}

/// The writing end of one stream. Never blocks; what is written waits in memory.
#[derive(Clone)]
pub(crate) struct Sink {
    jobs: Sender<Job>,
    stream: Stream,
}

impl Sink {
    /// Writes the bytes, behind all that was written before them.
    pub(crate) fn write(&self, bytes: impl Into<Vec<u8>>) -> io::Result<()> {
        let job = Job::Write(self.stream, bytes.into());
        self.jobs.send(job).map_err(|_| io::Error::other("the writer thread has ended"))
    }

    /// Waits until everything written so far has left crab.
    pub(crate) async fn drained(&self) {
        let (done, wait) = oneshot::channel();
        // An error means that the thread has ended: nothing is left to wait for.
        if self.jobs.send(Job::Drain(done)).is_ok() {
            let _ = wait.await;
        }
    }
}

/// Both streams.
pub(crate) struct Output {
    /// Standard output.
    pub(crate) out: Sink,
    /// Standard error.
    pub(crate) err: Sink,
    /// Tells, once for each, which streams broke.
    pub(crate) broken: mpsc::UnboundedReceiver<Broken>,
    /// Whether they are the same terminal, so that a line of one can be left open by the other.
    pub(crate) is_shared: bool,
    is_terminal: (bool, bool),
}

impl Output {
    /// Starts the threads. Two streams on terminals share one, since their order is what a person sees.
    pub(crate) fn start(streams: Streams) -> io::Result<Self> {
        let is_terminal = (streams.out_is_terminal, streams.err_is_terminal);
        let is_shared = is_terminal == (true, true);
        let (tell, broken) = mpsc::unbounded_channel();
        let out = (Stream::Out, streams.out);
        let err = (Stream::Err, streams.err);
        let (out, err) = if is_shared {
            let jobs = spawn(vec![out, err], tell)?;
            (jobs.clone(), jobs)
        } else {
            (spawn(vec![out], tell.clone())?, spawn(vec![err], tell)?)
        };
        let out = Sink { jobs: out, stream: Stream::Out };
        let err = Sink { jobs: err, stream: Stream::Err };
        Ok(Self { out, err, broken, is_shared, is_terminal })
    }

    /// Whether standard output is a terminal.
    pub(crate) fn out_is_terminal(&self) -> bool {
        self.is_terminal.0
    }

    /// Whether standard error is a terminal.
    pub(crate) fn err_is_terminal(&self) -> bool {
        self.is_terminal.1
    }

    /// Waits until both streams are written, however slow their readers are.
    pub(crate) async fn drained(&self) {
        self.out.drained().await;
        self.err.drained().await;
    }

    /// Waits until what goes to terminals is on the screen. A pipe is not waited for: its reader may be waiting
    /// for the user. A stopped terminal (Ctrl-S) holds nothing up for longer than a moment.
    pub(crate) async fn settled(&self) {
        let both = async {
            if self.is_terminal.0 {
                self.out.drained().await;
            }
            if self.is_terminal.1 {
                self.err.drained().await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), both).await;
    }
}

fn spawn(files: Vec<(Stream, File)>, tell: mpsc::UnboundedSender<Broken>) -> io::Result<Sender<Job>> {
    let (jobs, queue) = channel();
    let writer = Writer { files, tell };
    thread::Builder::new().name("writer".into()).spawn(move || writer.run(&queue))?;
    Ok(jobs)
}

struct Writer {
    files: Vec<(Stream, File)>,
    tell: mpsc::UnboundedSender<Broken>,
}

impl Writer {
    fn run(mut self, queue: &Receiver<Job>) {
        let mut next = queue.recv().ok();
        while let Some(job) = next.take() {
            match job {
                Job::Drain(done) => {
                    // Whoever asked may have given up.
                    let _ = done.send(());
                }
                Job::Write(stream, mut bytes) => {
                    next = gather(queue, stream, &mut bytes);
                    self.write(stream, &bytes);
                }
            }
            next = next.or_else(|| queue.recv().ok());
        }
    }

    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let Some(at) = self.files.iter().position(|(it, _)| *it == stream) else { return };
        if let Err(error) = write_all(&mut self.files[at].1, bytes) {
            self.files.remove(at);
            // With no one left to tell, crab is ending already.
            let _ = self.tell.send(Broken { stream, error });
        }
    }
}

/// Appends what waits for the same stream, so that a burst of pieces is one system call. Returns the first other job.
fn gather(queue: &Receiver<Job>, stream: Stream, bytes: &mut Vec<u8>) -> Option<Job> {
    while bytes.len() < 64 * 1024 {
        match queue.try_recv().ok()? {
            Job::Write(it, more) if it == stream => bytes.extend(more),
            job => return Some(job),
        }
    }
    None
}

fn write_all(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            // Another program can have made a shared pipe or terminal non-blocking.
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(5)),
            Err(err) => return Err(err),
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Read;

    use super::*;

    /// Both streams as pipes, and a way to read what was written once the output is dropped.
    pub(crate) fn piped() -> (Output, impl FnOnce() -> (String, String)) {
        let (out, w_out) = io::pipe().unwrap();
        let (err, w_err) = io::pipe().unwrap();
        let output = Output::start(Streams::of(w_out, w_err)).unwrap();
        let read = |mut pipe: io::PipeReader| {
            let mut text = String::new();
            pipe.read_to_string(&mut text).unwrap();
            text
        };
        let out = thread::spawn(move || read(out));
        let err = thread::spawn(move || read(err));
        (output, move || (out.join().unwrap(), err.join().unwrap()))
    }

    #[tokio::test]
    async fn everything_written_is_there_after_a_drain() {
        let (output, read) = piped();
        for n in 0..20_000 {
            output.out.write(format!("{n}\n")).unwrap();
        }
        output.err.write("end").unwrap();
        output.drained().await;
        drop(output);
        let (out, err) = read();
        assert_eq!((out.lines().count(), out.lines().last(), err.as_str()), (20_000, Some("19999"), "end"));
    }

    #[tokio::test]
    async fn a_reader_that_went_away_is_reported_once() {
        let (reader, writer) = io::pipe().unwrap();
        let err = File::options().write(true).open("/dev/null").unwrap();
        let mut output = Output::start(Streams::of(writer, err)).unwrap();
        drop(reader);
        for _ in 0..3 {
            output.out.write("x").unwrap();
            output.drained().await;
        }
        let broken = output.broken.recv().await.unwrap();
        assert_eq!((broken.stream, broken.error.kind()), (Stream::Out, io::ErrorKind::BrokenPipe));
        assert!(output.broken.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_full_device_is_an_error_that_has_a_name() {
        let open = |path| File::options().write(true).open(path).unwrap();
        let mut output = Output::start(Streams::of(open("/dev/full"), open("/dev/null"))).unwrap();
        output.out.write("x").unwrap();
        output.drained().await;
        assert_eq!(output.broken.recv().await.unwrap().error.kind(), io::ErrorKind::StorageFull);
    }
}
