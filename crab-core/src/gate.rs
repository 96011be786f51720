//! What decides whether a call may run: a seatbelt, not a security boundary.

/// Proof that the gate let a call pass. Only the gate can make one.
#[derive(Debug)]
pub struct Permit(());

#[cfg(test)]
impl Permit {
    /// A permit for a tool's own unit tests.
    pub(crate) fn for_tests() -> Self {
        Self(())
    }
}
