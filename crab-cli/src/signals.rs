//! SIGINT, SIGTERM and SIGHUP as values to wait for.

use std::io;

use tokio::signal::unix::{self, SignalKind};

/// A signal that ends a turn or crab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C, or what `kill -INT` sends.
    Interrupt,
    /// `kill`.
    Terminate,
    /// The terminal went away.
    HangUp,
}

impl Signal {
    /// What crab exits with when this signal ends it.
    pub(crate) fn exit(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
            Self::HangUp => 129,
        }
    }
}

/// The signals that crab handles, from the moment when this is made.
pub(crate) struct Signals {
    interrupt: Option<unix::Signal>,
    terminate: Option<unix::Signal>,
    hang_up: Option<unix::Signal>,
    /// Held so that a write past the limit of file sizes is an error like a full disk, and not the end of crab.
    _file_size: Option<unix::Signal>,
}

impl Signals {
    /// Takes them over from the system's default, which is to die. One that crab was started to ignore (`nohup`, a
    /// script's `&`) stays ignored.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        let listen = |kind: SignalKind| {
            let bit = 1_u64 << (kind.as_raw_value() - 1);
            if ignored & bit != 0 { Ok(None) } else { unix::signal(kind).map(Some) }
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            _file_size: listen(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            () = came(&mut self.terminate) => Signal::Terminate,
            () = came(&mut self.hang_up) => Signal::HangUp,
            () = came(&mut self.interrupt) => Signal::Interrupt,
        }
    }
}

async fn came(signal: &mut Option<unix::Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// The mask of ignored signals in Linux's `/proc/self/status`; nothing where there is no such file.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_process_status() {
        assert_eq!(ignored("Name:\tcrab\nSigBlk:\t0\nSigIgn:\t0000000000001001\nSigCgt:\t2\n"), 0x1001);
        assert_eq!(ignored(""), 0);
    }
}
