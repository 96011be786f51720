//! Call ids as they go out: what a service accepts, the same for a call and its result, the same in every request.

use std::collections::HashMap;

use super::compat::IdRule;

/// The ids of one request.
pub(super) struct Ids {
    rule: IdRule,
    given: HashMap<String, String>,
}

impl Ids {
    /// Ids that the rule accepts.
    pub(super) fn new(rule: IdRule) -> Self {
        Self { rule, given: HashMap::new() }
    }

    /// A service takes back what it gave, so an id that is its own goes out as it is; only what counts letters has to be
    /// asked.
    pub(super) fn keep(&mut self, id: &str) {
        if self.rule != IdRule::Alnum9 && !id.is_empty() {
            self.given.insert(id.to_owned(), id.to_owned());
        }
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
        let within = |longest| (1..=longest).contains(&id.len()) && id.bytes().all(is_plain);
        match self.rule {
            IdRule::Any => !id.is_empty(),
            IdRule::Plain40 => within(40),
            IdRule::Plain64 => within(64),
            IdRule::Alnum9 => id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        }
    }

    /// A hash of the whole id keeps apart what is equal once it is cut and cleaned.
    fn rewrite(&self, id: &str) -> String {
        let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let longest = match self.rule {
            IdRule::Alnum9 => return base62(hash),
            IdRule::Any | IdRule::Plain40 => 40,
            IdRule::Plain64 => 64,
        };
        let clean = id.bytes().map(|byte| if is_plain(byte) { char::from(byte) } else { '_' });
        let head: String = clean.take(longest - 17).collect();
        format!("{head}_{hash:016x}")
    }
}

/// Nine letters and digits, which hold 53 bits of the hash.
fn base62(mut hash: u64) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let digit = |hash: &mut u64| {
        let digit = DIGITS[(*hash % 62) as usize];
        *hash /= 62;
        char::from(digit)
    };
    (0..9).map(|_| digit(&mut hash)).collect()
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
        let mut ids = Ids::new(IdRule::Plain40);
        assert_eq!(ids.get("call_00_aB-9"), "call_00_aB-9");
        assert_ne!(ids.get("functions.read:0"), ids.get("functions_read:0"));
        assert_eq!(Ids::new(IdRule::Any).get("functions.read:0"), "functions.read:0");
        assert_eq!(Ids::new(IdRule::Alnum9).get("aB3456789"), "aB3456789");
        assert_eq!(Ids::new(IdRule::Alnum9).get("call_1").len(), 9);
        ids.keep("functions.own:0");
        assert_eq!(ids.get("functions.own:0"), "functions.own:0");
    }

    proptest! {
        #[test]
        fn every_id_becomes_acceptable_and_stays_itself(a in ".{0,80}", b in ".{0,80}") {
            for rule in [IdRule::Any, IdRule::Plain40, IdRule::Plain64, IdRule::Alnum9] {
                let mut ids = Ids::new(rule);
                let (x, y) = (ids.get(&a), ids.get(&b));
                prop_assert!(ids.accepts(&x) && ids.accepts(&y));
                prop_assert_eq!(x == y, a == b);
                prop_assert_eq!(&x, &Ids::new(rule).get(&a));
            }
        }
    }
}
