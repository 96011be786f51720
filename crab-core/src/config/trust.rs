//! Which directories the user trusts: their own configuration then counts in full.

use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Error;
use crate::home::{Home, create_dir_private, open_private};
use crate::paths;

/// Whether the user has trusted this very directory.
pub fn is_trusted(home: &Home, dir: &Path) -> Result<bool, Error> {
    let file = home.trust_file();
    let known = match std::fs::read(&file) {
        Err(err) if matches!(err.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(false),
        Err(err) => return Err(Error::Invalid(format!("cannot read `{}`: {err}", file.display()))),
        Ok(known) => known,
    };
    let dir = paths::canonical(dir);
    Ok(known.split(|byte| *byte == b'\n').any(|line| line == dir.as_os_str().as_bytes()))
}

/// Trusts a directory from now on.
pub fn trust(home: &Home, dir: &Path) -> Result<(), Error> {
    let dir = paths::canonical(dir);
    let bytes = dir.as_os_str().as_bytes();
    if bytes.contains(&b'\n') {
        return Err(Error::Invalid(format!(
            "`{}` has a line break in its name and cannot be trusted",
            dir.display()
        )));
    }
    if is_trusted(home, &dir)? {
        return Ok(());
    }
    let file = home.trust_file();
    let failed = |err: std::io::Error| Error::TrustFile { file: file.clone(), why: err.to_string() };
    create_dir_private(home.dir()).map_err(failed)?;
    // A line end in front too: what stands there may have been edited by hand and lack its own.
    let line = [b"\n", bytes, b"\n"].concat();
    open_private(&file).and_then(|mut handle| handle.write_all(&line)).map_err(failed)
}
