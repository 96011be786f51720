//! The task that owns a conversation: inbox, queue, one cancellation token a turn.

use tokio::sync::{broadcast, mpsc};

use crate::protocol::{Command, Event};

/// All that a front end holds. Dropping `commands` ends the agent after the running turn is aborted.
pub struct Handle {
    /// Commands in.
    pub commands: mpsc::Sender<Command>,
    /// Events out. A receiver can lag; see [`Event`].
    pub events: broadcast::Receiver<Event>,
}
