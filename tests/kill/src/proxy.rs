//! A proxy between nodes and their server that cuts connections after an arbitrary byte.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::chance::Chance;

/// A connection is cut within this many bytes, which is a few commits.
const BYTES_MAX: u64 = 12_000;
/// After this many cuts the network works again, so that every run can end.
const CUTS_MAX: u64 = 8;

pub struct Proxy {
    port: u16,
    state: Arc<ProxyState>,
}

/// The state that all connections share.
struct ProxyState {
    chance: Mutex<Chance>,
    cuts: AtomicBool,
    cut_count: AtomicU64,
    ended: AtomicBool,
}

/// A connection with both its ends.
struct Connection {
    client: TcpStream,
    server: TcpStream,
    /// Bytes that it still carries once the network is bad.
    left: AtomicU64,
    is_broken: AtomicBool,
    state: Arc<ProxyState>,
}

impl Proxy {
    pub fn to(server_port: u16, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(ProxyState {
            chance: Mutex::new(Chance::from_seed(seed)),
            cuts: AtomicBool::new(false),
            cut_count: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        });
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if shared.ended.load(Ordering::Relaxed) {
                    return;
                }
                // A client that cannot connect retries.
                let _ = client.and_then(|client| forward_connection(client, server_port, shared.clone()));
            }
        });
        Ok(Self { port, state })
    }

    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    pub fn begin_to_cut(&self) {
        self.state.cuts.store(true, Ordering::Relaxed);
    }

    #[must_use]
    pub fn cut_count(&self) -> u64 {
        self.state.cut_count.load(Ordering::Relaxed).min(CUTS_MAX)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::Relaxed);
        // Unblocks the accept loop, which then sees that the proxy is closed.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn forward_connection(client: TcpStream, server_port: u16, state: Arc<ProxyState>) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", server_port))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let left = 1 + state.chance.lock().unwrap_or_else(PoisonError::into_inner).below(BYTES_MAX);
    let connection = Arc::new(Connection {
        client,
        server,
        left: AtomicU64::new(left),
        is_broken: AtomicBool::new(false),
        state,
    });
    let other_way = connection.clone();
    std::thread::spawn(move || connection.forward(&connection.client, &connection.server));
    std::thread::spawn(move || other_way.forward(&other_way.server, &other_way.client));
    Ok(())
}

impl Connection {
    fn forward(&self, mut from: &TcpStream, mut to: &TcpStream) {
        let mut buffer = [0; 16_384];
        loop {
            match from.read(&mut buffer) {
                // One side finished sending; it may still receive.
                Ok(0) => {
                    let _ = to.shutdown(Shutdown::Write);
                    return;
                }
                Ok(count) => {
                    let passes = self.passes(count);
                    if to.write_all(&buffer[..passes]).is_err() || passes < count {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }

    /// How many of these bytes arrive before the connection is cut.
    fn passes(&self, count: usize) -> usize {
        let state = &self.state;
        if !state.cuts.load(Ordering::Relaxed) || state.cut_count.load(Ordering::Relaxed) >= CUTS_MAX {
            return count;
        }
        let wanted = count as u64;
        let take = |left: u64| Some(left.saturating_sub(wanted));
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).unwrap_or_default();
        if left >= wanted {
            return count;
        }
        if !self.is_broken.swap(true, Ordering::Relaxed) {
            state.cut_count.fetch_add(1, Ordering::Relaxed);
        }
        usize::try_from(left).unwrap_or(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much a client that sends a lot receives back from an echo server.
    fn echoed(proxy: &Proxy) -> usize {
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).expect("the proxy listens");
        let mut sender = stream.try_clone().expect("a second end");
        let said = std::thread::spawn(move || {
            let _ = sender.write_all(&[7; 2 * BYTES_MAX as usize]);
            let _ = sender.shutdown(Shutdown::Write);
        });
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard);
        said.join().expect("it has said what it could");
        heard.len()
    }

    fn echo_server() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it has a number").port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut back = stream.try_clone().expect("a second end");
                std::thread::spawn(move || {
                    let _ = io::copy(&mut &stream, &mut back);
                    let _ = back.shutdown(Shutdown::Write);
                });
            }
        });
        port
    }

    #[test]
    fn connections_break_off_only_when_the_network_is_bad_and_not_for_ever() {
        let proxy = Proxy::to(echo_server(), 1).expect("it listens");
        let all = 2 * BYTES_MAX as usize;
        assert_eq!(echoed(&proxy), all, "the network is well");
        assert_eq!(proxy.cut_count(), 0);
        proxy.begin_to_cut();
        for count in 1..=CUTS_MAX {
            assert!(echoed(&proxy) < all);
            assert_eq!(proxy.cut_count(), count);
        }
        assert_eq!(echoed(&proxy), all, "the network is well again");
        assert_eq!(proxy.cut_count(), CUTS_MAX);
    }
}
