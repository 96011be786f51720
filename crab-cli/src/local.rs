//! Model servers on this machine: which of the known ones answer on their usual ports.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crab_core::provider::SERVICES;

/// A port of this machine refuses at once, so that only a stuck server takes so long.
const PATIENCE: Duration = Duration::from_millis(150);

/// Name and address of each that takes a connection; nothing is sent.
pub(crate) fn servers() -> Vec<(&'static str, SocketAddr)> {
    let local = SERVICES.iter().filter_map(|service| Some((service.name, address(service.base_url)?)));
    local.filter(|(_, address)| TcpStream::connect_timeout(address, PATIENCE).is_ok()).collect()
}

/// Host and port of a base URL on the loopback.
fn address(base_url: &str) -> Option<SocketAddr> {
    base_url.strip_prefix("http://")?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_services_of_this_machine_have_an_address_here() {
        assert_eq!(address("http://127.0.0.1:11434/v1"), "127.0.0.1:11434".parse().ok());
        assert_eq!(address("https://api.openai.com/v1"), None);
        assert_eq!(address(""), None);
    }
}
