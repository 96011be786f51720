//! One writer at a time: the lock on a session file, and who holds it.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};

use super::Error;

/// What a crab that was killed had just forked keeps the lock until it is another program, or gone as well.
const LETTING_GO: Duration = Duration::from_millis(300);

/// Takes the lock, which lasts as long as the file is open. `Ok(Some)` is a warning: the file system has no locks.
///
/// The lock belongs to this one opening of the file (`flock`): opening and closing the file elsewhere in the process
/// does not lose it, and a command that crab starts does not inherit it.
pub(super) fn lock(handle: &File, file: &Path) -> Result<Option<String>, Error> {
    let begun = Instant::now();
    loop {
        match handle.try_lock() {
            Ok(()) => return Ok(None),
            Err(TryLockError::WouldBlock) if begun.elapsed() < LETTING_GO => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Locked { file: file.to_path_buf(), holder: holder(handle, file) });
            }
            Err(TryLockError::Error(err)) => {
                return Ok(Some(format!(
                    "the session file `{}` cannot be locked ({err}): do not use it in two places at once",
                    file.display()
                )));
            }
        }
    }
}

/// The process that has the lock, where the system tells.
#[cfg(target_os = "linux")]
fn holder(handle: &File, _file: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let meta = handle.metadata().ok()?;
    let table = std::fs::read_to_string("/proc/locks").ok()?;
    let device = format!("{:02x}:{:02x}", rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    holder_in(&table, &device, &meta.ino().to_string())
}

/// The holder by the kernel's table. Some file systems (btrfs, overlays) show another device there than in a file's
/// status, so that the number of the file has to do.
#[cfg(target_os = "linux")]
fn holder_in(table: &str, device: &str, inode: &str) -> Option<u32> {
    let mut by_inode = None;
    for line in table.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, place, ..] = fields[..] else { continue };
        let Some((on, number)) = place.rsplit_once(':') else { continue };
        // A process of another container is shown as 0, or as -1.
        let Some(pid) = pid.parse().ok().filter(|pid| *pid > 0) else { continue };
        if number != inode {
            continue;
        }
        if on == device {
            return Some(pid);
        }
        by_inode = by_inode.or(Some(pid));
    }
    by_inode
}

#[cfg(not(target_os = "linux"))]
fn holder(_handle: &File, file: &Path) -> Option<u32> {
    let output = std::process::Command::new("lsof").arg("-t").arg("--").arg(file).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // Crab itself has the file open too by now.
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).find(|pid| *pid != std::process::id())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[track_caller]
    fn check(table: &str, expected: Option<u32>) {
        assert_eq!(holder_in(table, "08:01", "77"), expected);
    }

    #[test]
    fn the_kernel_table_names_the_holder() {
        check(
            "1: POSIX  ADVISORY  WRITE 5 08:01:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 1234 08:01:77 0 EOF\n",
            Some(1234),
        );
        check(
            "1: FLOCK  ADVISORY  WRITE 5 00:2a:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 6 08:01:77 0 EOF\n",
            Some(6),
        );
        check("1: FLOCK  ADVISORY  WRITE 5 00:2a:77 0 EOF\n", Some(5));
        check("1: FLOCK  ADVISORY  WRITE 5 08:01:78 0 EOF\n", None);
        check("1: FLOCK  ADVISORY  WRITE -1 08:01:77 0 EOF\n2: -> FLOCK\nrubbish\n", None);
    }
}
