//! Call ids as they go out: what a service accepts, the same for a call and its result, the same in every request.

use std::collections::HashMap;

/// The ids of one request.
pub(super) struct Ids {
    longest: usize,
    given: HashMap<String, String>,
}

impl Ids {
    /// Ids of at most `longest` characters out of `[a-zA-Z0-9_-]`.
    pub(super) fn new(longest: usize) -> Self {
        Self { longest, given: HashMap::new() }
    }

    /// The id to send for the session's `id`.
    pub(super) fn get(&mut self, id: &str) -> String {
        if let Some(known) = self.given.get(id) {
            return known.clone();
        }
        let sent = if self.accepts(id) { id.to_owned() } else { self.rewrite(id) };
        self.given.insert(id.to_owned(), sent.clone());
        sent
    }

    fn accepts(&self, id: &str) -> bool {
        (1..=self.longest).contains(&id.len()) && id.bytes().all(is_plain)
    }

    /// A hash of the whole id keeps apart what is equal once it is cut and cleaned.
    fn rewrite(&self, id: &str) -> String {
        let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let clean = id.bytes().map(|byte| if is_plain(byte) { char::from(byte) } else { '_' });
        let head: String = clean.take(self.longest - 17).collect();
        format!("{head}_{hash:016x}")
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn good_ids_go_out_as_they_are() {
        let mut ids = Ids::new(40);
        assert_eq!(ids.get("call_00_aB-9"), "call_00_aB-9");
        assert_ne!(ids.get("functions.read:0"), ids.get("functions_read:0"));
    }

    proptest! {
        #[test]
        fn every_id_becomes_acceptable_and_stays_itself(a in ".{0,80}", b in ".{0,80}") {
            let mut ids = Ids::new(40);
            let (x, y) = (ids.get(&a), ids.get(&b));
            prop_assert!(ids.accepts(&x) && ids.accepts(&y));
            prop_assert_eq!(x == y, a == b);
            prop_assert_eq!(&x, &Ids::new(40).get(&a));
        }
    }
}
